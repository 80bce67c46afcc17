// Sums over the processes of one machine, through memory that they share: nothing passes through the system's network.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace nb = nanobind;

#if defined(__linux__)
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace edgewise {

using Clock = std::chrono::steady_clock;

constexpr int64_t LINE = 64;                                // bytes that one processor writes at a time
constexpr std::chrono::microseconds EAGER{20};              // a wait this long keeps its core
constexpr long LOOK = 5'000'000;                            // nanoseconds after which a sleeper looks whether all still live
constexpr std::chrono::minutes PATIENCE{30};                // as gloo's
constexpr int64_t ALONE = 1 << 16;                          // bytes that more than two processes do not share out
enum Kind { FLOAT, DOUBLE, OF_THE_FIRST };                  // added up as such; the last: what the first process has

// What a process says of itself; in a line of its own, so that others who wait read their own copy.
struct alignas(LINE) Mark {
  std::atomic<uint32_t> round;     // how often it has come to the meeting point
  std::atomic<uint32_t> sleepers;  // processes that wait for that, asleep
};

struct Item {
  char* data;
  int64_t bytes;
  int kind;
  int64_t start;  // in the message
};

static inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class SharedSum {
 public:
  // A file that all have mapped, zeros at first; of each process a descriptor (pidfd), closed with this;
  // for how many µs a wait spins.
  SharedSum(int file, int rank, std::vector<int> processes, int64_t window, int64_t spin)
      : rank_(rank), size_(int(processes.size())), processes_(std::move(processes)), window_(window), spin_(spin) {
    bytes_ = bytes_of(size_, window);
    base_ = static_cast<char*>(mmap(nullptr, size_t(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    if (base_ == MAP_FAILED) throw std::runtime_error("the memory that the ranks share cannot be mapped");
  }
  SharedSum(const SharedSum&) = delete;
  ~SharedSum() {
    munmap(base_, size_t(bytes_));
    for (const int process : processes_) close(process);
  }

  static int64_t bytes_of(int64_t size, int64_t window) { return size * int64_t(sizeof(Mark)) + 2 * (size + 1) * window; }

  // Replaces numbers by their sums over all processes, the same bits in each; all call it with as many of each kind.
  void add_up(const std::vector<std::tuple<uintptr_t, int64_t, int>>& given) {
    std::vector<Item> items;
    int64_t total = 0;
    for (const auto& [address, bytes, kind] : given) {
      items.push_back({reinterpret_cast<char*>(address), bytes, kind, total});
      total += (bytes + LINE - 1) / LINE * LINE;
    }
    for (int64_t first = 0; first < total; first += window_) part(items, first, std::min(first + window_, total));
  }

 private:
  // A window of the message. It lies in one of two places in turn: who still reads the last one is not disturbed.
  void part(const std::vector<Item>& items, int64_t first, int64_t last) {
    turn_ ^= 1;
    over(items, first, last, [&](const Item& item, int64_t from, int64_t at, int64_t bytes) {
      if (item.kind != OF_THE_FIRST || rank_ == 0) std::memcpy(slot(rank_) + at, item.data + from, size_t(bytes));
    });
    meet();
    const bool shared = size_ > 2 && last - first > ALONE;  // each adds up a part, for all
    const int64_t lines = (last - first) / LINE;
    const int64_t start = shared ? first + lines * rank_ / size_ * LINE : first;
    const int64_t stop = shared ? first + lines * (rank_ + 1) / size_ * LINE : last;
    over(items, start, stop, [&](const Item& item, int64_t from, int64_t at, int64_t bytes) {
      at += start - first;
      char* const out = shared ? slot(size_) + at : item.data + from;
      if (item.kind == FLOAT) sum<float>(out, at, bytes);
      else if (item.kind == DOUBLE) sum<double>(out, at, bytes);
      else if (shared || rank_ != 0) std::memcpy(out, slot(0) + at, size_t(bytes));
    });
    if (!shared) return;
    meet();
    over(items, first, last, [&](const Item& item, int64_t from, int64_t at, int64_t bytes) {
      std::memcpy(item.data + from, slot(size_) + at, size_t(bytes));
    });
  }

  // Calls work(item, where in it, where in the window, bytes) for what lies in first .. last - 1 of the message.
  template <class Work>
  static void over(const std::vector<Item>& items, int64_t first, int64_t last, const Work& work) {
    for (const Item& item : items) {
      const int64_t from = std::max(first, item.start), to = std::min(last, item.start + item.bytes);
      if (from < to) work(item, from - item.start, from - first, to - from);
    }
  }

  template <class T>
  void sum(char* out, int64_t at, int64_t bytes) const {
    constexpr int64_t BLOCK = 1024;
    T* const sums = reinterpret_cast<T*>(out);
    const int64_t count = bytes / int64_t(sizeof(T));
    for (int64_t start = 0; start < count; start += BLOCK) {
      const int64_t n = std::min(BLOCK, count - start);
      const auto of = [&](int rank) { return reinterpret_cast<const T*>(slot(rank) + at) + start; };
      T* const to = sums + start;
      const T *const a = of(0), *const b = of(1);
      for (int64_t i = 0; i < n; ++i) to[i] = a[i] + b[i];
      for (int rank = 2; rank < size_; ++rank) {
        const T* const more = of(rank);
        for (int64_t i = 0; i < n; ++i) to[i] += more[i];
      }
    }
  }

  // Returns once every process has called it as often.
  void meet() {
    ++round_;
    Mark& own = mark(rank_);
    own.round.store(round_, std::memory_order_seq_cst);
    if (own.sleepers.load(std::memory_order_seq_cst) > 0) futex(own.round, FUTEX_WAKE, INT_MAX, nullptr);
    for (int rank = 0; rank < size_; ++rank)
      if (rank != rank_) wait_for(rank);
  }

  bool here(int rank) { return int32_t(mark(rank).round.load(std::memory_order_seq_cst) - round_) >= 0; }

  void wait_for(int rank) {
    if (here(rank)) return;
    const auto began = Clock::now();
    for (auto now = began; now - began < spin_; now = Clock::now()) {
      for (int n = 0; n < 32; ++n) {
        if (here(rank)) return;
        pause();
      }
      if (now - began > EAGER) sched_yield();
    }
    Mark& other = mark(rank);
    while (true) {
      other.sleepers.fetch_add(1, std::memory_order_seq_cst);
      const uint32_t seen = other.round.load(std::memory_order_seq_cst);
      const timespec most{0, LOOK};
      if (int32_t(seen - round_) < 0) futex(other.round, FUTEX_WAIT, int(seen), &most);
      other.sleepers.fetch_sub(1, std::memory_order_seq_cst);
      if (here(rank)) return;
      look_after(rank, began);
    }
  }

  void look_after(int rank, Clock::time_point began) {
    pollfd process{processes_[rank], POLLIN, 0};
    const std::string who = "rank " + std::to_string(rank);
    if (poll(&process, 1, 0) != 0 && !here(rank)) throw std::runtime_error("Connection closed: the process of " + who + " has ended");
    if (Clock::now() - began > PATIENCE) throw std::runtime_error(who + " has sent nothing for 30 minutes");
    const nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

  static void futex(std::atomic<uint32_t>& word, int what, int value, const timespec* most) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), what, value, most, nullptr, 0);
  }

  Mark& mark(int rank) const { return reinterpret_cast<Mark*>(base_)[rank]; }
  char* slot(int rank) const { return base_ + size_ * int64_t(sizeof(Mark)) + (turn_ * (size_ + 1) + rank) * window_; }

  int rank_, size_;
  std::vector<int> processes_;
  int64_t window_, bytes_ = 0, turn_ = 0;
  std::chrono::microseconds spin_;
  char* base_ = nullptr;
  uint32_t round_ = 0;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free, "a lock would be of one process alone");

void bind_adding(nb::module_& module);
void bind_adding(nb::module_& module) {
  nb::class_<SharedSum>(module, "SharedSum")
      .def(nb::init<int, int, std::vector<int>, int64_t, int64_t>())
      .def_static("bytes_of", &SharedSum::bytes_of)
      .def("add_up", [](SharedSum& self, const std::vector<std::tuple<uintptr_t, int64_t, int>>& given) {
        nb::gil_scoped_release unlocked;
        self.add_up(given);
      });
}

}  // namespace edgewise
#else
namespace edgewise {
void bind_adding(nb::module_& module);
void bind_adding(nb::module_&) {}
}  // namespace edgewise
#endif
