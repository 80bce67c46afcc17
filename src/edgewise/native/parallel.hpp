// Work split over OpenMP threads in pieces that do not depend on how many threads there are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#ifdef EDGEWISE_STANDARD_THREADS
#include <atomic>
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

namespace edgewise {

// 1 in a process that was forked: OpenMP's threads do not survive a fork, and waiting for them would never end.
int usable_threads(int wanted);

// Consecutive rows in pieces of about as many edges each, the same pieces at any number of threads.
struct Pieces {
  const int64_t* offsets;
  int64_t rows, total, count;

  // work: multiplications for each edge. Few edges are shared out too, where there is enough to do for each.
  Pieces(const int64_t* offsets, int64_t rows, int64_t work = 1)
      : offsets(offsets), rows(rows), total(offsets[rows] - offsets[0] + rows) {
    constexpr int64_t few = 8, least = 7, worth = 17;  // pieces; edges and multiplications of a piece, as powers of 2
    count = std::max(total >> 12, std::min({few, total >> least, total * work >> worth}));
    count = std::clamp<int64_t>(count, 1, 1024);
  }

  // The first row of a piece: rows count as much as edges, so that empty ones are shared out too.
  int64_t start(int64_t piece) const {
    if (piece == 0 || piece == count) return piece == 0 ? 0 : rows;
    const int64_t goal = total / count * piece;
    int64_t low = 0, high = rows;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (offsets[middle] - offsets[0] + middle < goal) low = middle + 1;
      else high = middle;
    }
    return low;
  }
};

// Calls work(n, thread) for n = 0 .. count - 1.
template <class Work>
void over_items(int threads, int64_t count, const Work& work) {
  threads = int(std::min<int64_t>(usable_threads(threads), count));
  if (threads <= 1) {
    for (int64_t n = 0; n < count; ++n) work(n, 0);
    return;
  }
#ifdef EDGEWISE_STANDARD_THREADS
  std::atomic<int64_t> next{0};
  const auto take = [&](int thread) {
    for (int64_t n = next++; n < count; n = next++) work(n, thread);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(take, thread);
  take(0);
  for (std::thread& thread : others) thread.join();
#else
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t n = 0; n < count; ++n) work(n, omp_get_thread_num());
#endif
}

}  // namespace edgewise
