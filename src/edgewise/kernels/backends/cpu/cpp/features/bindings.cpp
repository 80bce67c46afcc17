// Features of edges: what Python sees. The kernels themselves are in kernels.cpp.
#include <nanobind/nanobind.h>

#include "features/table.hpp"
#include "instruction_sets.hpp"

namespace nb = nanobind;

EDGEWISE_TABLES(FeaturesTable, features_table)

namespace edgewise {

void bind_features(nb::module_& module);

template <class Call, void (*const (FeaturesTable::*kernel)[DTYPES])(const Call&)>
static void run(int dtype, const Call& call) {
  nb::gil_scoped_release unlocked;
  (chosen().*kernel)[dtype](call);
}

template <class Binding, class Class, class Pointer>
static void pointer(Binding& in, const char* name, Pointer Class::*field) {
  in.def_prop_rw(
      name, [field](const Class& self) { return reinterpret_cast<uintptr_t>(self.*field); },
      [field](Class& self, uintptr_t address) { self.*field = reinterpret_cast<Pointer>(address); });
}

void bind_features(nb::module_& module) {
  nb::class_<Vectors> vectors(module, "Vectors");
  vectors.def(nb::init<>())
      .def_rw("threads", &Vectors::threads)
      .def_rw("batch", &Vectors::batch)
      .def_rw("heads", &Vectors::heads)
      .def_rw("vectors", &Vectors::vectors)
      .def_rw("channels", &Vectors::channels)
      .def_rw("graph", &Vectors::graph)
      .def_rw("x_batch_stride", &Vectors::x_batch_stride)
      .def_rw("x_row_stride", &Vectors::x_row_stride);
  pointer(vectors, "u", &Vectors::u);
  pointer(vectors, "w", &Vectors::w);
  pointer(vectors, "x", &Vectors::x);
  pointer(vectors, "out", &Vectors::out);

  nb::class_<Softmax> softmax(module, "Softmax");
  softmax.def(nb::init<>())
      .def_rw("threads", &Softmax::threads)
      .def_rw("batch", &Softmax::batch)
      .def_rw("heads", &Softmax::heads)
      .def_rw("graph", &Softmax::graph);
  pointer(softmax, "s", &Softmax::s);
  pointer(softmax, "dp", &Softmax::dp);
  pointer(softmax, "out", &Softmax::out);

  nb::class_<Ends> ends(module, "Ends");
  ends.def(nb::init<>())
      .def_rw("threads", &Ends::threads)
      .def_rw("batch", &Ends::batch)
      .def_rw("senders", &Ends::senders)
      .def_rw("heads", &Ends::heads)
      .def_rw("slope", &Ends::slope)
      .def_rw("graph", &Ends::graph)
      .def_rw("x_batch_stride", &Ends::x_batch_stride);
  pointer(ends, "a", &Ends::a);
  pointer(ends, "b", &Ends::b);
  pointer(ends, "x", &Ends::x);
  pointer(ends, "ds", &Ends::ds);
  pointer(ends, "out", &Ends::out);
  pointer(ends, "da", &Ends::da);

  nb::class_<Terms> terms(module, "Terms");
  terms.def_rw("threads", &Terms::threads)
      .def_rw("batch", &Terms::batch)
      .def_rw("width", &Terms::width)
      .def_rw("inputs", &Terms::inputs)
      .def_rw("graph", &Terms::graph)
      .def_rw("transpose", &Terms::transpose)
      .def_rw("a", &Terms::a)
      .def_rw("b", &Terms::b)
      .def_rw("one", &Terms::one)
      .def_rw("e_batch_stride", &Terms::e_batch_stride);
  pointer(terms, "e", &Terms::e);
  pointer(terms, "weight", &Terms::weight);
  pointer(terms, "da", &Terms::da);
  pointer(terms, "db", &Terms::db);
  pointer(terms, "de", &Terms::de);
  pointer(terms, "dweight", &Terms::dweight);
  pointer(terms, "signs", &Terms::signs);

  nb::class_<Activations, Terms> activations(module, "Activations");
  activations.def(nb::init<>()).def_rw("kind", &Activations::kind);
  activations.def_rw("own", &Activations::own).def_rw("x", &Activations::x);
  pointer(activations, "down", &Activations::down);
  pointer(activations, "t", &Activations::t);
  pointer(activations, "y", &Activations::y);
  pointer(activations, "dt", &Activations::dt);
  pointer(activations, "dy", &Activations::dy);
  pointer(activations, "dx", &Activations::dx);

  nb::class_<Scores, Terms> scores(module, "Scores");
  scores.def(nb::init<>()).def_rw("heads", &Scores::heads).def_rw("slope", &Scores::slope);
  pointer(scores, "readout", &Scores::readout);
  pointer(scores, "s", &Scores::s);
  pointer(scores, "ds", &Scores::ds);
  pointer(scores, "dreadout", &Scores::dreadout);

  nb::class_<Heads> heads(module, "Heads");
  heads.def(nb::init<>())
      .def_rw("threads", &Heads::threads)
      .def_rw("rows", &Heads::rows)
      .def_rw("heads", &Heads::heads)
      .def_rw("inputs", &Heads::inputs)
      .def_rw("outputs", &Heads::outputs);
  pointer(heads, "x", &Heads::x);
  pointer(heads, "y", &Heads::y);
  pointer(heads, "weight", &Heads::weight);

  nb::class_<FeaturedAttention> attention(module, "FeaturedAttention");
  attention.def(nb::init<>())
      .def_rw("threads", &FeaturedAttention::threads)
      .def_rw("batch", &FeaturedAttention::batch)
      .def_rw("heads", &FeaturedAttention::heads)
      .def_rw("channels", &FeaturedAttention::channels)
      .def_rw("values", &FeaturedAttention::values)
      .def_rw("inputs", &FeaturedAttention::inputs)
      .def_rw("scale", &FeaturedAttention::scale)
      .def_rw("dropout", &FeaturedAttention::dropout)
      .def_rw("seed", &FeaturedAttention::seed)
      .def_rw("graph", &FeaturedAttention::graph)
      .def_rw("transpose", &FeaturedAttention::transpose)
      .def_rw("q", &FeaturedAttention::q)
      .def_rw("k", &FeaturedAttention::k)
      .def_rw("v", &FeaturedAttention::v)
      .def_rw("y", &FeaturedAttention::y)
      .def_rw("dy", &FeaturedAttention::dy)
      .def_rw("dq", &FeaturedAttention::dq)
      .def_rw("dk", &FeaturedAttention::dk)
      .def_rw("dv", &FeaturedAttention::dv)
      .def_rw("x_batch_stride", &FeaturedAttention::x_batch_stride)
      .def_rw("bias_batch_stride", &FeaturedAttention::bias_batch_stride);
  pointer(attention, "x", &FeaturedAttention::x);
  pointer(attention, "bias", &FeaturedAttention::bias);
  pointer(attention, "key_weight", &FeaturedAttention::key_weight);
  pointer(attention, "value_weight", &FeaturedAttention::value_weight);
  pointer(attention, "p", &FeaturedAttention::p);
  pointer(attention, "dx", &FeaturedAttention::dx);
  pointer(attention, "dbias", &FeaturedAttention::dbias);
  pointer(attention, "dkey_weight", &FeaturedAttention::dkey_weight);
  pointer(attention, "dvalue_weight", &FeaturedAttention::dvalue_weight);

  module.def("edge_dots", &run<Vectors, &FeaturesTable::dots>);
  module.def("edge_sums", &run<Vectors, &FeaturesTable::sums>);
  module.def("edge_spread", &run<Vectors, &FeaturesTable::spread>);
  module.def("edge_softmax", &run<Softmax, &FeaturesTable::softmax>);
  module.def("edge_ends", &run<Ends, &FeaturesTable::ends>);
  module.def("edge_activations", &run<Activations, &FeaturesTable::activations>);
  module.def("edge_activations_gradient", &run<Activations, &FeaturesTable::activations_gradient>);
  module.def("edge_scores", &run<Scores, &FeaturesTable::scores>);
  module.def("edge_scores_gradient", &run<Scores, &FeaturesTable::scores_gradient>);
  module.def("attend_features", &run<FeaturedAttention, &FeaturesTable::attention>);
  module.def("attend_features_gradient", &run<FeaturedAttention, &FeaturesTable::attention_gradient>);
  module.def("by_heads", &run<Heads, &FeaturesTable::by_heads>);
  module.def("by_heads_gradient", &run<Heads, &FeaturesTable::by_heads_gradient>);
}

}  // namespace edgewise
