// Products of one row with many, head by head, as many at once as fill a vector.
#pragma once

#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class A>
EDGEWISE_INLINE Vector<A> load_part(const A* p, int count) {  // a whole vector where there is one
  return count >= lanes<A> ? load(p) : load_some(p, count);
}

// out[e, h] = own_h · x_eh of C numbers for every head of n edges, as many at once as fill a vector. own_h lies at own + h C,
// x_eh at x(e) + h · apart.
template <class A, class Row>
EDGEWISE_INLINE void dots_of_heads(const A* own, const Row& x_of, int apart, int64_t edges, int H, int C, A* out) {
  constexpr int W = lanes<A>;
  const int64_t count = edges * H;
  int64_t e = 0;
  int h = 0;
  const A* from = edges ? x_of(0) : nullptr;
  for (int64_t n = 0; n < count; n += W) {
    const A *x[W], *y[W];
    Vector<A> total[W];
#pragma GCC unroll 16
    for (int k = 0; k < W; ++k) {
      x[k] = own + h * C, y[k] = from + h * apart;
      if (n + k + 1 < count && ++h == H) h = 0, from = x_of(++e);
    }
#pragma GCC unroll 16
    for (int k = 0; k < W; ++k) total[k] = load_part(x[k], C) * load_part(y[k], C);
    for (int c = W; c < C; c += W)
#pragma GCC unroll 16
      for (int k = 0; k < W; ++k) total[k] += load_part(x[k] + c, C - c) * load_part(y[k] + c, C - c);
    const Vector<A> sums = sums_across<A>(total);
    if (n + W <= count) store(out + n, sums);
    else store_some<A>(out + n, int(count - n), sums);
  }
}

}  // namespace edgewise::EDGEWISE_ISA
