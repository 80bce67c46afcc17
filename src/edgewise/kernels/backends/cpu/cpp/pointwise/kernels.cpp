// Products of pairs for one instruction set: compiled once for each, under its own namespace.
#include "pointwise/pairs.hpp"

namespace edgewise::EDGEWISE_ISA {

[[gnu::visibility("default")]] extern const PointwiseTable pointwise_table;
const PointwiseTable pointwise_table = {
    {pair_dots<float>, pair_dots<double>, nullptr},
    {pair_spread<float>, pair_spread<double>, nullptr},
};

}  // namespace edgewise::EDGEWISE_ISA
