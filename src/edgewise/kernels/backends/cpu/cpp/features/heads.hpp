// Rows of several heads, each by a matrix of its own, in the order that rows have: no head is moved next to its like.
#pragma once

#include "matrix_products.hpp"
#include "memory.hpp"
#include "network/packed.hpp"

namespace edgewise::EDGEWISE_ISA {

// Rows of several heads: head h of row n is at + n stride + h apart.
template <class A>
struct HeadRows {
  A* at;
  int64_t stride;
  int apart;
};

// y_h (+)= x_h M_h for every head of some rows; a matrix has m rows of n columns, whole vectors apart.
template <class A, Start START>
void rows_by_heads(HeadRows<const A> x, int64_t rows, int H, const A* matrices, int m, int n, HeadRows<A> y) {
  constexpr int W = lanes<A>;
  const int wide = whole<A>(n);
  Numbers<A> room(n % W ? size_t(rows) * W : 0);
  for (int h = 0; h < H; ++h)
    for (int c = 0; c < n; c += W) {
      const bool whole = c + W <= n;
      A* const out = y.at + int64_t(h) * y.apart + c;
      const A *const from = x.at + int64_t(h) * x.apart, *const matrix = matrices + size_t(h) * m * wide + c;
      if (whole) multiply<A, 1, START, false>(from, x.stride, rows, matrix, wide, m, out, y.stride);
      else multiply<A, 1, Start::ZERO, false>(from, x.stride, rows, matrix, wide, m, room.data(), W);
      for (int64_t row = 0; !whole && row < rows; ++row)
        for (int k = 0; k < n - c; ++k) {
          A& number = out[row * y.stride + k];
          number = START == Start::ZERO ? room[row * W + k] : number + room[row * W + k];
        }
    }
}

// M_h (+)= Σ x_hᵀ y_h over some rows, of m and n numbers; its rows are whole vectors apart.
template <class A, Start START>
void sums_by_heads(HeadRows<const A> x, HeadRows<const A> y, int64_t rows, int H, int m, int n, A* matrices) {
  constexpr int W = lanes<A>;
  const int wide = whole<A>(n);
  Numbers<A> room(n % W ? size_t(rows) * W : 0);
  for (int h = 0; h < H; ++h)
    for (int c = 0; c < n; c += W) {
      const bool whole = c + W <= n;
      const A* const from = y.at + int64_t(h) * y.apart + c;
      for (int64_t row = 0; !whole && row < rows; ++row) std::memcpy(room.data() + row * W, from + row * y.stride, (n - c) * sizeof(A));
      multiply<A, 1, START, true>(x.at + int64_t(h) * x.apart, x.stride, m, whole ? from : room.data(), whole ? y.stride : W, rows,
                                  matrices + size_t(h) * m * wide + c, wide);
    }
}

}  // namespace edgewise::EDGEWISE_ISA
