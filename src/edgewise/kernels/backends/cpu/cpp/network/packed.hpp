// Linear maps as products of small matrices read them.
#pragma once

#include "memory.hpp"
#include "network/table.hpp"
#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class A>
constexpr int whole(int width) {  // vectors' worth of numbers
  return (width + lanes<A> - 1) / lanes<A> * lanes<A>;
}

// The linear maps as the products read them: rows of whole vectors, for the way forward and the way back.
template <class A>
struct Packed {
  int inputs, outputs, wide_inputs, wide_outputs;
  Numbers<A> forward, back, bias;  // [inputs, wide_outputs], [outputs, wide_inputs], [wide_outputs]

  explicit Packed(const LinearMap& map)
      : inputs(map.inputs), outputs(map.outputs), wide_inputs(whole<A>(inputs)), wide_outputs(whole<A>(outputs)),
        forward(size_t(inputs) * wide_outputs), back(size_t(outputs) * wide_inputs), bias(wide_outputs) {
    const A *weight = (const A*)map.weight, *shift = (const A*)map.bias;
    for (int o = 0; weight && o < outputs; ++o)
      for (int i = 0; i < inputs; ++i)
        forward[size_t(i) * wide_outputs + o] = back[size_t(o) * wide_inputs + i] = weight[size_t(o) * inputs + i];
    for (int o = 0; shift && o < outputs; ++o) bias[o] = shift[o];
  }

  size_t gradients() const { return size_t(outputs) * wide_inputs + wide_outputs; }
};

}  // namespace edgewise::EDGEWISE_ISA
