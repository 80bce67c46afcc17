// Networks on edges: what Python sees. The kernels themselves are in kernels.cpp.
#include <nanobind/nanobind.h>

#include "instruction_sets.hpp"
#include "network/table.hpp"

namespace nb = nanobind;

EDGEWISE_TABLES(NetworkTable, network_table)

namespace edgewise {

void bind_network(nb::module_& module);

static const void* at(uintptr_t address) { return reinterpret_cast<const void*>(address); }
static void* writable(uintptr_t address) { return reinterpret_cast<void*>(address); }

void bind_network(nb::module_& module) {
  nb::class_<Network>(module, "Network")
      .def(nb::init<>())
      .def_rw("threads", &Network::threads)
      .def_rw("activation", &Network::activation)
      .def_rw("maps", &Network::maps)
      .def_rw("collected", &Network::collected)
      .def_rw("reach", &Network::reach)
      .def_rw("graph", &Network::graph)
      .def("set_map",
           [](Network& self, int number, int inputs, int outputs, uintptr_t weight, uintptr_t bias) {
             if (number < 0 || number >= Network::MOST) throw nb::value_error("a network has at most 8 linear maps");
             LinearMap& map = self.map[number];
             map.inputs = inputs, map.outputs = outputs, map.weight = at(weight), map.bias = at(bias);
           })
      .def("set_map_gradient",
           [](Network& self, int number, uintptr_t dweight, uintptr_t dbias) {
             if (number < 0 || number >= Network::MOST) throw nb::value_error("a network has at most 8 linear maps");
             self.map[number].dweight = writable(dweight), self.map[number].dbias = writable(dbias);
           })
      .def("set_inputs",
           [](Network& self, uintptr_t a, uintptr_t b, uintptr_t x, uintptr_t s) {
             self.a = at(a), self.b = at(b), self.x = at(x), self.s = at(s);
           })
      .def("set_results", [](Network& self, uintptr_t y, uintptr_t r) { self.y = writable(y), self.r = writable(r); })
      .def("set_gradients", [](Network& self, uintptr_t dy, uintptr_t dr, uintptr_t da, uintptr_t dz, uintptr_t dx, uintptr_t ds) {
        self.dy = at(dy), self.dr = at(dr), self.da = writable(da), self.dz = writable(dz);
        self.dx = writable(dx), self.ds = writable(ds);
      });
  module.def("network", [](int dtype, const Network& call) {
    const NetworkTable& table = chosen();
    nb::gil_scoped_release unlocked;
    table.network[dtype](call);
  });
  module.def("network_gradient", [](int dtype, const Network& call) {
    const NetworkTable& table = chosen();
    nb::gil_scoped_release unlocked;
    table.network_gradient[dtype](call);
  });
}

}  // namespace edgewise
