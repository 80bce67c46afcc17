// Prints the best instruction set of this processor. CMake runs it where the kernels are built for one machine.
#include <cstdio>
#include <initializer_list>

#include "processor.hpp"

int main() {
  for (const char* isa : {"v4", "v3", "v2"})
    if (edgewise::runs_here(isa)) return std::puts(isa) < 0;
}
