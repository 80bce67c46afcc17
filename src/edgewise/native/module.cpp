// The module that Python imports: which instruction set runs, and what each part of the package adds.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "instruction_sets.hpp"
#include "processor.hpp"

namespace nb = nanobind;

namespace edgewise {

#define EDGEWISE_NAME(isa, ...) #isa,
static constexpr const char* NAMES[] = {EDGEWISE_BUILDS(EDGEWISE_NAME)};

static std::vector<std::string> names_here() {
  std::vector<std::string> names;
  for (const char* name : NAMES)
    if (runs_here(name)) names.push_back(name);
  return names;
}

static int running = 0;

int chosen_instruction_set() { return running; }

static void choose(const std::string& name) {
  int position = 0;
  for (const char* known : NAMES) {
    if (name == known && runs_here(known)) {
      running = position;
      return;
    }
    ++position;
  }
  throw nb::value_error("this machine or build does not have that instruction set");
}

void bind_building(nb::module_& module);  // graphs: building, transposing, coalescing
void bind_sampling(nb::module_& module);  // graphs: neighbours drawn at random
void bind_gathering(nb::module_& module); // graphs: rows of mapped arrays
void bind_kernels(nb::module_& module);   // kernels

}  // namespace edgewise

using namespace edgewise;

NB_MODULE(_native, module) {
  const std::vector<std::string> here = names_here();
  if (here.empty())
    throw std::runtime_error(std::string("they were built for x86-64-") + NAMES[0] + ", which this processor is not");
  choose(here.back());
  module.def("built_for", [] { return std::vector<std::string>(std::begin(NAMES), std::end(NAMES)); });
  module.def("instruction_sets", names_here);
  module.def("instruction_set", [] { return std::string(NAMES[running]); });
  module.def("use_instruction_set", choose);
  bind_building(module);
  bind_sampling(module);
  bind_gathering(module);
  bind_kernels(module);
}
