// Attention on ranges for one instruction set: compiled once for each, under its own namespace.
#include "tiles/backward.hpp"
#include "tiles/forward.hpp"

namespace edgewise::EDGEWISE_ISA {

[[gnu::visibility("default")]] extern const TilesTable tiles_table;
const TilesTable tiles_table = {
    pairs_in_tiles,
    {attend_tiles<float>, attend_tiles<double>, attend_tiles<bfloat16>},
    {attend_tiles_gradient<float>, attend_tiles_gradient<double>, attend_tiles_gradient<bfloat16>},
};

}  // namespace edgewise::EDGEWISE_ISA
