// How many threads a kernel may use.
#include "parallel.hpp"

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace edgewise {

static bool forked = false;
#if !defined(_WIN32)
[[maybe_unused]] static const int noticed = pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif

[[gnu::visibility("default")]] int usable_threads(int wanted) { return forked ? 1 : wanted; }

}  // namespace edgewise
