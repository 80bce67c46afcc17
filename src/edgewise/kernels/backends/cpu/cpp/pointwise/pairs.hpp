// Inner products of pairs of rows, and their gradient to the rows.
#pragma once

#include <algorithm>

#include "dots.hpp"
#include "parallel.hpp"
#include "pointwise/table.hpp"
#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

// out_p = Σ_c x[first_p] z[second_p], as many pairs at once as fill a vector.
template <class A>
void pair_dots(const Pairing& call) {
  constexpr int W = lanes<A>;
  constexpr int64_t piece = 1024;
  const int C = int(call.columns);
  over_items(call.threads, (call.pairs + piece - 1) / piece, [&](int64_t item, int) {
    const int64_t stop = std::min(call.pairs, (item + 1) * piece);
    for (int64_t p = item * piece; p < stop; p += W) {
      const A *x[W], *z[W];
      Vector<A> total[W];
#pragma GCC unroll 16
      for (int k = 0; k < W; ++k) {
        const int64_t at = std::min(p + k, stop - 1);
        x[k] = (const A*)call.x + call.first[at] * C, z[k] = (const A*)call.z + call.second[at] * C;
        total[k] = load_part(x[k], C) * load_part(z[k], C);
      }
      for (int c = W; c < C; c += W)
#pragma GCC unroll 16
        for (int k = 0; k < W; ++k) total[k] += load_part(x[k] + c, C - c) * load_part(z[k] + c, C - c);
      const Vector<A> sums = sums_across<A>(total);
      if (p + W <= stop) store((A*)call.out + p, sums);
      else store_some<A>((A*)call.out + p, int(stop - p), sums);
    }
  });
}

// out[first_p] += g_p z[second_p], the pairs of a row in their order. Each thread has rows of its own, and reads all pairs.
template <class A>
void pair_spread(const Pairing& call) {
  constexpr int W = lanes<A>;
  const int C = int(call.columns), parts = std::max(1, usable_threads(call.threads));
  over_items(call.threads, parts, [&](int64_t part, int) {
    const int64_t from = call.rows * part / parts, to = call.rows * (part + 1) / parts;
    for (int64_t p = 0; p < call.pairs; ++p) {
      const int64_t row = call.first[p];
      if (row < from || row >= to) continue;
      const A* z = (const A*)call.z + call.second[p] * C;
      A* y = (A*)call.out + row * C;
      const Vector<A> g = all(((const A*)call.g)[p]);
      int c = 0;
      for (; c + W <= C; c += W) store(y + c, load(y + c) + g * load(z + c));
      if (c < C) store_some<A>(y + c, C - c, load_some(y + c, C - c) + g * load_some(z + c, C - c));
    }
  });
}

}  // namespace edgewise::EDGEWISE_ISA
