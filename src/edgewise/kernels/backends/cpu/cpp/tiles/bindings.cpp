// Attention on ranges as blocked dense tiles: what Python sees. The kernels themselves are in kernels.cpp.
#include <nanobind/nanobind.h>

#include "instruction_sets.hpp"
#include "tiles/table.hpp"

namespace nb = nanobind;

EDGEWISE_TABLES(TilesTable, tiles_table)

namespace edgewise {

void bind_tiles(nb::module_& module);

void bind_tiles(nb::module_& module) {
  nb::class_<Tiling> tiling(module, "Tiling");
  tiling.def(nb::init<>())
      .def_rw("threads", &Tiling::threads)
      .def_rw("batch", &Tiling::batch)
      .def_rw("heads", &Tiling::heads)
      .def_rw("channels", &Tiling::channels)
      .def_rw("values", &Tiling::values)
      .def_rw("scale", &Tiling::scale)
      .def_rw("dropout", &Tiling::dropout)
      .def_rw("seed", &Tiling::seed)
      .def_rw("receivers", &Tiling::receivers)
      .def_rw("senders", &Tiling::senders)
      .def_rw("q", &Tiling::q)
      .def_rw("k", &Tiling::k)
      .def_rw("v", &Tiling::v)
      .def_rw("y", &Tiling::y)
      .def_rw("dy", &Tiling::dy)
      .def_rw("dq", &Tiling::dq)
      .def_rw("dk", &Tiling::dk)
      .def_rw("dv", &Tiling::dv)
      .def("set_ranges",
           [](Tiling& self, int64_t ranges, uintptr_t starts, uintptr_t stops) {
             self.ranges = ranges;
             self.starts = reinterpret_cast<const int64_t*>(starts);
             self.stops = reinterpret_cast<const int64_t*>(stops);
           })
      .def("set_words",
           [](Tiling& self, uintptr_t words, uintptr_t blocks) {
             self.words = reinterpret_cast<const uint32_t*>(words);
             self.blocks = reinterpret_cast<const Tiling::Block*>(blocks);
           })
      .def("set_order", [](Tiling& self, uintptr_t order) { self.order = reinterpret_cast<const int64_t*>(order); })
      .def("set_bias",
           [](Tiling& self, int64_t pairs, uintptr_t places, uintptr_t bias, int64_t batch_stride) {
             self.pairs = pairs;
             self.places = reinterpret_cast<const int64_t*>(places);
             self.bias = reinterpret_cast<const void*>(bias);
             self.bias_batch_stride = batch_stride;
           })
      .def("set_dbias",
           [](Tiling& self, int64_t parts, uintptr_t dbias) {
             self.parts = parts;
             self.dbias = reinterpret_cast<void*>(dbias);
           })
      .def("set_finite", [](Tiling& self, uintptr_t finite) { self.finite = reinterpret_cast<bool*>(finite); })
      .def_prop_rw(
          "lse", [](const Tiling& self) { return reinterpret_cast<uintptr_t>(self.lse); },
          [](Tiling& self, uintptr_t address) { self.lse = reinterpret_cast<void*>(address); });
  module.def("pairs_in_tiles", [](const Tiling& call) { return chosen().pairs(call); });
  module.def("attend_tiles", [](int dtype, const Tiling& call) {
    const TilesTable& table = chosen();
    nb::gil_scoped_release unlocked;
    table.attend[dtype](call);
  });
  module.def("attend_tiles_gradient", [](int dtype, const Tiling& call) {
    const TilesTable& table = chosen();
    nb::gil_scoped_release unlocked;
    table.attend_gradient[dtype](call);
  });
}

}  // namespace edgewise
