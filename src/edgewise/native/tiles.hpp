// Attention on ranges as dense tiles: a panel of receivers in the lanes of vectors, senders one after the other.
//
// Scores lie [sender][receiver], so that the softmax of a receiver runs along its lane, and keys and values are read
// number by number from where they are. Forward: an online softmax over tiles of senders. Backward: tile of senders by
// tile of senders, from the saved log-sum-exp; dk_j and dv_j are finished with their tile, dq_i is gathered in lanes.
#pragma once

#include <memory>
#include <vector>

#include "dropout.hpp"
#include "parallel.hpp"
#include "tiles_plan.hpp"
#include "tiles_products.hpp"

namespace edgewise::EDGEWISE_ISA {

constexpr int PANELS = 4;                 // panels that share a copy of keys and values

// Scores are kept in the base whose power is cheapest: 2 for float, e for double.
template <class A>
constexpr double TO_BASE = 1;
template <>
inline constexpr double TO_BASE<float> = 1.44269504088896340736;

// 2^x for x <= 0, about 1 unit in the last place, and exactly 0 for x <= -127; NaN stays NaN.
EDGEWISE_INLINE Vector<float> power(Vector<float> x) {
  const Vector<float> magic = all(12582912.0f), low = all(-127.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  x = low > x ? low : x;
  const Vector<float> shifted = x + magic, r = x - (shifted - magic);
  Vector<float> p = r * 1.535336188319500e-4f + 1.339887440266574e-3f;
  p = p * r + 9.618437357674640e-3f;
  p = p * r + 5.550332471162809e-2f;
  p = p * r + 2.402264791363012e-1f;
  p = p * r + 6.931472028550421e-1f;
  p = p * r + 1.0f;
  return (Vector<float>)((Whole<float>)p + ((Whole<float>)shifted << 23));
}
EDGEWISE_INLINE Vector<double> power(Vector<double> x) { return exponential(x); }

template <class S>
struct Tiles {
  using A = Sum<S>;
  static constexpr int W = lanes<A>;
  static constexpr A LOWEST = std::numeric_limits<A>::lowest(), INFINITE = std::numeric_limits<A>::infinity();

  struct Rows {
    const A* x;
    int64_t stride;
  };

  const Tiling& call;
  const Plan& plan;
  const int C, D, C_whole, D_whole, most;  // channels and values, the same in whole vectors, senders in a tile at most
  const Dropout dropout;
  const A keep;
  std::vector<A> room;
  std::vector<uint8_t> ready;
  A* dbias = nullptr;   // of one part of the batch
  bool adding = false;  // to what its members before have left there

  Tiles(const Tiling& call, const Plan& plan)
      : call(call), plan(plan), C(call.channels), D(call.values), C_whole((C + W - 1) / W * W),
        D_whole((D + W - 1) / W * W), most(forward_step(call)), dropout(call.dropout, call.seed),
        keep(A(1 / (1 - call.dropout))) {}

  // Senders in a tile, so that all that is read and written of it stays in the first cache; never more than `most`.
  static int forward_step(const Tiling& call) { return std::max(call.channels, call.values) <= 64 ? 64 : 32; }
  static int backward_step(const Tiling& call) { return std::max(call.channels, call.values) <= 16 ? 64 : 32; }

  A* take(A*& from, int64_t count) const {
    A* taken = from;
    from += (count + 15) / 16 * 16;
    return taken;
  }
  A* start(int64_t count) {
    if (int64_t(room.size()) < count) room.resize(count);
    return (A*)((uintptr_t(room.data()) + 63) / 64 * 64);
  }

  S* row(const Matrix& x, int64_t b, int64_t n, int64_t from) const {
    return (S*)x.data + b * x.batch_stride + (call.order ? call.order[n] : n) * x.row_stride + from;
  }
  auto rows(const Matrix& x, int64_t b, int64_t n, int64_t from) const {
    return [this, &x, b, n, from](int i) { return row(x, b, n + i, from); };
  }

  // Rows as sums are kept, in whole vectors: where they lie already, or copied to `room`.
  Rows read(const Matrix& x, int64_t b, int64_t n, int64_t count, int64_t from, int width, bool in_place, A* room) const {
    const int whole = (width + W - 1) / W * W;
    if constexpr (std::is_same_v<S, A>)
      if (in_place && !call.order) return {row(x, b, n, from), x.row_stride};
    for (int64_t i = 0; i < count; ++i) {
      const S* in = row(x, b, n + i, from);
      A* out = room + i * whole;
      int c = 0;
      for (; c + W <= width; c += W) store(out + c, load(in + c));
      for (; c < width; ++c) out[c] = number(in[c]);
      for (; c < whole; ++c) out[c] = 0;
    }
    return {room, whole};
  }

  // Asks for what a small tile will read, as it is too short for the machine to see where the rows lead.
  void ask(int64_t b, int h, PanelRange tile) const {
    const Panel &first = plan.panels[tile.first], &last = plan.panels[tile.last - 1];
    const Span& span = plan.span(tile.first, 0);
    for (int64_t i = first.row; i < last.row + last.count; ++i) {
      prefetch(row(call.q, b, i, h * C), C * sizeof(S));
      for (int d = 0; d < D; d += 64 / int(sizeof(S))) __builtin_prefetch(row(call.y, b, i, h * D + d), 1);
    }
    for (int64_t j = span.first; j < std::min(span.last, span.first + most); ++j) {
      prefetch(row(call.k, b, j, h * C), C * sizeof(S));
      prefetch(row(call.v, b, j, h * D), D * sizeof(S));
    }
  }

  // Scores of senders that a receiver does not listen to become -inf.
  template <int N>
  void mask(A* s, const Panel& panel, int64_t r, int64_t first, int64_t last) const {
    const Span& span = plan.span(&panel - plan.panels.data(), r);
    const int64_t whole = std::clamp(span.inner_first, first, last);
    const int64_t rest = std::max(whole, std::clamp(span.inner_last, first, last));
    if (whole == first && rest == last) return;
    alignas(64) A starts[N * W], stops[N * W];  // as numbers: whole ones below 2^24 are exact, others are cut to the span
    for (int i = 0; i < N * W; ++i) {
      const int64_t at = (panel.row + std::min(i, panel.count - 1)) * call.ranges + r;
      starts[i] = A(std::clamp(call.starts[at], first, last) - first);
      stops[i] = A(std::clamp(call.stops[at], first, last) - first);
    }
    for (int64_t j = first; j < last; j = j + 1 == whole ? rest : j + 1)
      for (int n = 0; n < N; ++n) {
        const Vector<A> at = all(A(j - first));
        A* of = s + (j - first) * N * W + n * W;
        const Whole<A> listens = (at >= load(starts + n * W)) & (at < load(stops + n * W));
        store(of, choose<A>(listens, load(of), all(-INFINITE)));
      }
  }

  // Adds the bias to scores, or writes the gradient of the scores where the bias lies. Pairs outside are left alone.
  template <int N, bool GRADIENT>
  void with_bias(int64_t b, int h, const Panel& panel, int64_t r, int64_t first, int64_t last, A* s) const {
    const Span& span = plan.span(&panel - plan.panels.data(), r);
    // Where all receivers listen, whole squares are turned at once.
    const int64_t inner = std::clamp(span.inner_first, first, last), inner_last = std::clamp(span.inner_last, inner, last);
    const int64_t rest = inner + (inner_last - inner) / W * W;
    for (int n = 0; n < N; ++n) {
      A* of[W];
      int64_t from[W], to[W];
      for (int i = 0; i < W; ++i) {
        const int lane = n * W + i;
        const int64_t at = (panel.row + std::min(lane, panel.count - 1)) * call.ranges + r;
        A* head = (GRADIENT ? dbias : (A*)call.bias + b * call.bias_batch_stride) + h * call.pairs;
        of[i] = head + call.places[at];
        from[i] = std::clamp(call.starts[at], first, last), to[i] = std::clamp(call.stops[at], from[i], last);
        if (lane >= panel.count) to[i] = GRADIENT ? from[i] : to[i];  // a lane beyond repeats the last receiver
      }
      for (int64_t j = inner; j < rest; j += W) {
        Vector<A> square[W];
        A* at = s + ((j - first) * N + n) * W;
        if constexpr (GRADIENT) {
#pragma GCC unroll 16
          for (int i = 0; i < W; ++i) square[i] = load(at + i * N * W);
          transpose<A>(square);
          for (int i = 0; i < std::min(W, panel.count - n * W); ++i)
            store(of[i] + j, adding ? load(of[i] + j) + square[i] : square[i]);
        } else {
#pragma GCC unroll 16
          for (int i = 0; i < W; ++i) square[i] = load(of[i] + j);
          transpose<A>(square);
#pragma GCC unroll 16
          for (int i = 0; i < W; ++i) store(at + i * N * W, load(at + i * N * W) + square[i] * A(TO_BASE<A>));
        }
      }
      for (int i = 0; i < W; ++i) {
        const auto one = [&](int64_t j) {
          A& at = s[((j - first) * N + n) * W + i];
          if constexpr (GRADIENT) of[i][j] = adding ? of[i][j] + at : at;
          else at += of[i][j] * A(TO_BASE<A>);
        };
        for (int64_t j = from[i]; j < std::min(to[i], inner); ++j) one(j);
        for (int64_t j = std::max(from[i], rest); j < to[i]; ++j) one(j);
      }
    }
  }

  // By what the weights of a panel's receivers for sender j are multiplied: `keep` or 0, hashed from both their numbers.
  template <int N>
  struct Kept {
    const Tiles& of;
    uint32_t key[N * W];

    Kept(const Tiles& of, int64_t b, int h, const Panel& panel) : of(of) {
      for (int i = 0; i < N * W; ++i) {
        const uint64_t row = uint64_t((b * of.call.heads + h) * of.call.receivers + panel.row + i);
        key[i] = of.dropout.hash(uint32_t(row), of.dropout.upper(row));
      }
    }
    Vector<A> operator()(int64_t j, int n) const {
      const uint32_t sender = of.dropout.first(uint32_t(j));
      if constexpr (sizeof(A) == sizeof(uint32_t)) {
        Bits<A> x;
        std::memcpy(&x, key + n * W, sizeof x);
        return choose<A>((Whole<A>)(Dropout::second(x ^ sender) >= of.dropout.threshold), all(of.keep), Vector<A>{});
      } else {
        Vector<A> found{};
        for (int i = 0; i < W; ++i)
          if (Dropout::second(key[n * W + i] ^ sender) >= of.dropout.threshold) found[i] = of.keep;
        return found;
      }
    }
  };

  // ---- forward

  struct Softmax {
    A *q, *y, *top, *total;  // of a panel: [C, lanes], [D, lanes], [lanes], [lanes]
  };

  template <int N>
  void begin(int64_t b, int h, const Panel& panel, const Softmax& of) const {
    to_lanes<N, S>(rows(call.q, b, panel.row, h * C), panel.count, C, A(call.scale * TO_BASE<A>), of.q);
    for (int i = 0; i < N * W; ++i) of.top[i] = LOWEST, of.total[i] = 0;
    for (int i = 0; i < D * N * W; ++i) of.y[i] = 0;
  }

  template <int N>
  void listen(int64_t b, int h, const Panel& panel, int64_t r, int64_t first, int64_t last, Rows k, Rows v,
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
      const Kept<N> kept(*this, b, h, panel);
      for (int64_t j = 0; j < count; ++j)
        for (int n = 0; n < N; ++n) store(s + (j * N + n) * W, load(s + (j * N + n) * W) * kept(first + j, n));
    }
    multiply<A, N, Start::SHRINK, true>(v.x, v.stride, D, s, N * W, count, of.y, N * W, shrink);
  }

  template <int N>
  void finish(int64_t b, int h, const Panel& panel, const Softmax& of) const {
    Vector<A> inverse[N];
    alignas(64) A lse[N * W];
    for (int n = 0; n < N; ++n) {
      const Vector<A> total = load(of.total + n * W);
      const Whole<A> nothing = total == Vector<A>{};
      inverse[n] = choose<A>(nothing, Vector<A>{}, 1 / total);
      store(lse + n * W, choose<A>(nothing, all(INFINITE), load(of.top + n * W) + logarithm(total) * A(TO_BASE<A>)));
    }
    from_lanes<N, S>(of.y, inverse, panel.count, D, rows(call.y, b, panel.row, h * D));
    A* kept = (A*)call.lse + (b * call.heads + h) * call.receivers + panel.row;
    std::copy_n(lse, panel.count, kept);
  }

  void forward(int64_t b, int h, PanelRange tile) {
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
          panel.vectors == 2 ? listen<2>(b, h, panel, r, from, to, some_k, some_v, of[n], s)
                             : listen<1>(b, h, panel, r, from, to, some_k, some_v, of[n], s);
        }
      }
    }
    for (int64_t n = 0; n < panels; ++n) {
      const Panel& panel = plan.panels[tile.first + n];
      panel.vectors == 2 ? finish<2>(b, h, panel, of[n]) : finish<1>(b, h, panel, of[n]);
    }
  }

  // ---- backward

  struct Gradient {
    A *q, *dy, *dq, *lse, *delta;  // of a panel: [C, lanes], [D, lanes], [C, lanes], [lanes], [lanes]
  };

  int64_t gradient_room() const { return 2 * W * (2 * C + D + 2) + 64; }
  int64_t partial_room() const { return 2 * W * C; }

  template <int N>
  void prepare(int64_t b, int h, const Panel& panel, const Gradient& of) const {
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

  template <int N>
  void respond(int64_t b, int h, const Panel& panel, int64_t r, int64_t first, int64_t last, Rows k, Rows v,
               const Gradient& of, A* s, A* ds, A* dk, A* dv, A* q_room, A* dy_room) const {
    const int64_t count = last - first;
    multiply<A, N, Start::ZERO, false>(k.x, k.stride, count, of.q, N * W, C, s, N * W);
    multiply<A, N, Start::ZERO, false>(v.x, v.stride, count, of.dy, N * W, D, ds, N * W);
    if (call.bias) with_bias<N, false>(b, h, panel, r, first, last, s);
    mask<N>(s, panel, r, first, last);
    Vector<A> lse[N], delta[N];
    for (int n = 0; n < N; ++n) lse[n] = load(of.lse + n * W), delta[n] = load(of.delta + n * W);
    const auto weights = [&](const auto& kept) EDGEWISE_INLINE_LAMBDA {
      for (int64_t j = 0; j < count; ++j)
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
          const int64_t at = (j * N + n) * W;
          const Vector<A> p = power(load(s + at) - lse[n]), d = load(ds + at);
          if constexpr (std::is_same_v<std::decay_t<decltype(kept)>, Kept<N>>) {
            const Vector<A> factor = kept(first + j, n);
            store(s + at, p * factor);
            store(ds + at, p * (d * factor - delta[n]));
          } else {
            store(s + at, p);
            store(ds + at, p * (d - delta[n]));
          }
        }
    };
    call.dropout > 0 ? weights(Kept<N>(*this, b, h, panel)) : weights(nullptr);
    if (dbias) with_bias<N, true>(b, h, panel, r, first, last, ds);
    multiply<A, N, Start::ADD, true>(k.x, k.stride, C, ds, N * W, count, of.dq, N * W);
    const Rows dy = read(call.dy, b, panel.row, panel.count, h * D, D, D % W == 0, dy_room);
    add_product<A>(s, N * W, count, dy.x, dy.stride, panel.count, dv, D_whole);
    const Rows q = read(call.q, b, panel.row, panel.count, h * C, C, C % W == 0, q_room);
    add_product<A>(ds, N * W, count, q.x, q.stride, panel.count, dk, C_whole);
  }

  void write(const A* x, int whole, int64_t count, int width, A factor, const Matrix& out, int64_t b, int64_t n,
             int64_t from) const {
    for (int64_t i = 0; i < count; ++i) {
      S* to = row(out, b, n + i, from);
      for (int c = 0; c < width; ++c) put(to + c, x[i * whole + c] * factor);
    }
  }

  void write_dq(int64_t b, int h, const Panel& panel, const A* dq) const {
    const Vector<A> scale[2] = {all(A(call.scale)), all(A(call.scale))};
    const auto out = rows(call.dq, b, panel.row, h * C);
    panel.vectors == 2 ? from_lanes<2, S>(dq, scale, panel.count, C, out) : from_lanes<1, S>(dq, scale, panel.count, C, out);
  }

  void backward(int64_t b, int h, const Piece& piece, const std::vector<SenderTile>& tiles, A* partials) {
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
          panel.vectors == 2
              ? respond<2>(b, h, panel, r, from, to, some_k, some_v, of, s, ds, some_dk, some_dv, q_room, dy_room)
              : respond<1>(b, h, panel, r, from, to, some_k, some_v, of, s, ds, some_dk, some_dv, q_room, dy_room);
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
};

// Calls run(tiles, n) for n = 0 .. count - 1, with one `Tiles` for each thread.
template <class S, class Run>
void with_tiles(const Tiling& call, const Plan& plan, int64_t count, const Run& run) {
  std::vector<std::unique_ptr<Tiles<S>>> own(std::max(1, call.threads));
  over_items(call.threads, count, [&](int64_t n, int thread) {
    if (!own[thread]) own[thread] = std::make_unique<Tiles<S>>(call, plan);
    run(*own[thread], n);
  });
}

inline int64_t pairs_in_tiles(const Tiling& call) {
  const Plan plan(call, lanes<float>, PANELS);
  int64_t work = 0;
  for (const Group& group : plan.groups) work += group.work;
  return work * lanes<float>;
}

template <class S>
void attend_tiles(const Tiling& call) {
  const Plan plan(call, lanes<Sum<S>>, PANELS);
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
        if (t + 1 < share.last) some.ask(item / count, h, plan.tiles[t + 1]);
        some.forward(item / count, h, plan.tiles[t]);
      }
  });
}

template <class S>
void attend_tiles_gradient(const Tiling& call) {
  using A = Sum<S>;
  const Plan plan(call, lanes<A>, PANELS);
  const BackwardPlan backward(call, plan, Tiles<S>::backward_step(call));
  const std::vector<Share> shares = shared_out(call.heads, int64_t(backward.pieces.size()),
                                               [&](int64_t n) { return backward.pieces[n].work; });
  const int64_t heads = call.heads, count = int64_t(shares.size());
  const int64_t room = 2 * lanes<A> * call.channels;
  std::unique_ptr<A[]> partials(new A[call.batch * heads * backward.partials * room]);
  for (int64_t b = 0; b < call.batch; ++b) {  // senders that nobody listens to
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
  // dq of a panel: the sum over pieces, in their order.
  with_tiles<S>(call, plan, int64_t(plan.panels.size()), [&](Tiles<S>& some, int64_t panel) {
    A* sum = some.start(room + 64);
    for (int64_t item = 0; item < call.batch * heads; ++item) {
      bool any = false;
      for (const Piece& piece : backward.pieces) {
        if (piece.partial < 0 || panel < piece.first_panel || panel >= piece.last_panel) continue;
        const A* part = partials.get() + (item * backward.partials + piece.partial + panel - piece.first_panel) * room;
        for (int64_t n = 0; n < room; ++n) sum[n] = any ? sum[n] + part[n] : part[n];
        any = true;
      }
      if (any) some.write_dq(item / heads, int(item % heads), plan.panels[panel], sum);
    }
  });
}

}  // namespace edgewise::EDGEWISE_ISA
