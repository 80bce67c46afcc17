// Attention on edges in one dtype, for one instruction set.
#include "edges/backward.hpp"
#include "edges/forward.hpp"

namespace edgewise::EDGEWISE_ISA {

template void attend<double>(const Attention&);
template void attend_gradient<double>(const Attention&);

}  // namespace edgewise::EDGEWISE_ISA
