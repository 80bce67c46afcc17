// What Python sees: plain structures to fill in, and functions that run them without the interpreter's lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "builds.hpp"  // made by CMake: EDGEWISE_BUILDS(each) names each(v2) each(v3) ...
#include "parallel.hpp"
#include "table.hpp"

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace nb = nanobind;

#define EDGEWISE_BUILD(isa) \
  namespace edgewise::isa { \
  extern const Table table; \
  }
EDGEWISE_BUILDS(EDGEWISE_BUILD)

namespace edgewise {

static bool forked = false;

int usable_threads(int wanted) { return forked ? 1 : wanted; }

static bool runs_here(const std::string& isa) {
#if defined(__x86_64__) || defined(_M_X64)
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (isa == "v3") return v3;
  if (isa == "v4")
    return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return true;
}

// Best last, as the build lists them.
static std::vector<const Table*> tables() {
  std::vector<const Table*> found;
#define EDGEWISE_LIST(isa) \
  if (runs_here(#isa)) found.push_back(&isa::table);
  EDGEWISE_BUILDS(EDGEWISE_LIST)
#undef EDGEWISE_LIST
  return found;
}

static const Table* chosen = nullptr;

const char* chosen_instruction_set() { return chosen->name; }

void bind_building(nb::module_& module);  // graphs: building, transposing, coalescing
void bind_sampling(nb::module_& module);  // graphs: neighbours drawn at random
void bind_tiles(nb::module_& module);     // attention on ranges, as dense tiles
void bind_network(nb::module_& module);   // networks on edges

template <class Call, void (*const (Table::*kernel)[DTYPES])(const Call&)>
static void run(int dtype, const Call& call) {
  nb::gil_scoped_release unlocked;
  (chosen->*kernel)[dtype](call);
}

}  // namespace edgewise

using namespace edgewise;

template <class Class, class Object, class Pointer>
static void pointer(nb::class_<Class>& in, const char* name, Pointer Object::*field) {
  in.def_prop_rw(
      name, [field](const Class& self) { return reinterpret_cast<uintptr_t>(self.*field); },
      [field](Class& self, uintptr_t address) { self.*field = reinterpret_cast<Pointer>(address); });
}

NB_MODULE(_native, module) {
#if !defined(_WIN32)
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif
  chosen = tables().back();

  module.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const Table* table : tables()) names.push_back(table->name);
    return names;
  });
  module.def("instruction_set", [] { return std::string(chosen->name); });
  module.def("use_instruction_set", [](const std::string& name) {
    for (const Table* table : tables())
      if (name == table->name) {
        chosen = table;
        return;
      }
    throw nb::value_error("this machine or build does not have that instruction set");
  });

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
      .def_rw("heads", &Product::heads)
      .def_rw("channels", &Product::channels)
      .def_rw("weight_heads", &Product::weight_heads)
      .def_rw("both", &Product::both)
      .def_rw("weight_batch_stride", &Product::weight_batch_stride)
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

  module.def("product", &run<Product, &Table::product>);
  module.def("product_gradient", &run<Product, &Table::product_gradient>);
  module.def("extreme_share", &run<Product, &Table::extreme_share>);
  module.def("extreme_gradient", &run<Product, &Table::extreme_gradient>);
  module.def("extreme_weight_gradient", &run<Product, &Table::extreme_weight_gradient>);
  module.def("attend", &run<Attention, &Table::attend>);
  module.def("attend_gradient", &run<Attention, &Table::attend_gradient>);
  module.def("drop", [](int dtype, int threads, uint64_t seed, double dropout, int64_t count, uintptr_t x, uintptr_t y) {
    nb::gil_scoped_release release;
    chosen->drop[dtype](threads, seed, dropout, count, reinterpret_cast<const void*>(x), reinterpret_cast<void*>(y));
  });
  bind_building(module);
  bind_sampling(module);
  bind_tiles(module);
  bind_network(module);
}
