// Networks on edges for one instruction set: compiled once for each, under its own namespace.
#include "network/network.hpp"

namespace edgewise::EDGEWISE_ISA {

[[gnu::visibility("default")]] extern const NetworkTable network_table;
const NetworkTable network_table = {
    {network<float>, network<double>, nullptr},
    {network_gradient<float>, network_gradient<double>, nullptr},
};

}  // namespace edgewise::EDGEWISE_ISA
