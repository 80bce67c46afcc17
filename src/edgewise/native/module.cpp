// The module that Python imports: which instruction set runs, and what each part of the package adds.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>
#include <vector>

#include "instruction_sets.hpp"
#include "parallel.hpp"

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace nb = nanobind;

namespace edgewise {

static bool forked = false;

int usable_threads(int wanted) { return forked ? 1 : wanted; }

#define EDGEWISE_NAME(isa, ...) #isa,
static constexpr const char* NAMES[] = {EDGEWISE_BUILDS(EDGEWISE_NAME)};

static bool runs_here(const char* isa) {
#if defined(__x86_64__) || defined(_M_X64)
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (!std::strcmp(isa, "v3")) return v3;
  if (!std::strcmp(isa, "v4"))
    return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return true;
}

static std::vector<std::string> names_here() {
  std::vector<std::string> names;
  for (const char* name : NAMES)
    if (runs_here(name)) names.push_back(name);
  return names;
}

static int chosen = 0;

int chosen_instruction_set() { return chosen; }

static void choose(const std::string& name) {
  int position = 0;
  for (const char* known : NAMES) {
    if (name == known && runs_here(known)) {
      chosen = position;
      return;
    }
    ++position;
  }
  throw nb::value_error("this machine or build does not have that instruction set");
}

void bind_building(nb::module_& module);  // graphs: building, transposing, coalescing
void bind_sampling(nb::module_& module);  // graphs: neighbours drawn at random
void bind_edges(nb::module_& module);     // kernels: products and attention on edges
void bind_tiles(nb::module_& module);     // kernels: attention on ranges, as dense tiles
void bind_network(nb::module_& module);   // kernels: networks on edges

}  // namespace edgewise

using namespace edgewise;

NB_MODULE(_native, module) {
#if !defined(_WIN32)
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif
  choose(names_here().back());
  module.def("instruction_sets", names_here);
  module.def("instruction_set", [] { return std::string(NAMES[chosen]); });
  module.def("use_instruction_set", choose);
  bind_building(module);
  bind_sampling(module);
  bind_edges(module);
  bind_tiles(module);
  bind_network(module);
}
