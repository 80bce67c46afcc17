// Attention on ranges forward: an online softmax over tiles of senders.
#pragma once

#include "tiles/tiles.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class S>
template <int N>
inline void Tiles<S>::begin(int64_t b, int h, const Panel& panel, const Softmax& of) const {
  to_lanes<N, S>(rows(call.q, b, panel.row, h * C), panel.count, C, A(call.scale * TO_BASE<A>), of.q);
  for (int i = 0; i < N * W; ++i) of.top[i] = LOWEST, of.total[i] = 0;
  for (int i = 0; i < D * N * W; ++i) of.y[i] = 0;
}

template <class S>
template <int N>
inline void Tiles<S>::attend(int64_t b, int h, const Panel& panel, int64_t r, int64_t first, int64_t last, Rows k, Rows v,
                             const Softmax& of, A* s) const {
  const int64_t count = last - first;
  multiply<A, N, Start::ZERO, false>(k.x, k.stride, count, of.q, N * W, C, s, N * W);
  if (call.bias) with_bias<N, false>(b, h, panel, r, first, last, s);
  mask<N>(s, panel, r, first, last);
  Vector<A> top[N], total[N], shrink[N];
  for (int n = 0; n < N; ++n) top[n] = load(of.top + n * W);
  for (int64_t j = 0; j < count; ++j)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) top[n] = larger<A>(load(s + (j * N + n) * W), top[n]);
  for (int n = 0; n < N; ++n) {
    shrink[n] = power(load(of.top + n * W) - top[n]);
    total[n] = load(of.total + n * W) * shrink[n];
    store(of.top + n * W, top[n]);
  }
  for (int64_t j = 0; j < count; ++j)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
      const Vector<A> p = power(load(s + (j * N + n) * W) - top[n]);
      store(s + (j * N + n) * W, p);
      total[n] += p;
    }
  for (int n = 0; n < N; ++n) store(of.total + n * W, total[n]);
  if (call.dropout > 0) {
    const Survival<N> survival(*this, b, h, panel);
    for (int64_t j = 0; j < count; ++j)
      for (int n = 0; n < N; ++n) store(s + (j * N + n) * W, load(s + (j * N + n) * W) * survival(first + j, n));
  }
  multiply<A, N, Start::SHRINK, true>(v.x, v.stride, D, s, N * W, count, of.y, N * W, shrink);
}

template <class S>
template <int N>
inline void Tiles<S>::finish(int64_t b, int h, const Panel& panel, const Softmax& of) const {
  Vector<A> inverse[N];
  alignas(64) A lse[N * W];
  for (int n = 0; n < N; ++n) {
    const Vector<A> total = load(of.total + n * W);
    const Whole<A> nothing = total == Vector<A>{};
    inverse[n] = choose<A>(nothing, Vector<A>{}, 1 / total);
    store(lse + n * W, choose<A>(nothing, all(INFINITE), load(of.top + n * W) + logarithm(total) * A(TO_BASE<A>)));
  }
  from_lanes<N, S>(of.y, inverse, panel.count, D, rows(call.y, b, panel.row, h * D));
  A* saved = (A*)call.lse + (b * call.heads + h) * call.receivers + panel.row;
  std::copy_n(lse, panel.count, saved);
}

template <class S>
inline void Tiles<S>::forward(int64_t b, int h, PanelRange tile) {
  A* at = start(PANELS * int64_t(2 * W * (C + D + 2) + 64) + most * (2 * W + C_whole + D_whole) + 64);
  A *s = take(at, most * 2 * W), *k_room = take(at, most * C_whole), *v_room = take(at, most * D_whole);
  Softmax of[PANELS];
  const int64_t panels = tile.last - tile.first;
  for (int64_t n = 0; n < panels; ++n) {
    of[n] = {take(at, 2 * W * C), take(at, 2 * W * D), take(at, 2 * W), take(at, 2 * W)};
    const Panel& panel = plan.panels[tile.first + n];
    panel.vectors == 2 ? begin<2>(b, h, panel, of[n]) : begin<1>(b, h, panel, of[n]);
  }
  for (int64_t r = 0; r < call.ranges; ++r) {
    int64_t first = call.senders, last = 0;
    for (int64_t n = tile.first; n < tile.last; ++n) {
      first = std::min(first, plan.span(n, r).first);
      last = std::max(last, plan.span(n, r).last);
    }
    for (int64_t j = first; j < last; j += most) {
      const int64_t end = std::min(j + most, last);
      const Rows k = read(call.k, b, j, end - j, h * C, C, panels == 1, k_room);
      const Rows v = read(call.v, b, j, end - j, h * D, D, panels == 1, v_room);
      for (int64_t n = 0; n < panels; ++n) {
        const Panel& panel = plan.panels[tile.first + n];
        const Span& span = plan.span(tile.first + n, r);
        const int64_t from = std::max(j, span.first), to = std::min(end, span.last);
        if (from >= to) continue;
        const Rows some_k{k.x + (from - j) * k.stride, k.stride}, some_v{v.x + (from - j) * v.stride, v.stride};
        panel.vectors == 2 ? attend<2>(b, h, panel, r, from, to, some_k, some_v, of[n], s)
                           : attend<1>(b, h, panel, r, from, to, some_k, some_v, of[n], s);
      }
    }
  }
  for (int64_t n = 0; n < panels; ++n) {
    const Panel& panel = plan.panels[tile.first + n];
    panel.vectors == 2 ? finish<2>(b, h, panel, of[n]) : finish<1>(b, h, panel, of[n]);
  }
}

template <class S>
void attend_tiles(const Tiling& call) {
  const Plan plan(call, lanes<Sum<S>>, PANELS, !are_finite<S>(call, {{call.v, call.senders, call.values}}));
  const std::vector<Share> shares = shared_out(call.heads, int64_t(plan.tiles.size()), [&](int64_t t) {
    int64_t work = 0;
    for (int64_t n = plan.tiles[t].first; n < plan.tiles[t].last; ++n) work += plan.work(n);
    return work * (call.channels + call.values);
  });
  const int64_t count = int64_t(shares.size());
  with_tiles<S>(call, plan, call.batch * count, [&](Tiles<S>& some, int64_t item) {
    const Share& share = shares[item % count];
    for (int64_t t = share.first; t < share.last; ++t)
      for (int h = share.first_head; h < share.last_head; ++h) {
        if (t + 1 < share.last) some.prefetch_tile(item / count, h, plan.tiles[t + 1]);
        some.forward(item / count, h, plan.tiles[t]);
      }
  });
}

}  // namespace edgewise::EDGEWISE_ISA
