// Which instruction sets this processor has: asked when the kernels are built for it alone, and when they are loaded; and what
// kernels do differently on different processors.
#pragma once

#include <cstring>

namespace edgewise {

inline bool runs_here(const char* isa) {
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

struct Processor {
  bool at_once;  // attention prefetches rows that are on more pages than it remembers a chunk at a time, not one by one
  bool first;    // sums prefetch rows into its first cache, not its second, `ahead` edges before they are read
  int ahead;
};

constexpr Processor ZEN_4{true, false, 32};  // AMD EPYC; at once: a step of attention 1.1 to 1.3 times as fast; any with AVX-512
constexpr Processor ZEN_3{false, false, 32};  // AMD EPYC; one by one: 1.1 to 1.6 times as fast; any without AVX-512
// Intel Xeon; one by one: attention and wide sums 1.0 to 1.2 times as fast; first: sums of 64 channels 1.05 to 1.3; any of Intel's
constexpr Processor GRANITE_RAPIDS{false, true, 16};

inline Processor processor_here(bool avx512) {
#if defined(__x86_64__) || defined(_M_X64)
  __builtin_cpu_init();
  if (__builtin_cpu_is("intel")) return GRANITE_RAPIDS;
#endif
  return avx512 ? ZEN_4 : ZEN_3;
}

}  // namespace edgewise
