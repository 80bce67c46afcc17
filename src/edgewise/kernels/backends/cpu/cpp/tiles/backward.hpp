// Attention on ranges backward, tile of senders by tile of senders, from the saved log-sum-exp: dk_j and dv_j are finished with
// their tile, dq_i is gathered in lanes.
#pragma once

#include "tiles/tiles.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class S>
template <int N>
inline void Tiles<S>::prepare(int64_t b, int h, const Panel& panel, const Gradient& of) const {
  to_lanes<N, S>(rows(call.q, b, panel.row, h * C), panel.count, C, A(call.scale * TO_BASE<A>), of.q);
  to_lanes<N, S>(rows(call.dy, b, panel.row, h * D), panel.count, D, A(1), of.dy);
  const A* lse = (const A*)call.lse + (b * call.heads + h) * call.receivers + panel.row;
  for (int i = 0; i < N * W; ++i) {
    of.lse[i] = INFINITE, of.delta[i] = 0;
    if (i >= panel.count) continue;
    of.lse[i] = lse[i];
    const S *y = row(call.y, b, panel.row + i, h * D), *dy = row(call.dy, b, panel.row + i, h * D);
    Vector<A> sum{};
    int d = 0;
    for (; d + W <= D; d += W) sum += load(y + d) * load(dy + d);
    A delta = sum_across<A>(sum);
    for (; d < D; ++d) delta += number(y[d]) * number(dy[d]);
    of.delta[i] = delta;
  }
  std::fill_n(of.dq, C * N * W, A(0));
}

template <class S>
template <int N>
inline void Tiles<S>::add_gradients(int64_t b, int h, const Panel& panel, int64_t r, int64_t first, int64_t last, Rows k,
                                    Rows v, const Gradient& of, A* s, A* ds, A* dk, A* dv, A* q_room, A* dy_room) const {
  const int64_t count = last - first;
  multiply<A, N, Start::ZERO, false>(k.x, k.stride, count, of.q, N * W, C, s, N * W);
  multiply<A, N, Start::ZERO, false>(v.x, v.stride, count, of.dy, N * W, D, ds, N * W);
  if (call.bias) with_bias<N, false>(b, h, panel, r, first, last, s);
  mask<N>(s, panel, r, first, last);
  Vector<A> lse[N], delta[N];
  for (int n = 0; n < N; ++n) lse[n] = load(of.lse + n * W), delta[n] = load(of.delta + n * W);
  const auto weights = [&](const auto& survival) EDGEWISE_INLINE_LAMBDA {
    for (int64_t j = 0; j < count; ++j)
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) {
        const int64_t at = (j * N + n) * W;
        const Vector<A> p = power(load(s + at) - lse[n]), d = load(ds + at);
        if constexpr (std::is_same_v<std::decay_t<decltype(survival)>, Survival<N>>) {
          const Vector<A> factor = survival(first + j, n);
          store(s + at, p * factor);
          store(ds + at, p * (d * factor - delta[n]));
        } else {
          store(s + at, p);
          store(ds + at, p * (d - delta[n]));
        }
      }
  };
  call.dropout > 0 ? weights(Survival<N>(*this, b, h, panel)) : weights(nullptr);
  if (dbias) with_bias<N, true>(b, h, panel, r, first, last, ds);
  multiply<A, N, Start::ADD, true>(k.x, k.stride, C, ds, N * W, count, of.dq, N * W);
  const Rows dy = read(call.dy, b, panel.row, panel.count, h * D, D, D % W == 0, dy_room);
  multiply_rows<A, Start::ADD, false>(s, N * W, count, dy.x, dy.stride, panel.count, dv, D_whole);
  const Rows q = read(call.q, b, panel.row, panel.count, h * C, C, C % W == 0, q_room);
  multiply_rows<A, Start::ADD, false>(ds, N * W, count, q.x, q.stride, panel.count, dk, C_whole);
}

template <class S>
inline void Tiles<S>::write(const A* x, int whole, int64_t count, int width, A factor, const Matrix& out, int64_t b, int64_t n,
           int64_t from) const {
  for (int64_t i = 0; i < count; ++i) {
    S* to = row(out, b, n + i, from);
    for (int c = 0; c < width; ++c) put(to + c, x[i * whole + c] * factor);
  }
}

template <class S>
inline void Tiles<S>::write_dq(int64_t b, int h, const Panel& panel, const A* dq) const {
  const Vector<A> scale[2] = {all(A(call.scale)), all(A(call.scale))};
  const auto out = rows(call.dq, b, panel.row, h * C);
  panel.vectors == 2 ? from_lanes<2, S>(dq, scale, panel.count, C, out) : from_lanes<1, S>(dq, scale, panel.count, C, out);
}

template <class S>
inline void Tiles<S>::backward(int64_t b, int h, const Piece& piece, const std::vector<SenderTile>& tiles, A* partials) {
  const int64_t panels = piece.last_panel - piece.first_panel, of_panel = gradient_room();
  A* at = start(panels * of_panel + most * (4 * W + 2 * (C_whole + D_whole)) + 2 * W * (C_whole + D_whole) + 256);
  A *s = take(at, most * 2 * W), *ds = take(at, most * 2 * W);
  A *k_room = take(at, most * C_whole), *v_room = take(at, most * D_whole);
  A *dk = take(at, most * C_whole), *dv = take(at, most * D_whole);
  A *q_room = take(at, 2 * W * C_whole), *dy_room = take(at, 2 * W * D_whole);
  auto gradient = [&](int64_t n) {
    A* own = at + n * of_panel;
    Gradient of{take(own, 2 * W * C), take(own, 2 * W * D), nullptr, take(own, 2 * W), take(own, 2 * W)};
    of.dq = partials ? partials + (piece.partial + n) * partial_room() : own;
    return of;
  };
  ready.assign(panels, 0);
  for (int64_t t = piece.first_tile; t < piece.last_tile; ++t) {
    const SenderTile& tile = tiles[t];
    const int64_t senders = tile.last - tile.first;
    const Rows k = read(call.k, b, tile.first, senders, h * C, C, panels == 1, k_room);
    const Rows v = read(call.v, b, tile.first, senders, h * D, D, panels == 1, v_room);
    std::fill_n(dk, senders * C_whole, A(0));
    std::fill_n(dv, senders * D_whole, A(0));
    for (int64_t n = tile.first_panel; n < tile.last_panel; ++n)
      for (int64_t r = 0; r < call.ranges; ++r) {
        const Span& span = plan.span(n, r);
        const int64_t from = std::max(tile.first, span.first), to = std::min(tile.last, span.last);
        if (from >= to) continue;
        const Panel& panel = plan.panels[n];
        const Gradient of = gradient(n - piece.first_panel);
        if (!ready[n - piece.first_panel]) {
          ready[n - piece.first_panel] = 1;
          panel.vectors == 2 ? prepare<2>(b, h, panel, of) : prepare<1>(b, h, panel, of);
        }
        const int64_t skip = from - tile.first;
        const Rows some_k{k.x + skip * k.stride, k.stride}, some_v{v.x + skip * v.stride, v.stride};
        A *some_dk = dk + skip * C_whole, *some_dv = dv + skip * D_whole;
        panel.vectors == 2 ? add_gradients<2>(b, h, panel, r, from, to, some_k, some_v, of, s, ds, some_dk, some_dv, q_room, dy_room)
                           : add_gradients<1>(b, h, panel, r, from, to, some_k, some_v, of, s, ds, some_dk, some_dv, q_room, dy_room);
      }
    write(dk, C_whole, senders, C, A(call.scale), call.dk, b, tile.first, h * C);
    write(dv, D_whole, senders, D, A(1), call.dv, b, tile.first, h * D);
  }
  for (int64_t n = 0; n < panels; ++n) {
    const Gradient of = gradient(n);
    if (!ready[n]) std::fill_n(of.dq, partial_room(), A(0));
    if (!partials) write_dq(b, h, plan.panels[piece.first_panel + n], of.dq);
  }
}

template <class S>
void attend_tiles_gradient(const Tiling& call) {
  using A = Sum<S>;
  if (call.batch == 0 || call.heads == 0) return;
  const bool finite = are_finite<S>(call, {{call.q, call.receivers, call.channels}, {call.k, call.senders, call.channels},
                                           {call.v, call.senders, call.values}, {call.y, call.receivers, call.values},
                                           {call.dy, call.receivers, call.values}});
  const Plan plan(call, lanes<A>, PANELS, !finite);
  const BackwardPlan backward(call, plan, Tiles<S>::backward_step(call));
  const std::vector<Share> shares = shared_out(call.heads, int64_t(backward.pieces.size()),
                                               [&](int64_t n) { return backward.pieces[n].work; });
  const int64_t heads = call.heads, count = int64_t(shares.size());
  const int64_t room = 2 * lanes<A> * call.channels;
  std::unique_ptr<A[]> partials(new A[call.batch * heads * backward.partials * room]);
  for (int64_t b = 0; b < call.batch; ++b) {  // senders without receivers
    int64_t reached = 0;
    auto clear = [&](int64_t last) {
      for (int64_t j = reached; j < last; ++j) {
        const int64_t at = call.order ? call.order[j] : j;
        std::memset((S*)call.dk.data + b * call.dk.batch_stride + at * call.dk.row_stride, 0, heads * call.channels * sizeof(S));
        std::memset((S*)call.dv.data + b * call.dv.batch_stride + at * call.dv.row_stride, 0, heads * call.values * sizeof(S));
      }
    };
    for (const Group& group : plan.groups) {
      if (group.first_sender >= group.last_sender) continue;
      clear(group.first_sender);
      reached = group.last_sender;
    }
    clear(call.senders);
  }
  const int64_t parts = call.dbias ? call.parts : call.batch;
  with_tiles<S>(call, plan, parts * count, [&](Tiles<S>& some, int64_t item) {
    const Share& share = shares[item % count];
    const int64_t part = item / count, first = part * call.batch / parts, last = (part + 1) * call.batch / parts;
    for (int64_t b = first; b < last; ++b) {
      some.dbias = call.dbias ? (A*)call.dbias + part * heads * call.pairs : nullptr;
      some.adding = b > first;
      for (int64_t n = share.first; n < share.last; ++n)
        for (int h = share.first_head; h < share.last_head; ++h) {
          const Piece& piece = backward.pieces[n];
          A* own = piece.partial < 0 ? nullptr : partials.get() + (b * heads + h) * backward.partials * room;
          some.backward(b, h, piece, backward.tiles, own);
        }
    }
  });
  if (backward.partials == 0) return;
  // dq of a panel: the sum over pieces, in their order; 0 where none has it, and no piece of its own has written it.
  with_tiles<S>(call, plan, int64_t(plan.panels.size()), [&](Tiles<S>& some, int64_t panel) {
    A* sum = some.start(room + 64);
    for (int64_t item = 0; item < call.batch * heads; ++item) {
      bool any = false, written = false;
      for (const Piece& piece : backward.pieces) {
        if (panel < piece.first_panel || panel >= piece.last_panel) continue;
        if ((written = piece.partial < 0)) break;
        const A* part = partials.get() + (item * backward.partials + piece.partial + panel - piece.first_panel) * room;
        for (int64_t n = 0; n < room; ++n) sum[n] = any ? sum[n] + part[n] : part[n];
        any = true;
      }
      if (written) continue;
      if (!any) std::fill_n(sum, room, A(0));
      some.write_dq(item / heads, int(item % heads), plan.panels[panel], sum);
    }
  });
}

}  // namespace edgewise::EDGEWISE_ISA
