// Networks on edges for one instruction set: compiled once for each, under its own namespace.
#include "network/coupled.hpp"
#include "network/passes.hpp"

namespace edgewise::EDGEWISE_ISA {

[[gnu::visibility("default")]] extern const NetworkTable network_table;
const NetworkTable network_table = {
    {network<float>, network<double>, nullptr},
    {network_gradient<float>, network_gradient<double>, nullptr},
    {couple<float>, couple<double>, nullptr},
    {couple_gradient<float>, couple_gradient<double>, nullptr},
};

}  // namespace edgewise::EDGEWISE_ISA
