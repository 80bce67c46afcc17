// Products of small matrices whose results stay in registers, and transposes of panels.
#pragma once

#include <algorithm>

#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

// What a product is added to: nothing, what is there, what is there times a number for each lane, or one row for all; with
// AFTER the whole product is added to what is there, which is more exact where many small products follow each other.
enum class Start { ZERO, ADD, SHRINK, ROW, AFTER };

// M rows times N vectors of z (+)= x y, with x [M, K] read number by number and y [K, N] by vectors.
// ACROSS: x lies transposed, its rows side by side.
template <class A, int M, int N, Start START, bool ACROSS>
EDGEWISE_INLINE void block(const A* x, int64_t x_stride, const A* y, int64_t y_stride, int64_t K, A* z, int64_t z_stride,
                           const Vector<A>* given) {
  constexpr int W = lanes<A>;
  Vector<A> total[M][N];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      if constexpr (START == Start::ZERO || START == Start::AFTER) total[m][n] = Vector<A>{};
      else if constexpr (START == Start::ROW) total[m][n] = given[n];
      else total[m][n] = load(z + m * z_stride + n * W);
      if constexpr (START == Start::SHRINK) total[m][n] *= given[n];
    }
  for (int64_t k = 0; k < K; ++k) {
    Vector<A> row[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) row[n] = load(y + k * y_stride + n * W);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const Vector<A> factor = all(ACROSS ? x[k * x_stride + m] : x[m * x_stride + k]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) total[m][n] += factor * row[n];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      if constexpr (START == Start::AFTER) total[m][n] += load(z + m * z_stride + n * W);
      store(z + m * z_stride + n * W, total[m][n]);
    }
}

// The same for any number of rows.
template <class A, int N, Start START, bool ACROSS>
__attribute__((noinline)) void multiply(const A* x, int64_t x_stride, int64_t M, const A* y, int64_t y_stride, int64_t K,
                                        A* z, int64_t z_stride, const Vector<A>* given = nullptr) {
  constexpr int MOST = N == 1 ? 8 : 6;
  int64_t m = 0;
  auto rows = [&](auto size) EDGEWISE_INLINE_LAMBDA {
    block<A, decltype(size)::value, N, START, ACROSS>(x + (ACROSS ? m : m * x_stride), x_stride, y, y_stride, K,
                                                      z + m * z_stride, z_stride, given);
    m += decltype(size)::value;
  };
  while (M - m >= MOST && !(N > 1 && M - m == 8)) rows(std::integral_constant<int, MOST>{});  // 8 = 4 + 4, not 6 + 2
  while (M - m >= 4) rows(std::integral_constant<int, 4>{});
  if (M - m == 3) rows(std::integral_constant<int, 3>{});
  else if (M - m == 2) rows(std::integral_constant<int, 2>{});
  else if (M - m == 1) rows(std::integral_constant<int, 1>{});
}

// The same for any number of whole vectors, as many as z has in a row.
template <class A, Start START, bool ACROSS>
void multiply_rows(const A* x, int64_t x_stride, int64_t M, const A* y, int64_t y_stride, int64_t K, A* z, int64_t columns,
                   const A* row = nullptr) {
  by_vectors<A, 2, 1>(columns, [&](int64_t c, auto width) EDGEWISE_INLINE_LAMBDA {
    constexpr int N = decltype(width)::value;
    Vector<A> given[N] = {};
    for (int n = 0; START == Start::ROW && n < N; ++n) given[n] = load(row + c + n * lanes<A>);
    multiply<A, N, START, ACROSS>(x, x_stride, M, y + c, y_stride, K, z + c, columns, given);
  });
}

template <class A, int UNIT, size_t... L>
EDGEWISE_INLINE void exchange(Vector<A>& a, Vector<A>& b, std::index_sequence<L...>) {
  constexpr int W = lanes<A>;
  const Vector<A> low = __builtin_shufflevector(a, b, (int(L) & UNIT ? W + int(L) - UNIT : int(L))...);
  b = __builtin_shufflevector(a, b, (int(L) & UNIT ? W + int(L) : int(L) + UNIT)...);
  a = low;
}

// Transposes a square of vectors.
template <class A, int UNIT = 1>
EDGEWISE_INLINE void transpose(Vector<A>* square) {
  constexpr int W = lanes<A>;
  if constexpr (UNIT < W) {
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i)
      if (!(i & UNIT)) exchange<A, UNIT>(square[i], square[i + UNIT], std::make_index_sequence<W>{});
    transpose<A, 2 * UNIT>(square);
  }
}

// Rows of C numbers, row_of(0) .. row_of(count - 1), to lanes: out [C, N * W], times a factor. Lanes beyond repeat the last.
template <int N, class S, class Row>
void to_lanes(const Row& row_of, int count, int C, Sum<S> factor, Sum<S>* out) {
  using A = Sum<S>;
  constexpr int W = lanes<A>;
  for (int n = 0; n < N; ++n) {
    const S* row[W];
    for (int i = 0; i < W; ++i) row[i] = row_of(std::min(n * W + i, count - 1));
    int c = 0;
    for (; c + W <= C; c += W) {
      Vector<A> square[W];
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) square[i] = load(row[i] + c) * factor;
      transpose<A>(square);
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) store(out + (c + i) * N * W + n * W, square[i]);
    }
    for (; c < C; ++c)
      for (int i = 0; i < W; ++i) out[c * N * W + n * W + i] = number(row[i][c]) * factor;
  }
}

template <class A, class S>
EDGEWISE_INLINE void put_row(const A* x, int count, S* out) {
  if constexpr (std::is_same_v<A, S>) std::memcpy(out, x, count * sizeof(A));
  else
    for (int n = 0; n < count; ++n) put(out + n, x[n]);
}

// The way back: x [C, N * W], times a factor for each lane, to rows of C numbers.
template <int N, class S, class Row>
void from_lanes(const Sum<S>* x, const Vector<Sum<S>>* factor, int count, int C, const Row& row_of) {
  using A = Sum<S>;
  constexpr int W = lanes<A>;
  for (int n = 0; n < N; ++n) {
    const int rows = std::min(W, count - n * W);
    int c = 0;
    for (; c + W <= C; c += W) {
      Vector<A> square[W];
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) square[i] = load(x + (c + i) * N * W + n * W) * factor[n];
      transpose<A>(square);
      alignas(64) A room[W * W];
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) store(room + i * W, square[i]);
      for (int i = 0; i < rows; ++i) put_row(room + i * W, W, row_of(n * W + i) + c);
    }
    for (; c < C; ++c)
      for (int i = 0; i < rows; ++i) put(row_of(n * W + i) + c, x[c * N * W + n * W + i] * factor[n][i]);
  }
}

}  // namespace edgewise::EDGEWISE_ISA
