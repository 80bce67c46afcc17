// Perceptrons: what Python sees. The kernels themselves are in kernels.cpp.
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
  nb::class_<Perceptron>(module, "Perceptron")
      .def("__init__",
           [](Perceptron* self, int threads, int64_t rows, int inputs, int hidden, int outputs, double eps, double momentum,
              uintptr_t x, uintptr_t up, uintptr_t up_bias, uintptr_t down, uintptr_t down_bias, uintptr_t scale, uintptr_t shift,
              uintptr_t z, uintptr_t mean, uintptr_t inverse) {
             Perceptron& call = *new (self) Perceptron;
             call.threads = threads, call.rows = rows, call.inputs = inputs, call.hidden = hidden, call.outputs = outputs;
             call.eps = eps, call.momentum = momentum, call.x = at(x), call.up = at(up), call.up_bias = at(up_bias);
             call.down = at(down), call.down_bias = at(down_bias), call.scale = at(scale), call.shift = at(shift);
             call.z = writable(z), call.mean = writable(mean), call.inverse = writable(inverse);
           })
      .def("set_sum",
           [](Perceptron& self, int64_t rows, int64_t edges, uintptr_t offsets, uintptr_t index, uintptr_t edge, double own,
              uintptr_t s) {
             self.graph = {rows, edges, (const int64_t*)at(offsets), (const int32_t*)at(index), (const int32_t*)at(edge)};
             self.own = own, self.s = writable(s);
           })
      .def("set_results",
           [](Perceptron& self, uintptr_t y, uintptr_t running_mean, uintptr_t running_variance) {
             self.y = writable(y), self.running_mean = writable(running_mean);
             self.running_variance = writable(running_variance);
           })
      .def("set_gradients", [](Perceptron& self, uintptr_t dy, uintptr_t dx, uintptr_t dup, uintptr_t dup_bias, uintptr_t ddown,
                               uintptr_t ddown_bias, uintptr_t dscale, uintptr_t dshift) {
        self.dy = at(dy), self.dx = writable(dx), self.dup = writable(dup), self.dup_bias = writable(dup_bias);
        self.ddown = writable(ddown), self.ddown_bias = writable(ddown_bias);
        self.dscale = writable(dscale), self.dshift = writable(dshift);
      });
  nb::class_<Combined>(module, "Combined")
      .def("__init__",
           [](Combined* self, int threads, int bases, int channels, const Adjacency& transpose, int64_t x_row, int64_t x_base,
              uintptr_t x, uintptr_t weight) {
             Combined& call = *new (self) Combined;
             call.threads = threads, call.bases = bases, call.channels = channels, call.transpose = transpose;
             call.x_row = x_row, call.x_base = x_base, call.x = at(x), call.weight = at(weight);
           })
      .def("set_results", [](Combined& self, uintptr_t m) { self.m = writable(m); })
      .def("set_gradients", [](Combined& self, uintptr_t g, uintptr_t dx, uintptr_t dweight) {
        self.g = at(g), self.dx = writable(dx), self.dweight = writable(dweight);
      });
  module.def("combine", [](int dtype, const Combined& call) {
    const NetworkTable& table = chosen<NetworkTable>();
    nb::gil_scoped_release unlocked;
    table.combine[dtype](call);
  });
  module.def("combine_gradient", [](int dtype, const Combined& call) {
    const NetworkTable& table = chosen<NetworkTable>();
    nb::gil_scoped_release unlocked;
    table.combine_gradient[dtype](call);
  });
  module.def("perceptron_lanes", [](int dtype) { return chosen<NetworkTable>().lanes[dtype]; });
  module.def("perceptron", [](int dtype, const Perceptron& call) {
    const NetworkTable& table = chosen<NetworkTable>();
    nb::gil_scoped_release unlocked;
    table.perceptron[dtype](call);
  });
  module.def("perceptron_gradient", [](int dtype, const Perceptron& call) {
    const NetworkTable& table = chosen<NetworkTable>();
    nb::gil_scoped_release unlocked;
    table.perceptron_gradient[dtype](call);
  });
}

}  // namespace edgewise
