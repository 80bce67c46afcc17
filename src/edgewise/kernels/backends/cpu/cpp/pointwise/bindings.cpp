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
  module.def("activate", [](int dtype, int threads, int kind, int64_t count, uintptr_t z, uintptr_t h) {
    nb::gil_scoped_release unlocked;
    Activating call;
    call.threads = threads, call.kind = kind, call.rows = 1, call.columns = count, call.z = at<const void>(z), call.h = at<void>(h);
    chosen<PointwiseTable>().activate[dtype](call);
  });
  module.def("activate_gradient", [](int dtype, int threads, int kind, int64_t rows, int64_t columns, uintptr_t z, uintptr_t dh,
                                     uintptr_t sums, uintptr_t h) {
    nb::gil_scoped_release unlocked;
    Activating call;
    call.threads = threads, call.kind = kind, call.rows = rows, call.columns = columns, call.z = at<const void>(z);
    call.dh = at<void>(dh), call.sums = at<void>(sums), call.h = at<void>(h);
    chosen<PointwiseTable>().activate_gradient[dtype](call);
  });
  const auto pooling = [](int threads, int reduce, int64_t graphs, int64_t columns, uintptr_t offsets, uintptr_t x, uintptr_t y) {
    Pooling call;
    call.threads = threads, call.reduce = reduce, call.graphs = graphs, call.columns = columns;
    call.offsets = at<const int64_t>(offsets), call.x = at<const void>(x), call.y = at<void>(y);
    return call;
  };
  module.def("pool", [pooling](int dtype, int threads, int reduce, int64_t graphs, int64_t columns, uintptr_t offsets, uintptr_t x,
                               uintptr_t y) {
    nb::gil_scoped_release unlocked;
    chosen<PointwiseTable>().pool[dtype](pooling(threads, reduce, graphs, columns, offsets, x, y));
  });
  module.def("pool_gradient", [pooling](int dtype, int threads, int reduce, int64_t graphs, int64_t columns, uintptr_t offsets,
                                        uintptr_t x, uintptr_t y, uintptr_t dy, uintptr_t dx) {
    nb::gil_scoped_release unlocked;
    Pooling call = pooling(threads, reduce, graphs, columns, offsets, x, y);
    call.dy = at<const void>(dy), call.dx = at<void>(dx);
    chosen<PointwiseTable>().pool_gradient[dtype](call);
  });
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
  module.def("dot", [](int dtype, int threads, int64_t count, uintptr_t x, uintptr_t y) {
    nb::gil_scoped_release unlocked;
    return chosen<PointwiseTable>().dot[dtype](threads, count, at<const void>(x), at<const void>(y));
  });
}

}  // namespace edgewise
