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
      .def_rw("transpose", &Network::transpose)
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
      .def("set_gradients", [](Network& self, uintptr_t dy, uintptr_t dr, uintptr_t da, uintptr_t db, uintptr_t dx, uintptr_t ds) {
        self.dy = at(dy), self.dr = at(dr), self.da = writable(da), self.db = writable(db);
        self.dx = writable(dx), self.ds = writable(ds);
      });
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
  nb::class_<Coupled>(module, "Coupled")
      .def("__init__",
           [](Coupled* self, int threads, int channels, int rows, int weights, int harmonic, int outputs, int sums, int paths,
              uintptr_t path, uintptr_t coefficients, const Adjacency& graph, uintptr_t h, uintptr_t weight, uintptr_t harmonics) {
             Coupled& call = *new (self) Coupled;
             call.threads = threads, call.channels = channels, call.rows = rows, call.weights = weights, call.harmonic = harmonic;
             call.outputs = outputs, call.sums = sums, call.paths = paths, call.path = (const CouplingPath*)at(path);
             call.coefficients = at(coefficients), call.graph = graph, call.h = at(h), call.weight = at(weight);
             call.harmonics = at(harmonics);
           })
      .def("set_results", [](Coupled& self, uintptr_t y) { self.y = writable(y); })
      .def("set_gradients", [](Coupled& self, const Adjacency& transpose, uintptr_t dy, uintptr_t dsums, uintptr_t dh,
                               uintptr_t dweight, uintptr_t dharmonics) {
        self.transpose = transpose, self.dy = at(dy), self.dsums = writable(dsums), self.dh = writable(dh);
        self.dweight = writable(dweight), self.dharmonics = writable(dharmonics);
      });
  module.def("couple", [](int dtype, const Coupled& call) {
    const NetworkTable& table = chosen();
    nb::gil_scoped_release unlocked;
    table.couple[dtype](call);
  });
  module.def("couple_gradient", [](int dtype, const Coupled& call) {
    const NetworkTable& table = chosen();
    nb::gil_scoped_release unlocked;
    table.couple_gradient[dtype](call);
  });
  module.def("combine", [](int dtype, const Combined& call) {
    const NetworkTable& table = chosen();
    nb::gil_scoped_release unlocked;
    table.combine[dtype](call);
  });
  module.def("combine_gradient", [](int dtype, const Combined& call) {
    const NetworkTable& table = chosen();
    nb::gil_scoped_release unlocked;
    table.combine_gradient[dtype](call);
  });
  module.def("perceptron_lanes", [](int dtype) { return chosen().lanes[dtype]; });
  module.def("perceptron", [](int dtype, const Perceptron& call) {
    const NetworkTable& table = chosen();
    nb::gil_scoped_release unlocked;
    table.perceptron[dtype](call);
  });
  module.def("perceptron_gradient", [](int dtype, const Perceptron& call) {
    const NetworkTable& table = chosen();
    nb::gil_scoped_release unlocked;
    table.perceptron_gradient[dtype](call);
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
