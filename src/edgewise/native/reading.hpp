// Reading mapped files by many threads at once: each waits for a page of its own, so that a disk has a queue to work on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace edgewise {

// Calls work(first, last) for pieces of 0 .. count - 1; threads that wait for a disk cost no core, so there may be many.
template <class Work>
void over_readers(int readers, int64_t count, int64_t piece, const Work& work) {
  std::atomic<int64_t> next{0};
  const auto run = [&] {
    for (int64_t first = next.fetch_add(piece); first < count; first = next.fetch_add(piece))
      work(first, std::min(first + piece, count));
  };
  std::vector<std::thread> threads;
  const int64_t most = std::min<int64_t>(readers, (count + piece - 1) / piece);
  try {
    for (int64_t n = 1; n < most; ++n) threads.emplace_back(run);
  } catch (const std::system_error&) {  // no more threads: those that there are do it
  }
  run();
  for (std::thread& thread : threads) thread.join();
}

constexpr int64_t TOUCHED = 512;  // items that a reader takes at once

// Brings the pages of base[index(n)], n = 0 .. count - 1, into memory.
template <class T, class Index>
void touch(int readers, const T* base, int64_t count, const Index& index) {
  over_readers(readers, count, TOUCHED, [&](int64_t first, int64_t last) {
    for (int64_t n = first; n < last; ++n) (void)*static_cast<const volatile T*>(base + index(n));
  });
}

}  // namespace edgewise
