// Graphs from edges: sorting, transposing, sampling. The same for every instruction set.
#include <nanobind/nanobind.h>

#include "parallel.hpp"

namespace nb = nanobind;

namespace edgewise {

void bind_building(nb::module_& module);
void bind_building(nb::module_&) {}

}  // namespace edgewise
