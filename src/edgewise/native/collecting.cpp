// Batches of graphs: runs of rows, one for each chosen graph, from where those of all graphs lie.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace nb = nanobind;

namespace edgewise {

// Graph g has the rows bounds[g] .. bounds[g + 1] - 1 of all; those of the chosen graphs are to lie one after the other.
struct Chosen {
  int64_t count;
  const int64_t *graphs, *bounds;

  int64_t size(int64_t n) const { return bounds[graphs[n] + 1] - bounds[graphs[n]]; }
};

// Where the rows of each will begin [count + 1], and thus how many there are.
static int64_t starts(const Chosen& chosen, int64_t* out) {
  int64_t total = 0;
  for (int64_t n = 0; n < chosen.count; ++n) out[n] = total, total += chosen.size(n);
  return out[chosen.count] = total;
}

// Several slabs of rows, `apart` from each other, and the rows of each `between`: all in numbers, which lie together in a row.
struct Extent {
  int64_t slabs, apart, between, row;
};

// Calls copy(n, from, count) for runs of numbers that lie together, of the chosen graph n each.
template <class Number, class Copy>
static void over_runs(const Chosen& chosen, const Extent& extent, const Number* from, const Copy& copy) {
  const bool together = extent.between == extent.row;
  for (int64_t slab = 0; slab < extent.slabs; ++slab, from += extent.apart)
    for (int64_t n = 0; n < chosen.count; ++n) {
      const Number* own = from + chosen.bounds[chosen.graphs[n]] * extent.between;
      if (together) copy(n, own, chosen.size(n) * extent.row);
      else
        for (int64_t i = 0; i < chosen.size(n); ++i) copy(n, own + i * extent.between, extent.row);
    }
}

static void copy_rows(const Chosen& chosen, const Extent& bytes, const char* from, char* out) {
  over_runs(chosen, bytes, from, [&](int64_t, const char* own, int64_t count) {
    if (count > 0) std::memcpy(out, own, size_t(count));  // rows without columns may lie nowhere
    out += count;
  });
}

// Numbers that count from first[graph] on, or from 0 where it is null, and are to count from to[n] on.
template <class Number>
static void copy_numbers(const Chosen& chosen, const Extent& extent, const int64_t* first, const int64_t* to, const void* from,
                         void* result) {
  Number* out = static_cast<Number*>(result);
  over_runs(chosen, extent, static_cast<const Number*>(from), [&](int64_t n, const Number* own, int64_t count) {
    const int64_t shift = to[n] - (first ? first[chosen.graphs[n]] : 0);
    for (int64_t i = 0; i < count; ++i) *out++ = Number(own[i] + shift);
  });
}

static const int64_t* in(uintptr_t address) { return reinterpret_cast<const int64_t*>(address); }

void bind_collecting(nb::module_& module);
void bind_collecting(nb::module_& module) {
  nb::class_<Chosen>(module, "Chosen").def("__init__", [](Chosen* self, int64_t count, uintptr_t graphs, uintptr_t bounds) {
    new (self) Chosen{count, in(graphs), in(bounds)};
  });
  module.def("run_starts", [](const Chosen& chosen, uintptr_t out) { return starts(chosen, reinterpret_cast<int64_t*>(out)); });
  // Of numbers that have `bytes` each; those that are renumbered have 4 or 8.
  module.def("copy_runs", [](const Chosen& chosen, int bytes, int64_t slabs, int64_t apart, int64_t between, int64_t row,
                             uintptr_t from, uintptr_t out) {
    nb::gil_scoped_release unlocked;
    const Extent extent{slabs, apart * bytes, between * bytes, row * bytes};
    copy_rows(chosen, extent, reinterpret_cast<const char*>(from), reinterpret_cast<char*>(out));
  });
  module.def("renumber_runs", [](const Chosen& chosen, int bytes, int64_t slabs, int64_t apart, int64_t between, int64_t row,
                                 uintptr_t from, uintptr_t out, uintptr_t first, uintptr_t to) {
    nb::gil_scoped_release unlocked;
    const auto copy = bytes == 4 ? copy_numbers<int32_t> : copy_numbers<int64_t>;
    const auto* numbers = reinterpret_cast<const void*>(from);
    copy(chosen, {slabs, apart, between, row}, in(first), in(to), numbers, reinterpret_cast<void*>(out));
  });
  // Of each row the number of its graph among the chosen ones.
  module.def("number_runs", [](const Chosen& chosen, uintptr_t out) {
    int64_t* to = reinterpret_cast<int64_t*>(out);
    for (int64_t n = 0; n < chosen.count; ++n) to = std::fill_n(to, chosen.size(n), n);
  });
}

}  // namespace edgewise
