// Products and attention on edges, and dropout: what Python sees. The kernels themselves are in kernels.cpp.
#include <nanobind/nanobind.h>

#include "edges/table.hpp"
#include "instruction_sets.hpp"

namespace nb = nanobind;

EDGEWISE_TABLES(EdgesTable, edges_table)

namespace edgewise {

void bind_edges(nb::module_& module);

template <class Call, void (*const (EdgesTable::*kernel)[DTYPES])(const Call&)>
static void run(int dtype, const Call& call) {
  nb::gil_scoped_release unlocked;
  (chosen().*kernel)[dtype](call);
}

template <class Class, class Object, class Pointer>
static void pointer(nb::class_<Class>& in, const char* name, Pointer Object::*field) {
  in.def_prop_rw(
      name, [field](const Class& self) { return reinterpret_cast<uintptr_t>(self.*field); },
      [field](Class& self, uintptr_t address) { self.*field = reinterpret_cast<Pointer>(address); });
}

void bind_edges(nb::module_& module) {
  nb::class_<Matrix>(module, "Matrix")
      .def("__init__", [](Matrix* self, uintptr_t data, int64_t batch_stride, int64_t row_stride) {
        new (self) Matrix{reinterpret_cast<void*>(data), batch_stride, row_stride};
      });

  nb::class_<Adjacency>(module, "Adjacency")
      .def("__init__", [](Adjacency* self, int64_t rows, int64_t edges, uintptr_t offsets, uintptr_t index, uintptr_t edge) {
        new (self) Adjacency{rows, edges, reinterpret_cast<const int64_t*>(offsets), reinterpret_cast<const int32_t*>(index),
                             reinterpret_cast<const int32_t*>(edge)};
      });

  nb::class_<Product> product(module, "Product");
  product.def(nb::init<>())
      .def_rw("threads", &Product::threads)
      .def_rw("reduce", &Product::reduce)
      .def_rw("batch", &Product::batch)
      .def_rw("senders", &Product::senders)
      .def_rw("heads", &Product::heads)
      .def_rw("channels", &Product::channels)
      .def_rw("weight_heads", &Product::weight_heads)
      .def_rw("both", &Product::both)
      .def_rw("weight_batch_stride", &Product::weight_batch_stride)
      .def_rw("own", &Product::own)
      .def_rw("graph", &Product::graph)
      .def_rw("x", &Product::x)
      .def_rw("y", &Product::y)
      .def_rw("g", &Product::g);
  pointer(product, "weight", &Product::weight);
  pointer(product, "out", &Product::out);

  nb::class_<Attention> attention(module, "Attention");
  attention.def(nb::init<>())
      .def_rw("threads", &Attention::threads)
      .def_rw("score", &Attention::score)
      .def_rw("batch", &Attention::batch)
      .def_rw("senders", &Attention::senders)
      .def_rw("heads", &Attention::heads)
      .def_rw("channels", &Attention::channels)
      .def_rw("values", &Attention::values)
      .def_rw("scale", &Attention::scale)
      .def_rw("slope", &Attention::slope)
      .def_rw("dropout", &Attention::dropout)
      .def_rw("seed", &Attention::seed)
      .def_rw("graph", &Attention::graph)
      .def_rw("transpose", &Attention::transpose)
      .def_rw("q", &Attention::q)
      .def_rw("k", &Attention::k)
      .def_rw("v", &Attention::v)
      .def_rw("y", &Attention::y)
      .def_rw("dy", &Attention::dy)
      .def_rw("dq", &Attention::dq)
      .def_rw("dk", &Attention::dk)
      .def_rw("dv", &Attention::dv)
      .def_rw("bias_batch_stride", &Attention::bias_batch_stride);
  pointer(attention, "transposed", &Attention::transposed);
  pointer(attention, "a", &Attention::a);
  pointer(attention, "bias", &Attention::bias);
  pointer(attention, "lse", &Attention::lse);
  pointer(attention, "positive", &Attention::positive);
  pointer(attention, "da", &Attention::da);
  pointer(attention, "dbias", &Attention::dbias);

  module.def("product", &run<Product, &EdgesTable::product>);
  module.def("product_gradient", &run<Product, &EdgesTable::product_gradient>);
  module.def("extreme_share", &run<Product, &EdgesTable::extreme_share>);
  module.def("extreme_gradient", &run<Product, &EdgesTable::extreme_gradient>);
  module.def("extreme_weight_gradient", &run<Product, &EdgesTable::extreme_weight_gradient>);
  module.def("attend", &run<Attention, &EdgesTable::attend>);
  module.def("attend_gradient", &run<Attention, &EdgesTable::attend_gradient>);
  module.def("drop", [](int dtype, int threads, uint64_t seed, double dropout, int64_t count, uintptr_t x, uintptr_t y) {
    nb::gil_scoped_release release;
    chosen().drop[dtype](threads, seed, dropout, count, reinterpret_cast<const void*>(x), reinterpret_cast<void*>(y));
  });
}

}  // namespace edgewise
