// The kernels as Python sees them: classes of arguments, which it fills in, and functions that take a dtype's number and one of
// these. Pointers are addresses; nothing is checked here.
#include <nanobind/nanobind.h>

#include <type_traits>

#include "edges/table.hpp"
#include "features/table.hpp"
#include "instruction_sets.hpp"
#include "network/table.hpp"
#include "tiles/table.hpp"

namespace nb = nanobind;

EDGEWISE_TABLES(EdgesTable, edges_table)
EDGEWISE_TABLES(FeaturesTable, features_table)
EDGEWISE_TABLES(NetworkTable, network_table)
EDGEWISE_TABLES(TilesTable, tiles_table)

// EACH(f, Class, a, b) is f(Class, a) f(Class, b).
#define AGAIN(...) AGAIN_4(AGAIN_4(AGAIN_4(AGAIN_4(__VA_ARGS__))))
#define AGAIN_4(...) AGAIN_16(AGAIN_16(AGAIN_16(AGAIN_16(__VA_ARGS__))))
#define AGAIN_16(...) AGAIN_64(AGAIN_64(AGAIN_64(AGAIN_64(__VA_ARGS__))))
#define AGAIN_64(...) __VA_ARGS__
#define PARENTHESES ()
#define EACH(f, Class, ...) AGAIN(EACH_ONE(f, Class, __VA_ARGS__))
#define EACH_ONE(f, Class, first, ...) f(Class, first) __VA_OPT__(EACH_NEXT PARENTHESES (f, Class, __VA_ARGS__))
#define EACH_NEXT() EACH_ONE

#define FIELD(Class, name) .field(#name, &Class::name)
#define FIELDS(Class, ...) Fields<Class>(module, #Class) EACH(FIELD, Class, __VA_ARGS__)
#define KERNEL(Table, name) define(module, #name, &Table::name);
#define KERNELS(Table, ...) EACH(KERNEL, Table, __VA_ARGS__)

namespace edgewise {

template <class Call>
struct Fields {
  nb::class_<Call> in;

  Fields(nb::module_& module, const char* name) : in(module, name) { in.def(nb::init<>()); }

  template <class Base, class Field>
  Fields& field(const char* name, Field Base::*field) {
    using Given = std::conditional_t<std::is_pointer_v<Field>, uintptr_t, Field>;
    in.def_prop_rw(name, nullptr, [field](Call& self, Given given) { self.*field = (Field)given; });
    return *this;
  }
};

template <class Table, class Call>
void define(nb::module_& module, const char* name, void (*const (Table::*kernel)[DTYPES])(const Call&)) {
  module.def(name, [kernel](int dtype, const Call& call) {
    nb::gil_scoped_release unlocked;
    (chosen<Table>().*kernel)[dtype](call);
  });
}

static void set_map(Network& self, int number, int inputs, int outputs, uintptr_t weight, uintptr_t bias, uintptr_t dweight,
                    uintptr_t dbias) {
  if (number < 0 || number >= Network::MOST) throw nb::value_error("a network has at most 8 linear maps");
  self.map[number] = {inputs, outputs, (const void*)weight, (const void*)bias, (void*)dweight, (void*)dbias};
}

void bind_kernels(nb::module_& module);
void bind_kernels(nb::module_& module) {
  nb::class_<Matrix>(module, "Matrix")
      .def("__init__", [](Matrix* self, uintptr_t data, int64_t batch_stride, int64_t row_stride) {
        new (self) Matrix{(void*)data, batch_stride, row_stride};
      });
  nb::class_<Adjacency>(module, "Adjacency")
      .def("__init__", [](Adjacency* self, int64_t rows, int64_t edges, uintptr_t offsets, uintptr_t index, uintptr_t edge) {
        new (self) Adjacency{rows, edges, (const int64_t*)offsets, (const int32_t*)index, (const int32_t*)edge};
      });

  FIELDS(Product, threads, reduce, batch, senders, heads, channels, weight_heads, weight, weight_batch_stride, graph, x, y,
         g, out);
  FIELDS(Attention, threads, score, batch, senders, heads, channels, values, scale, slope, dropout, seed, graph, transpose,
         transposed, q, k, v, y, dy, dq, dk, dv, a, bias, bias_batch_stride, lse, positive, da, dbias);
  KERNELS(EdgesTable, product, product_gradient, extreme_share, extreme_gradient, extreme_weight_gradient, attend, attend_gradient)
  module.def("drop", [](int dtype, int threads, uint64_t seed, double dropout, int64_t count, uintptr_t x, uintptr_t y) {
    nb::gil_scoped_release unlocked;
    chosen<EdgesTable>().drop[dtype](threads, seed, dropout, count, (const void*)x, (void*)y);
  });

  FIELDS(Tiling, threads, batch, heads, channels, values, scale, dropout, seed, receivers, senders, ranges, starts, stops, order,
         places, pairs, bias, bias_batch_stride, parts, dbias, q, k, v, y, dy, dq, dk, dv, lse);
  KERNELS(TilesTable, attend_tiles, attend_tiles_gradient)
  module.def("pairs_in_tiles", [](const Tiling& call) { return chosen<TilesTable>().pairs(call); });

  FIELDS(Network, threads, activation, maps, collected, reach, graph, transpose, a, b, x, s, y, r, dy, dr, da, db, dx, ds)
      .in.def("set_map", set_map);
  FIELDS(Coupled, threads, channels, rows, weights, harmonic, outputs, sums, paths, graph, transpose, path, coefficients, h, weight,
         harmonics, y, dy, dsums, dh, dweight, dharmonics);
  KERNELS(NetworkTable, network, network_gradient, couple, couple_gradient)

  FIELDS(Vectors, threads, batch, heads, vectors, channels, graph, u, w, x, x_batch_stride, x_row_stride, out);
  FIELDS(Softmax, threads, batch, heads, graph, s, dp, out);
  FIELDS(Ends, threads, batch, senders, heads, slope, graph, a, b, x, x_batch_stride, ds, out, da);
  FIELDS(Activations, threads, batch, width, inputs, graph, transpose, a, b, one, e, weight, e_batch_stride, da, db, de, dweight,
         signs, kind, x, t, y, dt, dy, dx);
  FIELDS(Scores, threads, batch, width, inputs, graph, transpose, a, b, one, e, weight, e_batch_stride, da, db, de, dweight, signs,
         heads, slope, readout, s, ds, dreadout);
  FIELDS(FeaturedAttention, threads, batch, heads, channels, values, inputs, scale, dropout, seed, graph, transpose, q, k, v, y, dy,
         dq, dk, dv, x, bias, x_batch_stride, bias_batch_stride, key_weight, value_weight, p, dx, dbias, dkey_weight, dvalue_weight);
  KERNELS(FeaturesTable, edge_dots, edge_sums, edge_spread, edge_softmax, edge_ends, edge_activations, edge_activations_gradient,
          edge_scores, edge_scores_gradient, attend_features, attend_features_gradient)
}

}  // namespace edgewise
