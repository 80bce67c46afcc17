// The activations of networks on edges, with their slopes.
#pragma once

#include <algorithm>

#include "network/table.hpp"
#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

// log(1 + e) and 1 / (1 + e) for e in [0, 1], from one division: log((1 + s) / (1 - s)) = 2 s p(s²) at s = e / (2 + e).
EDGEWISE_INLINE Vector<float> series_of(Vector<float> square) {  // p, the best of its degree for s² up to 1/9
  Vector<float> series = square * 1.40891640e-1f + 1.39803021e-1f;
  for (float c : {2.00124551e-1f, 3.33331573e-1f, 1.0f}) series = series * square + c;
  return series;
}

EDGEWISE_INLINE Vector<double> series_of(Vector<double> square) {  // 1 + s²/3 + s⁴/5 + ...
  Vector<double> series = all(2.0 / 70);
#pragma GCC unroll 17
  for (int n = 16; n >= 0; --n) series = series * square + 1.0 / (2 * n + 1);
  return series;
}

template <class A>
EDGEWISE_INLINE void logarithm_and_inverse(Vector<A> e, Vector<A>& logarithm, Vector<A>& inverse) {
  const Vector<A> one = e + A(1), two = e + A(2), share = reciprocal<A>(one * two), s = e * one * share;
  logarithm = (s + s) * series_of(s * s), inverse = two * share;
}

// The exponential that an activation is made of: of -z for SiLU and the sigmoid, of -|z| for the softplus.
template <int Kind, class A>
EDGEWISE_INLINE Vector<A> decay(Vector<A> z) {
  const Vector<A> most = all(-exponent_least<A>);
  if constexpr (Kind == SILU || Kind == SIGMOID) {
    const Vector<A> near = z < most ? z : most;
    return exponential_within(near > -most ? -near : most);
  }
  const Vector<A> below = z < 0 ? z : -z;
  return exponential_within(below > -most ? below : -most);
}

// σ(z) and σ'(z), given that exponential; a NaN makes σ(z) one.
template <int Kind, class A>
EDGEWISE_INLINE void activate(Vector<A> z, Vector<A> e, Vector<A>& u, Vector<A>& slope) {
  if constexpr (Kind == RELU) {
    u = z < 0 ? Vector<A>{} : z;
    slope = z > 0 ? all(A(1)) : Vector<A>{};
  } else if constexpr (Kind == SILU) {
    const Vector<A> gate = reciprocal<A>(A(1) + e);
    u = z * gate;
    slope = gate + u * (A(1) - gate);
  } else if constexpr (Kind == SIGMOID) {
    u = choose<A>(z == z, reciprocal<A>(A(1) + e), z);
    slope = u * (A(1) - u);
  } else {
    Vector<A> gate, softplus;
    logarithm_and_inverse<A>(e, softplus, gate);
    u = (z < 0 ? Vector<A>{} : z) + (softplus - A(0.69314718055994530942));
    slope = z < 0 ? e * gate : gate;
  }
}

// In two passes over a few vectors: both chains of operations together are longer than what a processor looks ahead.
template <int Kind, class A>
EDGEWISE_INLINE void activate_all(size_t numbers, const A* z, A* value, A* slope) {
  constexpr size_t SOME = 16 * lanes<A>;
  alignas(64) A e[SOME];
  for (size_t start = 0; start < numbers; start += SOME) {
    const size_t end = std::min(start + SOME, numbers);
    for (size_t n = start; Kind != RELU && n < end; n += lanes<A>) store(e + n - start, decay<Kind, A>(load(z + n)));
    for (size_t n = start; n < end; n += lanes<A>) {
      Vector<A> u, steep;
      activate<Kind, A>(load(z + n), Kind == RELU ? Vector<A>{} : load(e + n - start), u, steep);
      if (value) store(value + n, u);
      if (slope) store(slope + n, steep);
    }
  }
}

// σ(z) and σ'(z) of whole vectors, each if it is wanted; either may take the place of z.
template <class A>
EDGEWISE_APART void activate_tile(int kind, size_t numbers, const A* z, A* value, A* slope) {
  switch (kind) {
    case RELU: return activate_all<RELU>(numbers, z, value, slope);
    case SILU: return activate_all<SILU>(numbers, z, value, slope);
    case SIGMOID: return activate_all<SIGMOID>(numbers, z, value, slope);
    default: return activate_all<SHIFTED_SOFTPLUS>(numbers, z, value, slope);
  }
}

}  // namespace edgewise::EDGEWISE_ISA
