// What programs call that have no Python: the kernels on edges, of the best instruction set that this processor has.
#pragma once

#include "edges/table.hpp"
#include "sorting.hpp"

namespace edgewise {

[[gnu::visibility("default")]] const EdgesTable& kernels_here();

}  // namespace edgewise
