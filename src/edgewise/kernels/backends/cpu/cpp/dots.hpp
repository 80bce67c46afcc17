// Products of one row with many, head by head, as many at once as fill a vector.
#pragma once

#include <algorithm>

#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class A>
EDGEWISE_INLINE Vector<A> load_part(const A* p, int count) {  // a whole vector where there is one
  return count >= lanes<A> ? load(p) : load_some(p, count);
}

// One end's own_h, which lies at own + h own_apart, and of every edge e the x_eh at x_of(e) + h apart, of C numbers each.
template <class A, class Row>
struct Operand {
  const A* own;
  int own_apart;
  Row x_of;
  int apart, C;

  // Adds the products of the heads from h of edge e on, of which `left` follow, to a vector for each.
  EDGEWISE_INLINE void add(int64_t e, int h, int64_t left, int H, Vector<A>* total) const {
    constexpr int W = lanes<A>;
    const A *x[W], *y[W], *from = x_of(e);
#pragma GCC unroll 16
    for (int k = 0; k < W; ++k) {
      x[k] = own + h * own_apart, y[k] = from + h * apart;
      if (k + 1 < left && ++h == H) h = 0, from = x_of(++e);
    }
    for (int c = 0; c < C; c += W)
#pragma GCC unroll 16
      for (int k = 0; k < W; ++k) total[k] += load_part(x[k] + c, C - c) * load_part(y[k] + c, C - c);
  }

  // The same for all G heads of as many edges from e on as a vector holds; the last is repeated beyond the end.
  template <int G>
  EDGEWISE_INLINE void add_edges(int64_t e, int64_t edges, Vector<A>* total) const {
    constexpr int W = lanes<A>, EDGES = W / G;
    const A* y[EDGES];
#pragma GCC unroll 16
    for (int k = 0; k < EDGES; ++k) y[k] = x_of(std::min(e + k, edges - 1));
    const auto add = [&](int c, const auto& get) EDGEWISE_INLINE_LAMBDA {
#pragma GCC unroll 16
      for (int k = 0; k < EDGES * G; ++k) total[k] += get(own + k % G * own_apart + c) * get(y[k / G] + k % G * apart + c);
    };
    int c = 0;
    for (; c + W <= C; c += W) add(c, [](const A* p) EDGEWISE_INLINE_LAMBDA { return load(p); });
    if (c < C) add(c, [left = C - c](const A* p) EDGEWISE_INLINE_LAMBDA { return load_some(p, left); });
  }
};

template <class A, int G, class... Operands>
EDGEWISE_INLINE void dots_of_group(int64_t edges, A* out, const Operands&... operands) {
  constexpr int W = lanes<A>, EDGES = W / G;
  for (int64_t e = 0; e < edges; e += EDGES) {
    Vector<A> total[W] = {};
    (operands.template add_edges<G>(e, edges, total), ...);
    const Vector<A> sums = sums_across<A>(total);
    if ((edges - e) * G >= W) store(out + e * G, sums);  // beyond EDGES, 0 where the next products will be
    else store_some<A>(out + e * G, int(std::min<int64_t>(EDGES, edges - e)) * G, sums);
  }
}

// out[e, h] = Σ own_h · x_eh over the operands, for every head of some edges, as many at once as fill a vector.
template <class A, class... Operands>
EDGEWISE_INLINE void dots_of_heads(int64_t edges, int H, A* out, const Operands&... operands) {
  constexpr int W = lanes<A>;
  if (H == 1) return dots_of_group<A, 1>(edges, out, operands...);
  if (H == 2) return dots_of_group<A, 2>(edges, out, operands...);
  if constexpr (W >= 4) {
    if (H == 3) return dots_of_group<A, 3>(edges, out, operands...);
    if (H == 4) return dots_of_group<A, 4>(edges, out, operands...);
  }
  if constexpr (W >= 8) {
    if (H == 6) return dots_of_group<A, 6>(edges, out, operands...);
    if (H == 8) return dots_of_group<A, 8>(edges, out, operands...);
  }
  if constexpr (W >= 16) {
    if (H == 12) return dots_of_group<A, 12>(edges, out, operands...);
    if (H == 16) return dots_of_group<A, 16>(edges, out, operands...);
  }
  const int64_t count = edges * H;
  int64_t e = 0;
  int h = 0;
  for (int64_t n = 0; n < count; n += W) {
    Vector<A> total[W] = {};
    (operands.add(e, h, count - n, H, total), ...);
    const Vector<A> sums = sums_across<A>(total);
    if (n + W <= count) store(out + n, sums);
    else store_some<A>(out + n, int(count - n), sums);
    for (h += W; h >= H; h -= H) ++e;
  }
}

template <class A, class Row>
EDGEWISE_INLINE void dots_of_heads(const A* own, const Row& x_of, int apart, int64_t edges, int H, int C, A* out) {
  dots_of_heads<A>(edges, H, out, Operand<A, Row>{own, C, x_of, apart, C});
}

// Some head's columns in a row of heads: a vector `from` the row's start on, of which `width` numbers are the head's.
struct Cell {
  int head, from, width;
};

// Σ_e w_eh x_eh of B cells, the k-th of which is cell_of(k).
template <class A, int B, bool Whole, class Weight, class Row, class Cells>
EDGEWISE_INLINE void sums_of_cells(const Weight& weight_of, const Row& x_of, int64_t edges, const Cells& cell_of, Vector<A>* total) {
  for (int64_t e = 0; e < edges; ++e) {
    const A *const w = weight_of(e), *const x = x_of(e);
#pragma GCC unroll 8
    for (int k = 0; k < B; ++k) {
      const Cell cell = cell_of(k);
      total[k] += all(w[cell.head]) * (Whole ? load(x + cell.from) : load_part(x + cell.from, cell.width));
    }
  }
}

// out_h = Σ_e w_eh x_eh at out + h out_apart. w_e lies at weight_of(e), x_eh at x_of(e) + h apart; all heads share a row's numbers
// if apart is 0. EACH is the number of a head's vectors, all whole, where it is known when this is compiled, and else 0.
template <class A, int EACH, class Weight, class Row>
EDGEWISE_INLINE void sums_of_some(const Weight& weight_of, const Row& x_of, int apart, int64_t edges, int H, int C, A* out,
                                  int out_apart) {
  constexpr int W = lanes<A>;
  const int each = EACH ? EACH : (C + W - 1) / W, cells = H * each;
  int done = 0;
  const auto cell_of = [&](int k) EDGEWISE_INLINE_LAMBDA {
    const int head = k / each, c = k % each * W;
    return Cell{head, head * apart + c, C - c};
  };
  const auto run = [&](auto vectors) EDGEWISE_INLINE_LAMBDA {
    constexpr int B = decltype(vectors)::value;
    Vector<A> total[B] = {};
    if constexpr (EACH) {
      const int head = done / EACH, from = head * apart;
      const auto weight = [&, head](int64_t e) EDGEWISE_INLINE_LAMBDA { return weight_of(e) + head; };
      const auto x = [&, from](int64_t e) EDGEWISE_INLINE_LAMBDA { return x_of(e) + from; };
      const auto own = [=](int k) EDGEWISE_INLINE_LAMBDA { return Cell{k / EACH, k * W, W}; };
      const auto shared = [=](int k) EDGEWISE_INLINE_LAMBDA { return Cell{k / EACH, k % EACH * W, W}; };
      if (apart) sums_of_cells<A, B, true>(weight, x, edges, own, total);
      else sums_of_cells<A, B, true>(weight, x, edges, shared, total);
    } else {
      Cell some[B];
      for (int k = 0; k < B; ++k) some[k] = cell_of(done + k);
      const auto known = [&](int k) EDGEWISE_INLINE_LAMBDA { return some[k]; };
      if (C % W == 0) sums_of_cells<A, B, true>(weight_of, x_of, edges, known, total);
      else sums_of_cells<A, B, false>(weight_of, x_of, edges, known, total);
    }
    for (int k = 0; k < B; ++k, ++done) {
      const int c = done % each * W;
      store_some<A>(out + done / each * out_apart + c, std::min(C - c, W), total[k]);
    }
  };
  while (cells - done >= 8) run(std::integral_constant<int, 8>{});
  if (cells - done >= 6) run(std::integral_constant<int, 6>{});
  else if (cells - done >= 4) run(std::integral_constant<int, 4>{});
  if (cells - done == 3) run(std::integral_constant<int, 3>{});
  else if (cells - done == 2) run(std::integral_constant<int, 2>{});
  else if (cells - done == 1) run(std::integral_constant<int, 1>{});
}

template <class A, class Weight, class Row>
EDGEWISE_INLINE void sums_of_heads(const Weight& weight_of, const Row& x_of, int apart, int64_t edges, int H, int C, A* out,
                                   int out_apart) {
  constexpr int W = lanes<A>;
  const bool known = apart == 0 || apart == C;
  if (known && C == W) sums_of_some<A, 1>(weight_of, x_of, apart, edges, H, C, out, out_apart);
  else if (known && C == 2 * W) sums_of_some<A, 2>(weight_of, x_of, apart, edges, H, C, out, out_apart);
  else sums_of_some<A, 0>(weight_of, x_of, apart, edges, H, C, out, out_apart);
}

}  // namespace edgewise::EDGEWISE_ISA
