// Activations and pools for one instruction set: compiled once for each, under its own namespace.
#include "pointwise/pairs.hpp"
#include "pointwise/pointwise.hpp"
#include "pointwise/pooling.hpp"

namespace edgewise::EDGEWISE_ISA {

[[gnu::visibility("default")]] extern const PointwiseTable pointwise_table;
const PointwiseTable pointwise_table = {
    {activate_all<float>, activate_all<double>, nullptr},
    {activate_gradient<float>, activate_gradient<double>, nullptr},
    {pool<float>, pool<double>, nullptr},
    {pool_gradient<float>, pool_gradient<double>, nullptr},
    {pair_dots<float>, pair_dots<double>, nullptr},
    {pair_spread<float>, pair_spread<double>, nullptr},
    {dot<float>, dot<double>, nullptr},
};

}  // namespace edgewise::EDGEWISE_ISA
