// Networks on edges for one instruction set: compiled once for each, under its own namespace.
#include "network.hpp"

#define EDGEWISE_TEXT_OF(name) #name
#define EDGEWISE_TEXT(name) EDGEWISE_TEXT_OF(name)

namespace edgewise::EDGEWISE_ISA {

extern const NetworkTable network_table;
const NetworkTable network_table = {
    EDGEWISE_TEXT(EDGEWISE_ISA),
    {network<float>, network<double>, nullptr},
    {network_gradient<float>, network_gradient<double>, nullptr},
};

}  // namespace edgewise::EDGEWISE_ISA
