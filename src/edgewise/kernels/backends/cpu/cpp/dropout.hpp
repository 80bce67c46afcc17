// Dropout by counter: whether a number is kept is a hash of the seed and its place, so that backward needs no mask.
#pragma once

#include <algorithm>

#include "memory.hpp"
#include "parallel.hpp"
#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

// Keeps the number at a place with probability 1 − p.
struct Dropout {
  uint32_t threshold = 0;
  uint32_t low = 0, high = 0;

  Dropout(double p, uint64_t seed)
      : threshold(uint32_t(p * 4294967296.0)), low(uint32_t(seed)), high(uint32_t(seed >> 32)) {}

  EDGEWISE_INLINE uint32_t upper(uint64_t place) const { return high ^ uint32_t(place >> 32) * 0x9e3779b9u; }

  // Whether a number is kept hangs on whether its hash reaches the threshold; T is a place's lower half or a vector of them.
  template <class T>
  EDGEWISE_INLINE T hash(T x, uint32_t upper) const {
    return second(first(x) ^ upper);
  }

  // Its two halves, between which a pair's second number comes in.
  template <class T>
  EDGEWISE_INLINE T first(T x) const {
    x ^= low;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
  }
  template <class T>
  static EDGEWISE_INLINE T second(T x) {
    x = (x ^ (x >> 16)) * 0x21f0aaadu;
    x = (x ^ (x >> 15)) * 0xd35a2d97u;
    return x ^ (x >> 15);
  }

  // x if it is kept, else 0, by a mask: a branch would be mispredicted.
  template <class A>
  EDGEWISE_INLINE A pass(A x, uint32_t hash) const {
    using Word = std::conditional_t<sizeof(A) == 8, uint64_t, uint32_t>;
    Word bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits &= -Word(hash >= threshold);
    std::memcpy(&x, &bits, sizeof bits);
    return x;
  }
};

// y_n = x_n · factor where place first + n is kept, else 0; all places have the same upper half.
template <class S>
EDGEWISE_INLINE void drop_within(const Dropout& dropout, uint64_t first, int numbers, Sum<S> factor, const S* x, S* y) {
  const uint32_t upper = dropout.upper(first);
  constexpr int W = lanes<float>;
  Bits<float> places;
  for (int n = 0; n < W; ++n) places[n] = uint32_t(first) + uint32_t(n);
  const auto some = [&](int n, auto count) EDGEWISE_INLINE_LAMBDA {
    const Bits<float> hash = dropout.hash(places + uint32_t(n), upper);
    if constexpr (std::is_same_v<S, float> && !std::is_integral_v<decltype(count)>) {
      store<float>(y + n, (Vector<float>)((Bits<float>)(load(x + n) * factor) & (Bits<float>)(hash >= dropout.threshold)));
    } else {
      uint32_t hashes[W];
      std::memcpy(hashes, &hash, sizeof hash);
      for (int m = 0; m < count; ++m) put(y + n + m, dropout.pass(number(x[n + m]) * factor, hashes[m]));
    }
  };
  int n = 0;
  for (; n + W <= numbers; n += W) some(n, std::integral_constant<int, W>{});
  some(n, numbers - n);
}

// The same for any places.
template <class S>
void drop_from(const Dropout& dropout, uint64_t first, int64_t count, Sum<S> factor, const S* x, S* y) {
  for (int64_t n = 0, some; n < count; n += some) {
    some = std::min<int64_t>({count - n, 1 << 14, int64_t((uint64_t(1) << 32) - uint32_t(first + n))});
    drop_within<S>(dropout, first + n, int(some), factor, x + n, y + n);
  }
}

// y_n = x_n / (1 − p) where place n is kept, else 0.
template <class S>
void drop(int threads, uint64_t seed, double p, int64_t count, const void* from, void* to) {
  constexpr int64_t piece = 1 << 14;  // divides 2³², so that the upper half of a place is constant within
  const Dropout dropout(p, seed);
  expect_writes(to, count * sizeof(S));
  over_items(threads, (count + piece - 1) / piece, [&](int64_t item, int) {
    const int64_t first = item * piece;
    drop_within<S>(dropout, first, int(std::min(piece, count - first)), Sum<S>(1 / (1 - p)), (const S*)from + first, (S*)to + first);
  });
}

}  // namespace edgewise::EDGEWISE_ISA
