// Attention on edges in one dtype, for one instruction set.
#include "edges/backward.hpp"
#include "edges/forward.hpp"

namespace edgewise::EDGEWISE_ISA {

template void attend<float>(const Attention&);
template void attend_gradient<float>(const Attention&);

}  // namespace edgewise::EDGEWISE_ISA
