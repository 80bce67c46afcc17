// Which instruction sets this processor has: asked when the kernels are built for it alone, and when they are loaded.
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

}  // namespace edgewise
