// Activations and their gradients with the sums that a bias needs, and products of two tensors; the same bits at any
// number of threads, because pieces do not depend on it.
#pragma once

#include <algorithm>
#include <vector>

#include "memory.hpp"
#include "parallel.hpp"
#include "pointwise/table.hpp"
#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

constexpr int64_t PIECE = 1 << 14;  // numbers that one thread takes at a time

// y / x for x of usual size; with 64 bytes a division takes three times as long, with fewer an estimate is too rough.
EDGEWISE_INLINE Vector<float> over(Vector<float> y, Vector<float> x) {
#if EDGEWISE_VECTOR_BYTES == 64
  const Vector<float> near = (Vector<float>)_mm512_maskz_rcp14_ps(__mmask16(-1), (__m512)x);
  return y * (near * (2.0f - x * near));
#else
  return y / x;
#endif
}

// P(N(0, 1) < z) - 1/2, to 1e-7: half of erf(t) at t = z / √2 as a ratio of polynomials, within ±4; ±1/2 beyond ±5.5.
EDGEWISE_INLINE Vector<float> half(Vector<float> z) {
  Vector<float> t = z * 0.70710678118654752f;
  t = t > -4.0f ? t : all(-4.0f);
  t = t < 4.0f ? t : all(4.0f);
  const Vector<float> square = t * t;
  Vector<float> upper = square * -2.72614225801306e-10f + 2.77068142495902e-8f;
#pragma GCC unroll 8
  for (float c : {-2.10102402082508e-6f, -5.69250639462346e-5f, -7.34990630326855e-4f, -2.95459980854025e-3f, -1.60960333262415e-2f})
    upper = upper * square + c;
  Vector<float> lower = square * -1.45660718464996e-5f - 2.13374055278905e-4f;
#pragma GCC unroll 8
  for (float c : {-1.68282697438203e-3f, -7.37332916720468e-3f, -1.42647390514189e-2f}) lower = lower * square + c;
  const Vector<float> near = over(t * 0.5f * upper, lower);
  return z < -5.5f ? all(-0.5f) : z > 5.5f ? all(0.5f) : near;
}

// P(N(0, 1) < z).
EDGEWISE_INLINE Vector<double> below(Vector<double> z) {
  for (int n = 0; n < lanes<double>; ++n) z[n] = 0.5 * std::erfc(z[n] * -0.70710678118654752440);
  return z;
}

// exp(-z²/2), never below e⁻⁸⁰.
template <class A>
EDGEWISE_INLINE Vector<A> bell(Vector<A> z) {
  const Vector<A> exponent = z * z * A(-0.5);
  return exponential_within(exponent > A(-80) ? exponent : all(A(-80)));
}

// σ(z) and, where it is wanted, σ'(z); a NaN stays one.
template <int Kind, bool Slope, class A>
EDGEWISE_INLINE void rectify(Vector<A> z, Vector<A>& h, Vector<A>& slope) {
  if constexpr (Kind == OF_RELU) {
    h = z < 0 ? Vector<A>{} : z;
    slope = z > 0 ? all(A(1)) : Vector<A>{};
  } else {
    Vector<A> inside;
    if constexpr (std::is_same_v<A, float>) {
      const Vector<A> more = half(z);
      inside = more + 0.5f, h = z * more + z * 0.5f;  // exacter than z times a sum that is rounded
    } else {
      inside = below(z), h = z * inside;
    }
    if constexpr (Slope) slope = inside + z * bell<A>(z) * A(0.39894228040143267794);
  }
}

template <class A, int Kind>
void activate_kind(const Activating& call) {
  constexpr int W = lanes<A>;
  const int64_t count = call.rows * call.columns;
  over_items(call.threads, (count + PIECE - 1) / PIECE, [&](int64_t item, int) {
    const A* z = (const A*)call.z;
    A* h = (A*)call.h;
    const int64_t last = std::min(count, (item + 1) * PIECE);
    Vector<A> u, slope;
    int64_t n = item * PIECE;
    for (; n + W <= last; n += W) {
      rectify<Kind, false, A>(load(z + n), u, slope);
      store(h + n, u);
    }
    if (n < last) {
      rectify<Kind, false, A>(load_some(z + n, int(last - n)), u, slope);
      store_some(h + n, int(last - n), u);
    }
  });
}

template <class A, int Kind>
void activate_gradient_kind(const Activating& call) {
  constexpr int W = lanes<A>;
  const int64_t C = call.columns, each = std::max<int64_t>(1, PIECE / std::max<int64_t>(C, 1));
  const int64_t pieces = (call.rows + each - 1) / each;
  const auto partial = scratch<A>(size_t(pieces * C + W));
  over_items(call.threads, pieces, [&](int64_t item, int) {
    A* sums = partial.get() + item * C;
    std::fill_n(sums, C, A(0));
    const int64_t last = std::min(call.rows, (item + 1) * each);
    for (int64_t m = item * each; m < last; ++m) {
      const A* z = (const A*)call.z + m * C;
      A *dh = (A*)call.dh + m * C, *h = call.h ? (A*)call.h + m * C : nullptr;
      Vector<A> u, slope;
      int64_t c = 0;
      for (; c + W <= C; c += W) {
        rectify<Kind, true, A>(load(z + c), u, slope);
        const Vector<A> dz = load(dh + c) * slope;
        store(dh + c, dz);
        store<A>(sums + c, load(sums + c) + dz);
        if (h) store(h + c, u);
      }
      if (c < C) {
        const int some = int(C - c);
        rectify<Kind, true, A>(load_some(z + c, some), u, slope);
        const Vector<A> dz = load_some(dh + c, some) * slope;
        store_some(dh + c, some, dz);
        store_some<A>(sums + c, some, load_some(sums + c, some) + dz);
        if (h) store_some(h + c, some, u);
      }
    }
  });
  A* total = (A*)call.sums;
  std::fill_n(total, C, A(0));
  for (int64_t piece = 0; piece < pieces; ++piece)
    for (int64_t c = 0; c < C; ++c) total[c] += partial[size_t(piece * C + c)];
}

template <class A>
void activate_all(const Activating& call) {
  if (call.kind == OF_RELU) activate_kind<A, OF_RELU>(call);
  else activate_kind<A, OF_GELU>(call);
}

template <class A>
void activate_gradient(const Activating& call) {
  if (call.kind == OF_RELU) activate_gradient_kind<A, OF_RELU>(call);
  else activate_gradient_kind<A, OF_GELU>(call);
}

// Σ_n x_n y_n
template <class A>
double dot(int threads, int64_t count, const void* x, const void* y) {
  constexpr int W = lanes<A>;
  std::vector<double> sums(size_t((count + PIECE - 1) / PIECE));
  over_items(threads, int64_t(sums.size()), [&](int64_t item, int) {
    const A *a = (const A*)x + item * PIECE, *b = (const A*)y + item * PIECE;
    const int64_t numbers = std::min(PIECE, count - item * PIECE);
    Vector<A> total[4] = {};
    int64_t n = 0;
    for (; n + 4 * W <= numbers; n += 4 * W)
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) total[part] += load(a + n + part * W) * load(b + n + part * W);
    A rest = 0;
    for (; n < numbers; ++n) rest += a[n] * b[n];
    sums[size_t(item)] = double(sum_across<A>((total[0] + total[1]) + (total[2] + total[3])) + rest);
  });
  double all = 0;
  for (const double sum : sums) all += sum;
  return all;
}

}  // namespace edgewise::EDGEWISE_ISA
