// Products of one row with many and weighted sums of rows, head by head, as many at once as fill a vector.
#pragma once

#include <algorithm>

#include "rows.hpp"

namespace edgewise::EDGEWISE_ISA {

// A row of each edge: number index[e] of those at x, the one AHEAD of which is prefetched; or number e where there is no index.
template <class A>
struct EdgeRows {
  const A* x;
  int64_t stride;
  const int32_t* index = nullptr;
  int64_t last = 0;  // edge that has an index
  size_t bytes = 0;  // to be prefetched

  EDGEWISE_INLINE const A* operator()(int64_t e) const {
    if (!index) return x + e * stride;
    prefetch(x + index[std::min(e + AHEAD, last)] * stride, bytes);
    return x + index[e] * stride;
  }
};

// One end's own_h, which lies at own + h own_apart, and of every edge e the x_eh at rows(e) + h apart, of C numbers each.
template <class A>
struct Operand {
  const A* own;
  int own_apart;
  EdgeRows<A> rows;
  int apart, C;

  // Adds the products of the heads from h of edge e on, of which `left` follow, to a vector for each.
  EDGEWISE_INLINE void add(int64_t e, int h, int64_t left, int H, Vector<A>* total) const {
    constexpr int W = lanes<A>;
    const A *x[W], *y[W], *from = rows(e);
#pragma GCC unroll 16
    for (int k = 0; k < W; ++k) {
      x[k] = own + h * own_apart, y[k] = from + h * apart;
      if (k + 1 < left && ++h == H) h = 0, from = rows(++e);
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
    for (int k = 0; k < EDGES; ++k) y[k] = rows(std::min(e + k, edges - 1));
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
EDGEWISE_APART void dots_of_group(int64_t edges, A* out, Operands... operands) {
  constexpr int W = lanes<A>, EDGES = W / G;
  for (int64_t e = 0; e < edges; e += EDGES) {
    Vector<A> total[W] = {};
    (operands.template add_edges<G>(e, edges, total), ...);
    const Vector<A> sums = sums_across<A>(total);
    if ((edges - e) * G >= W) store(out + e * G, sums);  // beyond EDGES, 0 where the next products will be
    else store_some<A>(out + e * G, int(std::min<int64_t>(EDGES, edges - e)) * G, sums);
  }
}

// out[e, h] = Σ own_h · x_eh over the operands, for every head of some edges. Common numbers of heads are written out for floats.
template <class A, class... Operands>
EDGEWISE_APART void dots_of_heads(int64_t edges, int H, A* out, Operands... operands) {
  constexpr int W = lanes<A>;
  if (H == 1) return dots_of_group<A, 1>(edges, out, operands...);
  if constexpr (std::is_same_v<A, float>) {
    if (H == 2) return dots_of_group<A, 2>(edges, out, operands...);
    if (H == 3) return dots_of_group<A, 3>(edges, out, operands...);
    if (H == 4) return dots_of_group<A, 4>(edges, out, operands...);
    if constexpr (W >= 8) {
      if (H == 6) return dots_of_group<A, 6>(edges, out, operands...);
      if (H == 8) return dots_of_group<A, 8>(edges, out, operands...);
    }
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

// Σ_e w_eh x_eh of B vectors. Where each head has EACH of them, they follow each other, or are those of one head, SHARED by all;
// else the n-th is one of head[n], `from[n]` behind the row's start, of which `width[n]` numbers count.
template <class A, int B, int EACH, bool SHARED>
EDGEWISE_INLINE void sums_of_cells(const EdgeRows<A>& weights, const EdgeRows<A>& rows, int64_t edges, const int* head, const int* from,
                                   const int* width, Vector<A>* total) {
  for (int64_t e = 0; e < edges; ++e) {
    const A *const w = weights(e), *const x = rows(e);
#pragma GCC unroll 8
    for (int k = 0; k < B; ++k) {
      if constexpr (EACH) total[k] += all(w[k / EACH]) * load(x + (SHARED ? k % EACH : k) * lanes<A>);
      else total[k] += all(w[head[k]]) * load_part(x + from[k], width[k]);
    }
  }
}

// out_h = Σ_e w_eh x_eh at out + h out_apart. w_e are the rows of weights, x_eh lies h apart in the rows; all heads share a row's
// numbers if apart is 0. EACH is the number of a head's vectors, all whole, where it is known when this is compiled, and else 0.
template <class A, int EACH, bool SHARED>
EDGEWISE_APART void sums_of_some(const EdgeRows<A>& weights, const EdgeRows<A>& rows, int apart, int64_t edges, int H, int C, A* out,
                                 int out_apart) {
  constexpr int W = lanes<A>;
  const int each = EACH ? EACH : (C + W - 1) / W, cells = H * each;
  int done = 0;
  const auto run = [&](auto vectors) EDGEWISE_INLINE_LAMBDA {
    constexpr int B = decltype(vectors)::value;
    Vector<A> total[B] = {};
    int head[B], from[B], width[B];
    for (int k = 0; EACH == 0 && k < B; ++k) {
      const int c = (done + k) % each * W;
      head[k] = (done + k) / each, from[k] = head[k] * apart + c, width[k] = C - c;
    }
    EdgeRows<A> own_weights = weights, own_rows = rows;
    if constexpr (EACH) own_weights.x += done / EACH, own_rows.x += done / EACH * apart;
    sums_of_cells<A, B, EACH, SHARED>(own_weights, own_rows, edges, head, from, width, total);
    for (int k = 0; k < B; ++k, ++done) {
      const int c = done % each * W;
      store_some<A>(out + done / each * out_apart + c, std::min(C - c, W), total[k]);
    }
  };
  while (cells - done >= 8) run(std::integral_constant<int, 8>{});
  if (std::is_same_v<A, float> && cells - done >= 6) run(std::integral_constant<int, 6>{});
  if (cells - done >= 4) run(std::integral_constant<int, 4>{});
  if (std::is_same_v<A, float> && cells - done == 3) run(std::integral_constant<int, 3>{});
  while (cells - done >= 2) run(std::integral_constant<int, 2>{});
  if (cells - done == 1) run(std::integral_constant<int, 1>{});
}

template <class A>
void sums_of_heads(const EdgeRows<A>& weights, const EdgeRows<A>& rows, int apart, int64_t edges, int H, int C, A* out, int out_apart) {
  constexpr int W = lanes<A>;
  if constexpr (std::is_same_v<A, float>) {
    if (apart == 0 && C == W) return sums_of_some<A, 1, true>(weights, rows, apart, edges, H, C, out, out_apart);
    if (apart == C && C == W) return sums_of_some<A, 1, false>(weights, rows, apart, edges, H, C, out, out_apart);
    if (apart == 0 && C == 2 * W) return sums_of_some<A, 2, true>(weights, rows, apart, edges, H, C, out, out_apart);
    if (apart == C && C == 2 * W) return sums_of_some<A, 2, false>(weights, rows, apart, edges, H, C, out, out_apart);
  }
  sums_of_some<A, 0, false>(weights, rows, apart, edges, H, C, out, out_apart);
}

}  // namespace edgewise::EDGEWISE_ISA
