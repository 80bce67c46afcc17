// Rows of several heads, each by a matrix of its own, in the order that rows have: no head is moved next to its like.
#pragma once

#include <vector>

#include "features/table.hpp"
#include "matrix_products.hpp"
#include "memory.hpp"
#include "network/packed.hpp"
#include "parallel.hpp"

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

// Some rows at a time, the same at any number of threads.
template <class A>
struct ByHead {
  const Heads& call;
  const int H, C, R, wide;
  const int64_t each = std::max<int64_t>(256, call.rows / 256), parts = (call.rows + each - 1) / each;

  explicit ByHead(const Heads& call)
      : call(call), H(call.heads), C(call.inputs), R(call.outputs), wide(whole<A>(R)) {}

  // Calls part(n, first, count) for the rows.
  template <class Part>
  void over_rows(const Part& part) const {
    over_items(call.threads, parts, [&](int64_t n, int) { part(n, n * each, std::min(each, call.rows - n * each)); });
  }

  const A* x(int64_t row) const { return (const A*)call.x + row * H * C; }
  A* y(int64_t row) const { return (A*)call.y + row * H * R; }

  // y_h = x_h W_h.
  void product() const {
    Numbers<A> weight(size_t(H) * C * wide);  // its rows are whole vectors
    for (int64_t n = 0; n < int64_t(H) * C; ++n) std::memcpy(weight.data() + n * wide, (const A*)call.weight + n * R, R * sizeof(A));
    over_rows([&](int64_t, int64_t first, int64_t count) {
      rows_by_heads<A, Start::ZERO>({x(first), int64_t(H) * C, C}, count, H, weight.data(), C, R, {y(first), int64_t(H) * R, R});
    });
  }

  // W_h = Σ x_hᵀ y_h over the rows.
  void gradient() const {
    const size_t numbers = size_t(H) * C * wide;
    Numbers<A> totals(numbers * parts);
    over_rows([&](int64_t part, int64_t first, int64_t count) {
      sums_by_heads<A, Start::ZERO>({x(first), int64_t(H) * C, C}, {y(first), int64_t(H) * R, R}, count, H, C, R,
                                    totals.data() + numbers * part);
    });
    for (int64_t n = 0; n < int64_t(H) * C; ++n)
      for (int c = 0; c < R; ++c) {
        double total = 0;
        for (int64_t part = 0; part < parts; ++part) total += totals[numbers * part + n * wide + c];
        ((A*)call.weight)[n * R + c] = A(total);
      }
  }
};

template <class A>
void by_heads(const Heads& call) {
  expect_writes(call.y, call.rows * call.heads * call.outputs * sizeof(A));
  ByHead<A>(call).product();
}

template <class A>
void by_heads_gradient(const Heads& call) {
  ByHead<A>(call).gradient();
}

}  // namespace edgewise::EDGEWISE_ISA
