// Short vectors of the instruction set that this file is compiled for, and the few operations that kernels need.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define EDGEWISE_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define EDGEWISE_VECTOR_BYTES 32
#else
#define EDGEWISE_VECTOR_BYTES 16
#endif

#define EDGEWISE_INLINE inline __attribute__((always_inline))
#define EDGEWISE_APART __attribute__((noinline))  // called from several places, each of which would hold a copy
#define EDGEWISE_INLINE_LAMBDA __attribute__((always_inline))

namespace edgewise::EDGEWISE_ISA {

struct bfloat16 {
  uint16_t bits;
};

// The dtype of sums: float for float and bfloat16, double for double.
template <class S>
using Sum = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class A>
struct Shape;
template <>
struct Shape<float> {
  static constexpr int lanes = EDGEWISE_VECTOR_BYTES / 4;
  typedef float Vector __attribute__((vector_size(EDGEWISE_VECTOR_BYTES)));
  typedef int32_t Whole __attribute__((vector_size(EDGEWISE_VECTOR_BYTES)));
  typedef uint32_t Bits __attribute__((vector_size(EDGEWISE_VECTOR_BYTES)));
};
template <>
struct Shape<double> {
  static constexpr int lanes = EDGEWISE_VECTOR_BYTES / 8;
  typedef double Vector __attribute__((vector_size(EDGEWISE_VECTOR_BYTES)));
  typedef int64_t Whole __attribute__((vector_size(EDGEWISE_VECTOR_BYTES)));
  typedef uint64_t Bits __attribute__((vector_size(EDGEWISE_VECTOR_BYTES)));
};

template <class A>
using Vector = typename Shape<A>::Vector;
template <class A>
using Whole = typename Shape<A>::Whole;
template <class A>
using Bits = typename Shape<A>::Bits;
template <class A>
constexpr int lanes = Shape<A>::lanes;

// Vectors of other lengths.
template <class A, int Count>
struct OfLength {
  typedef A type __attribute__((vector_size(Count * sizeof(A))));
};
template <class A, int Count>
using Short = typename OfLength<A, Count>::type;

template <class A>
EDGEWISE_INLINE Vector<A> all(A x) {
  return x - Vector<A>{};
}

EDGEWISE_INLINE Vector<float> load(const float* p) {
  Vector<float> x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

EDGEWISE_INLINE Vector<double> load(const double* p) {
  Vector<double> x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

typedef uint16_t Halves __attribute__((vector_size(EDGEWISE_VECTOR_BYTES / 2)));
EDGEWISE_INLINE Vector<float> widened(Halves x) {
  return (Vector<float>)(__builtin_convertvector(x, Bits<float>) << 16);
}

EDGEWISE_INLINE Vector<float> load(const bfloat16* p) {
  Halves x;
  std::memcpy(&x, p, sizeof x);
  return widened(x);
}

EDGEWISE_INLINE float number(float x) { return x; }
EDGEWISE_INLINE double number(double x) { return x; }
EDGEWISE_INLINE float number(bfloat16 x) {
  uint32_t bits = uint32_t(x.bits) << 16;
  float y;
  std::memcpy(&y, &bits, sizeof y);
  return y;
}

#if EDGEWISE_VECTOR_BYTES == 64
EDGEWISE_INLINE __mmask16 first_lanes(int count) { return __mmask16((1 << count) - 1); }
#elif EDGEWISE_VECTOR_BYTES == 32
template <class A>
EDGEWISE_INLINE __m256i first_lanes(int count) {
  if constexpr (std::is_same_v<A, float>) return (__m256i)(Whole<A>{0, 1, 2, 3, 4, 5, 6, 7} < count);
  else return (__m256i)(Whole<A>{0, 1, 2, 3} < count);
}
#endif

// The first `count` lanes; nothing beyond them is read, and the others are 0.
template <class S>
EDGEWISE_INLINE Vector<Sum<S>> load_some(const S* p, int count) {
#if EDGEWISE_VECTOR_BYTES == 64
  if constexpr (std::is_same_v<S, float>) return (Vector<float>)_mm512_maskz_loadu_ps(first_lanes(count), p);
  else if constexpr (std::is_same_v<S, double>) return (Vector<double>)_mm512_maskz_loadu_pd(__mmask8(first_lanes(count)), p);
  else return widened((Halves)_mm256_maskz_loadu_epi16(first_lanes(count), p));
#else
#if EDGEWISE_VECTOR_BYTES == 32
  if constexpr (std::is_same_v<S, float>) return (Vector<float>)_mm256_maskload_ps(p, first_lanes<float>(count));
  else if constexpr (std::is_same_v<S, double>) return (Vector<double>)_mm256_maskload_pd(p, first_lanes<double>(count));
#endif
  if (count == lanes<Sum<S>>) return load(p);
  Vector<Sum<S>> x{};
#pragma GCC unroll 8
  for (int n = 0; n < lanes<Sum<S>>; ++n)  // to the end, so that each lane is known when this is compiled
    if (n < count) x[n] = number(p[n]);
  return x;
#endif
}

template <class S>
EDGEWISE_INLINE Vector<Sum<S>> load_part(const S* p, int count) {  // a whole vector where there is one
  return count >= lanes<Sum<S>> ? load(p) : load_some(p, count);
}

template <class A>
EDGEWISE_INLINE void store(A* p, Vector<A> x) {
  std::memcpy(p, &x, sizeof x);
}

// a b + c, rounded once where the processor can: of `a * b + c` the compiler decides anew wherever it stands, so that sums which
// must have the same bits in two places are written with this.
template <class A>
EDGEWISE_INLINE Vector<A> fused(Vector<A> a, Vector<A> b, Vector<A> c) {
#if EDGEWISE_VECTOR_BYTES == 64
  if constexpr (std::is_same_v<A, float>) return (Vector<A>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
  else return (Vector<A>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif EDGEWISE_VECTOR_BYTES == 32
  if constexpr (std::is_same_v<A, float>) return (Vector<A>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  else return (Vector<A>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__FP_FAST_FMAF)
  for (int n = 0; n < lanes<A>; ++n) c[n] = std::fma(a[n], b[n], c[n]);
  return c;
#else
  return a * b + c;
#endif
}

// Stores the first `count` lanes, and nothing else.
template <class A>
EDGEWISE_INLINE void store_some(A* p, int count, Vector<A> x) {
#if EDGEWISE_VECTOR_BYTES == 64
  if constexpr (std::is_same_v<A, float>) _mm512_mask_storeu_ps(p, first_lanes(count), (__m512)x);
  else _mm512_mask_storeu_pd(p, __mmask8(first_lanes(count)), (__m512d)x);
#else
  if (count == lanes<A>) return store<A>(p, x);
#pragma GCC unroll 8
  for (int n = 0; n < lanes<A>; ++n)
    if (n < count) p[n] = x[n];
#endif
}

EDGEWISE_INLINE void put(float* p, float x) { *p = x; }
EDGEWISE_INLINE void put(double* p, double x) { *p = x; }
EDGEWISE_INLINE void put(bfloat16* p, float x) {  // to nearest, ties to even; NaN stays NaN
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  p->bits = x != x ? uint16_t(0x7fc0) : uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class A>
EDGEWISE_INLINE Vector<A> choose(Whole<A> condition, Vector<A> yes, Vector<A> no) {
  return (Vector<A>)((condition & (Whole<A>)yes) | (~condition & (Whole<A>)no));
}

template <class A>
EDGEWISE_INLINE Vector<A> larger(Vector<A> x, Vector<A> y) {
  return x > y ? x : y;
}

// 1 / x for x from 1 to 8e37, within 2 units in the last place.
template <class A>
EDGEWISE_INLINE Vector<A> reciprocal(Vector<A> x) {
#if EDGEWISE_VECTOR_BYTES == 64
  if constexpr (std::is_same_v<A, float>) {
    const Vector<A> near = (Vector<A>)_mm512_maskz_rcp14_ps(__mmask16(-1), (__m512)x);
    return near + near * (A(1) - x * near);
  }
#endif
  return A(1) / x;
}

// Which lanes of the pair (a, b) a fold takes: the even (odd = 0) or odd units of both. Units of less than 16 bytes are
// paired inside each 16, which costs less than crossing them.
template <class A>
constexpr int fold_lane(int lane, int unit, int odd) {
  const int inner = 16 / int(sizeof(A)), per = unit < inner ? inner : lanes<A>, half = per / 2;
  const int block = lane / per * per, at = lane % per;
  return (at < half ? 0 : lanes<A>) + block + (2 * (at % half / unit) + odd) * unit + at % unit;
}

template <class A, int Unit, size_t... L>
EDGEWISE_INLINE Vector<A> fold(Vector<A> a, Vector<A> b, std::index_sequence<L...>) {
  return __builtin_shufflevector(a, b, fold_lane<A>(L, Unit, 0)...) +
         __builtin_shufflevector(a, b, fold_lane<A>(L, Unit, 1)...);
}

// Sums as many vectors as there are lanes, each across: lane n of the result is the sum of v[n].
template <class A, int Count = lanes<A>>
EDGEWISE_INLINE Vector<A> sums_across(Vector<A>* v) {
  if constexpr (Count == 1) {
    return v[0];
  } else {
    constexpr int inner = 16 / int(sizeof(A)), unit = lanes<A> / Count * 2 <= inner ? 1 : inner;
#pragma GCC unroll 8
    for (int i = 0; i < Count / 2; ++i)
      v[i] = fold<A, unit>(v[2 * i], v[2 * i + 1], std::make_index_sequence<lanes<A>>{});
    return sums_across<A, Count / 2>(v);
  }
}

// Lanes stand for G heads, over and over: combines those of one head, so that each of its lanes holds the result.
template <class A, int G, class Combine, size_t... L>
EDGEWISE_INLINE Vector<A> over_repeats(Vector<A> v, const Combine& combine, std::index_sequence<L...> each) {
  if constexpr (G >= lanes<A>) {
    return v;
  } else {
    const Vector<A> rotated = __builtin_shufflevector(v, v, int(L + G) % lanes<A>...);
    return over_repeats<A, 2 * G>(combine(v, rotated), combine, each);
  }
}

template <class A, int G>
EDGEWISE_INLINE Vector<A> sum_of_repeats(Vector<A> v) {
  return over_repeats<A, G>(v, [](auto x, auto y) { return x + y; }, std::make_index_sequence<lanes<A>>{});
}

template <class A, int G>
EDGEWISE_INLINE Vector<A> largest_of_repeats(Vector<A> v) {
  return over_repeats<A, G>(v, [](auto x, auto y) { return x > y ? x : y; }, std::make_index_sequence<lanes<A>>{});
}

template <class A>
EDGEWISE_INLINE A sum_across(Vector<A> v) {
  A total = 0;
  for (int n = 0; n < lanes<A>; ++n) total += v[n];
  return total;
}

// exp(x) for x between -87 and 88 (double: -708 and 709), 1 to 2 units in the last place; of NaN, anything.
EDGEWISE_INLINE Vector<float> exponential_within(Vector<float> x) {
  const Vector<float> magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  Vector<float> shifted = x * 1.44269504088896341f + magic;
  Vector<float> n = shifted - magic;
  Vector<float> r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vector<float> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return (Vector<float>)((Bits<float>)p + ((Bits<float>)shifted << 23));
}

EDGEWISE_INLINE Vector<double> exponential_within(Vector<double> x) {
  const Vector<double> magic = all(6755399441055744.0);  // 1.5 * 2^52
  Vector<double> shifted = x * 1.4426950408889634074 + magic;
  Vector<double> n = shifted - magic;
  Vector<double> r = x - n * 6.93145751953125e-1;
  r = r - n * 1.42860682030941723212e-6;
  Vector<double> p = all(1.0 / 6227020800.0);
  const double inverse[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                            1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5};
  for (double c : inverse) p = p * r + c;
  p = p * (r * r) + r + 1.0;
  return (Vector<double>)((Bits<double>)p + ((Bits<double>)shifted << 52));
}

template <class A>
constexpr A exponent_least = std::is_same_v<A, float> ? A(-87) : A(-708);

// exp(x) for x <= some tens, 1 to 2 units in the last place; 0 below the smallest normal number; NaN stays NaN.
template <class A>
EDGEWISE_INLINE Vector<A> exponential_of(Vector<A> x) {
  const Whole<A> vanishes = x < all(exponent_least<A>);
  x = choose<A>(vanishes, Vector<A>{}, x);
  x = choose<A>(x > all(1 - exponent_least<A>), all(1 - exponent_least<A>), x);
  const Vector<A> y = choose<A>(x == x, exponential_within(x), x);  // whatever the lower bits of NaN are
  return choose<A>(vanishes, Vector<A>{}, y);
}

EDGEWISE_INLINE Vector<float> exponential(Vector<float> x) { return exponential_of<float>(x); }
EDGEWISE_INLINE Vector<double> exponential(Vector<double> x) { return exponential_of<double>(x); }

// log(x) for normal x > 0, about 1 unit in the last place; NaN stays NaN.
EDGEWISE_INLINE Vector<float> logarithm(Vector<float> x) {
  Whole<float> bits = (Whole<float>)x;
  Vector<float> e = __builtin_convertvector((bits >> 23) - 126, Vector<float>);
  Vector<float> m = (Vector<float>)((bits & 0x007fffff) | 0x3f000000);  // in [0.5, 1)
  Whole<float> small = m < all(0.707106781186547524f);
  e = choose<float>(small, e - 1.0f, e);
  m = choose<float>(small, m + m, m) - 1.0f;
  Vector<float> p = m * 7.0376836292e-2f - 1.1514610310e-1f;
  for (float c : {1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f, 2.0000714765e-1f,
                  -2.4999993993e-1f, 3.3333331174e-1f})
    p = p * m + c;
  const Vector<float> square = m * m;
  Vector<float> y = p * m * square + e * -2.12194440e-4f - square * 0.5f;
  return choose<float>(x == x, m + y + e * 0.693359375f, x);
}

EDGEWISE_INLINE Vector<double> logarithm(Vector<double> x) {
  for (int n = 0; n < lanes<double>; ++n) x[n] = std::log(x[n]);
  return x;
}

// Calls part(c, vectors) for runs of so many vectors, the longest first and 1 last, that cover `wide` numbers; of doubles for
// single vectors, as they are compiled for exactness rather than speed.
template <class A, int Length, int... Shorter, class Part>
EDGEWISE_INLINE void by_vectors(int64_t wide, const Part& part, int64_t c = 0) {
  if constexpr (Length == 1 || std::is_same_v<A, float>)
    for (; c + (Length - 1) * lanes<A> + (Length > 1 ? lanes<A> : 1) <= wide; c += Length * lanes<A>)
      part(c, std::integral_constant<int, Length>{});
  if constexpr (sizeof...(Shorter) > 0) by_vectors<A, Shorter...>(wide, part, c);
}

// Into the second cache: on AMD more lines can be on their way there than to the first, which is what random rows wait for.
template <int Cache = 2>
EDGEWISE_INLINE void prefetch(const void* p, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char*)p + at, 0, 4 - Cache);
}

}  // namespace edgewise::EDGEWISE_ISA
