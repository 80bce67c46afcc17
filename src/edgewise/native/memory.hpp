// Large memory that is about to be written, in large pages where the system has them: a hundredth of the page faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace edgewise {

inline void expect_writes(void* data, size_t bytes) {
#if defined(__linux__)
  constexpr uintptr_t page = uintptr_t(1) << 21;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + page - 1) & ~(page - 1);
  const uintptr_t last = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(page - 1);
  if (data && last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

struct Freed {
  void operator()(void* room) const { ::operator delete(room, std::align_val_t(64)); }
};

// Numbers that live as long as a call; the first starts a cache line.
template <class A>
std::unique_ptr<A[], Freed> scratch(size_t count) {
  std::unique_ptr<A[], Freed> room(static_cast<A*>(::operator new(count * sizeof(A), std::align_val_t(64))));
  expect_writes(room.get(), count * sizeof(A));
  return room;
}

}  // namespace edgewise
