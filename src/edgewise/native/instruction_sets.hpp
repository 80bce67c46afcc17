// The kernels are built once for each instruction set, every build in a namespace of its own; one of them runs.
#pragma once

#include "builds.hpp"  // made by CMake: EDGEWISE_BUILDS(each, ...) is each(v2, ...) each(v3, ...) ..., the best last

namespace edgewise {

int chosen_instruction_set();  // its position among EDGEWISE_BUILDS

template <class Table>
const Table& chosen();

}  // namespace edgewise

#define EDGEWISE_DECLARE(isa, Table, table) \
  namespace edgewise::isa { \
  extern const Table table; \
  }
#define EDGEWISE_ADDRESS(isa, Table, table) &isa::table,

// Defines chosen<Table>(): the table of that name in the build that runs.
#define EDGEWISE_TABLES(Table, table) \
  EDGEWISE_BUILDS(EDGEWISE_DECLARE, Table, table) \
  namespace edgewise { \
  template <> \
  inline const Table& chosen<Table>() { \
    static constexpr const Table* tables[] = {EDGEWISE_BUILDS(EDGEWISE_ADDRESS, Table, table)}; \
    return *tables[chosen_instruction_set()]; \
  } \
  }
