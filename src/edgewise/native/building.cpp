// Graphs from edges: what Python sees of sorting, and coalescing. The same for every instruction set.
#include <nanobind/nanobind.h>

#include <cstdint>

#include "parallel.hpp"
#include "sorting.hpp"

namespace nb = nanobind;

namespace edgewise {

// The first edge of each set of parallel ones: offsets [rows + 1], and how many there are.
static int64_t count_distinct(int threads, int64_t rows, const int64_t* offsets, const int64_t* senders, int64_t* kept) {
  const Pieces pieces(offsets, rows);
  over_items(threads, pieces.count, [&](int64_t piece, int) {
    for (int64_t i = pieces.start(piece), stop = pieces.start(piece + 1); i < stop; ++i) {
      int64_t count = offsets[i + 1] > offsets[i];
      for (int64_t e = offsets[i] + 1; e < offsets[i + 1]; ++e) count += senders[e] != senders[e - 1];
      kept[i + 1] = count;
    }
  });
  kept[0] = 0;
  for (int64_t i = 0; i < rows; ++i) kept[i + 1] += kept[i];
  return kept[rows];
}

static void keep_distinct(int threads, int64_t rows, const int64_t* offsets, const int64_t* senders, const int64_t* kept,
                          int64_t* distinct) {
  const Pieces pieces(offsets, rows);
  over_items(threads, pieces.count, [&](int64_t piece, int) {
    for (int64_t i = pieces.start(piece), stop = pieces.start(piece + 1); i < stop; ++i) {
      int64_t out = kept[i];
      for (int64_t e = offsets[i]; e < offsets[i + 1]; ++e)
        if (e == offsets[i] || senders[e] != senders[e - 1]) distinct[out++] = senders[e];
    }
  });
}

static const int64_t* in(uintptr_t address) { return reinterpret_cast<const int64_t*>(address); }
static int64_t* out(uintptr_t address) { return reinterpret_cast<int64_t*>(address); }

void bind_building(nb::module_& module);
void bind_building(nb::module_& module) {
  module.def("sort_edges", [](int threads, int64_t count, int64_t rows, int64_t columns, uintptr_t majors, uintptr_t minors,
                              bool minors_ascend, uintptr_t offsets, uintptr_t sorted, uintptr_t order) {
    nb::gil_scoped_release unlocked;
    sort_edges({threads, count, rows, columns, in(majors), in(minors), minors_ascend, out(offsets), out(sorted), out(order)});
  });
  module.def("by_receiver", [](int threads, int64_t count, int64_t rows, int64_t columns, uintptr_t receivers, uintptr_t senders,
                               uintptr_t offsets, uintptr_t index, uintptr_t order) {
    nb::gil_scoped_release unlocked;
    return by_receiver({threads, count, rows, columns, in(receivers), in(senders), out(offsets),
                        reinterpret_cast<int32_t*>(index), reinterpret_cast<int32_t*>(order)});
  });
  module.def("count_distinct", [](int threads, int64_t rows, uintptr_t offsets, uintptr_t senders, uintptr_t kept) {
    nb::gil_scoped_release unlocked;
    return count_distinct(threads, rows, in(offsets), in(senders), out(kept));
  });
  module.def("keep_distinct", [](int threads, int64_t rows, uintptr_t offsets, uintptr_t senders, uintptr_t kept,
                                 uintptr_t distinct) {
    nb::gil_scoped_release unlocked;
    keep_distinct(threads, rows, in(offsets), in(senders), in(kept), out(distinct));
  });
}

}  // namespace edgewise
