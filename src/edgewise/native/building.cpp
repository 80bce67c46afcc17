// Graphs from edges: what Python sees of sorting. The same for every instruction set.
#include <nanobind/nanobind.h>

#include <cstdint>

#include "sorting.hpp"

namespace nb = nanobind;

namespace edgewise {

static const int64_t* in(uintptr_t address) { return reinterpret_cast<const int64_t*>(address); }
static int64_t* out(uintptr_t address) { return reinterpret_cast<int64_t*>(address); }

void bind_building(nb::module_& module);
void bind_building(nb::module_& module) {
  module.def("sort_edges", [](int threads, int64_t count, int64_t rows, int64_t columns, uintptr_t majors, uintptr_t minors,
                              bool minors_ascend, uintptr_t offsets, uintptr_t sorted, uintptr_t order, uintptr_t along) {
    nb::gil_scoped_release unlocked;
    return sort_edges({threads, count, rows, columns, in(majors), in(minors), minors_ascend, out(offsets), out(sorted),
                       out(order), out(along)});
  });
  module.def("by_receiver", [](int threads, int64_t count, int64_t rows, int64_t columns, uintptr_t receivers, uintptr_t senders,
                               uintptr_t offsets, uintptr_t index, uintptr_t order) {
    nb::gil_scoped_release unlocked;
    return by_receiver({threads, count, rows, columns, in(receivers), in(senders), out(offsets),
                        reinterpret_cast<int32_t*>(index), reinterpret_cast<int32_t*>(order)});
  });
}

}  // namespace edgewise
