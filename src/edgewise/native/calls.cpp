// The kernels of one instruction set, chosen once: in Python module.cpp chooses.
#include "calls.hpp"

#include "instruction_sets.hpp"
#include "processor.hpp"

#define EDGEWISE_NAME(isa, ...) #isa,

EDGEWISE_BUILDS(EDGEWISE_DECLARE, EdgesTable, edges_table)

namespace edgewise {

const EdgesTable& kernels_here() {
  static constexpr const EdgesTable* tables[] = {EDGEWISE_BUILDS(EDGEWISE_ADDRESS, EdgesTable, edges_table)};
  static constexpr const char* names[] = {EDGEWISE_BUILDS(EDGEWISE_NAME)};
  static const EdgesTable* const best = [] {
    int position = 0, chosen = 0;
    for (const char* name : names) {
      if (runs_here(name)) chosen = position;
      ++position;
    }
    return tables[chosen];
  }();
  return *best;
}

}  // namespace edgewise
