// Attention on ranges as blocked dense tiles: what Python sees. The kernels themselves are in tiles_kernels.cpp.
#include <nanobind/nanobind.h>

#include "parallel.hpp"

namespace nb = nanobind;

namespace edgewise {

void bind_tiles(nb::module_& module);
void bind_tiles(nb::module_&) {}

}  // namespace edgewise
