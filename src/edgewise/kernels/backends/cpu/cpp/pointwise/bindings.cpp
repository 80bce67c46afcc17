// Activations: what Python sees. The kernels themselves are in kernels.cpp.
#include <nanobind/nanobind.h>

#include "instruction_sets.hpp"
#include "pointwise/table.hpp"

namespace nb = nanobind;

EDGEWISE_TABLES(PointwiseTable, pointwise_table)

namespace edgewise {

void bind_pointwise(nb::module_& module);

template <class T>
static T* at(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

void bind_pointwise(nb::module_& module) {
  const auto pairing = [](int threads, int64_t pairs, int64_t columns, uintptr_t first, uintptr_t second, uintptr_t z, uintptr_t out) {
    Pairing call;
    call.threads = threads, call.pairs = pairs, call.columns = columns, call.first = at<const int64_t>(first);
    call.second = at<const int64_t>(second), call.z = at<const void>(z), call.out = at<void>(out);
    return call;
  };
  module.def("pair_dots", [pairing](int dtype, int threads, int64_t pairs, int64_t columns, uintptr_t first, uintptr_t second,
                                    uintptr_t x, uintptr_t z, uintptr_t out) {
    nb::gil_scoped_release unlocked;
    Pairing call = pairing(threads, pairs, columns, first, second, z, out);
    call.x = at<const void>(x);
    chosen<PointwiseTable>().pair_dots[dtype](call);
  });
  module.def("pair_spread", [pairing](int dtype, int threads, int64_t pairs, int64_t rows, int64_t columns, uintptr_t first,
                                      uintptr_t second, uintptr_t z, uintptr_t g, uintptr_t out) {
    nb::gil_scoped_release unlocked;
    Pairing call = pairing(threads, pairs, columns, first, second, z, out);
    call.rows = rows, call.g = at<const void>(g);
    chosen<PointwiseTable>().pair_spread[dtype](call);
  });
}

}  // namespace edgewise
