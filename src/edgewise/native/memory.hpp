// Large memory that is about to be written, in large pages where the system has them: a hundredth of the page faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

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

// Memory in which the first number starts a cache line: no vector of a row of whole vectors lies in two lines, which would take
// as long to read as two vectors.
template <class A>
struct AtLine {
  using value_type = A;
  A* allocate(size_t count) { return static_cast<A*>(::operator new(count * sizeof(A), std::align_val_t(64))); }
  void deallocate(A* numbers, size_t) { ::operator delete(numbers, std::align_val_t(64)); }
  friend bool operator==(AtLine, AtLine) { return true; }
  friend bool operator!=(AtLine, AtLine) { return false; }
};

template <class A>
using Numbers = std::vector<A, AtLine<A>>;

// Numbers that live as long as a call, not set; the first starts a cache line.
template <class A>
std::unique_ptr<A[], Freed> scratch(size_t count) {
  std::unique_ptr<A[], Freed> room(static_cast<A*>(::operator new(count * sizeof(A), std::align_val_t(64))));
  expect_writes(room.get(), count * sizeof(A));
  return room;
}

}  // namespace edgewise
