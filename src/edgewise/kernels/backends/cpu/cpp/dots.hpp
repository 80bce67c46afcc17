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

  // The same for all G heads of the edges from e on that fill a vector; the last is repeated beyond the end.
  template <int G>
  EDGEWISE_INLINE void add_edges(int64_t e, int64_t edges, Vector<A>* total) const {
    constexpr int W = lanes<A>;
    const A* y[W / G];
#pragma GCC unroll 16
    for (int k = 0; k < W / G; ++k) y[k] = x_of(std::min(e + k, edges - 1));
    const auto add = [&](int c, const auto& get) EDGEWISE_INLINE_LAMBDA {
#pragma GCC unroll 16
      for (int k = 0; k < W; ++k) total[k] += get(own + k % G * own_apart + c) * get(y[k / G] + k % G * apart + c);
    };
    int c = 0;
    for (; c + W <= C; c += W) add(c, [](const A* p) EDGEWISE_INLINE_LAMBDA { return load(p); });
    if (c < C) add(c, [left = C - c](const A* p) EDGEWISE_INLINE_LAMBDA { return load_some(p, left); });
  }
};

template <class A, int G, class... Operands>
EDGEWISE_INLINE void dots_of_group(int64_t edges, A* out, const Operands&... operands) {
  constexpr int W = lanes<A>;
  for (int64_t e = 0; e < edges; e += W / G) {
    Vector<A> total[W] = {};
    (operands.template add_edges<G>(e, edges, total), ...);
    const Vector<A> sums = sums_across<A>(total);
    if (e + W / G <= edges) store(out + e * G, sums);
    else store_some<A>(out + e * G, int(edges - e) * G, sums);
  }
}

// out[e, h] = Σ own_h · x_eh over the operands, for every head of some edges, as many at once as fill a vector.
template <class A, class... Operands>
EDGEWISE_INLINE void dots_of_heads(int64_t edges, int H, A* out, const Operands&... operands) {
  constexpr int W = lanes<A>;
  if (H == 1) return dots_of_group<A, 1>(edges, out, operands...);
  if (H == 2) return dots_of_group<A, 2>(edges, out, operands...);
  if constexpr (W >= 4)
    if (H == 4) return dots_of_group<A, 4>(edges, out, operands...);
  if constexpr (W >= 8)
    if (H == 8) return dots_of_group<A, 8>(edges, out, operands...);
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

// out_h = Σ_e w_eh x_eh at out + h out_apart: B vectors, each of some head's columns, from `cell` on. w_e lies at weight_of(e),
// x_eh at x_of(e) + h apart.
template <class A, int B, bool Whole, class Weight, class Row>
EDGEWISE_INLINE void some_sums(const Weight& weight_of, const Row& x_of, int apart, int64_t edges, int C, int cell, A* out,
                               int out_apart) {
  constexpr int W = lanes<A>;
  const int each = (C + W - 1) / W;
  int head[B], from[B], to[B], width[B];
  for (int k = 0; k < B; ++k) {
    head[k] = (cell + k) / each;
    const int c = (cell + k) % each * W;
    from[k] = head[k] * apart + c, to[k] = head[k] * out_apart + c, width[k] = Whole ? W : C - c;
  }
  Vector<A> total[B] = {};
  for (int64_t e = 0; e < edges; ++e) {
    const A *const w = weight_of(e), *const x = x_of(e);
#pragma GCC unroll 8
    for (int k = 0; k < B; ++k) total[k] += all(w[head[k]]) * (Whole ? load(x + from[k]) : load_part(x + from[k], width[k]));
  }
  for (int k = 0; k < B; ++k) store_some<A>(out + to[k], std::min(width[k], W), total[k]);
}

template <class A, class Weight, class Row>
EDGEWISE_INLINE void sums_of_heads(const Weight& weight_of, const Row& x_of, int apart, int64_t edges, int H, int C, A* out,
                                   int out_apart) {
  constexpr int W = lanes<A>;
  const int cells = H * ((C + W - 1) / W);
  const auto sums = [&](auto whole) EDGEWISE_INLINE_LAMBDA {
    int cell = 0;
    const auto run = [&](auto vectors) EDGEWISE_INLINE_LAMBDA {
      some_sums<A, decltype(vectors)::value, whole.value>(weight_of, x_of, apart, edges, C, cell, out, out_apart);
      cell += decltype(vectors)::value;
    };
    while (cells - cell >= 4) run(std::integral_constant<int, 4>{});
    if (cells - cell == 3) run(std::integral_constant<int, 3>{});
    else if (cells - cell == 2) run(std::integral_constant<int, 2>{});
    else if (cells - cell == 1) run(std::integral_constant<int, 1>{});
  };
  if (C % W == 0) sums(std::true_type{});
  else sums(std::false_type{});
}

}  // namespace edgewise::EDGEWISE_ISA
