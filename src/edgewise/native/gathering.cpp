// Rows of a mapped array, gathered by many readers; those that are read often stay in memory.
#include <nanobind/nanobind.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "reading.hpp"

namespace nb = nanobind;

namespace edgewise {

struct Free {
  void operator()(void* room) const { std::free(room); }
};

// Numbers that are 0 at first; a page that is never written takes no memory.
template <class A>
std::unique_ptr<A[], Free> zeros(size_t count) {
  A* room = static_cast<A*>(std::calloc(std::max<size_t>(count, 1), sizeof(A)));
  if (room == nullptr) throw std::bad_alloc();
  return std::unique_ptr<A[], Free>(room);
}

// A cache of rows. Which stay: those that were read again since the hand last passed them (second chance: a clock).
class RowCache {
 public:
  RowCache(uintptr_t base, int64_t rows, int64_t row_bytes, int64_t capacity)
      : base_(reinterpret_cast<const char*>(base)), rows_(rows), bytes_(row_bytes),
        capacity_(std::min<int64_t>(std::min(capacity, rows), UINT32_MAX - 1)), slot_(zeros<uint32_t>(capacity_ ? rows : 0)),
        row_(zeros<uint32_t>(capacity_)), again_(zeros<uint8_t>(capacity_)), kept_(zeros<char>(capacity_ * row_bytes)) {}

  // Writes the rows [count, row_bytes]; how many were in memory, or -1 - n where row n is out of range.
  int64_t gather(int readers, const int64_t* wanted, int64_t count, char* out) {
    for (int64_t n = 0; n < count; ++n)
      if (wanted[n] < 0 || wanted[n] >= rows_) return -1 - n;
    std::vector<int64_t> missing;
    if (capacity_ > 0) {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (int64_t n = 0; n < count; ++n) {
        if (n + 16 < count) __builtin_prefetch(&slot_[wanted[n + 16]]);
        const uint32_t slot = slot_[wanted[n]];
        if (slot == 0) {
          missing.push_back(n);
          continue;
        }
        again_[slot - 1] = 1;
        std::memcpy(out + n * bytes_, &kept_[int64_t(slot - 1) * bytes_], size_t(bytes_));
      }
    }
    const int64_t reads = capacity_ > 0 ? int64_t(missing.size()) : count;
    const auto place = [&](int64_t n) { return capacity_ > 0 ? missing[n] : n; };
    over_readers(readers, reads, TOUCHED / 8, [&](int64_t first, int64_t last) {
      for (int64_t n = first; n < last; ++n) {
        const int64_t row = place(n);
        std::memcpy(out + row * bytes_, base_ + wanted[row] * bytes_, size_t(bytes_));
      }
    });
    if (capacity_ > 0) {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const int64_t n : missing) keep(wanted[n], out + n * bytes_);
    }
    return count - reads;
  }

 private:
  void keep(int64_t row, const char* content) {
    if (slot_[row] != 0) return;  // another thread has read it, too
    int64_t slot = filled_;
    if (filled_ < capacity_) {
      ++filled_;
    } else {
      while (again_[hand_]) {
        again_[hand_] = 0;
        hand_ = hand_ + 1 == capacity_ ? 0 : hand_ + 1;
      }
      slot = hand_;
      hand_ = hand_ + 1 == capacity_ ? 0 : hand_ + 1;
      slot_[row_[slot]] = 0;
    }
    row_[slot] = uint32_t(row);
    slot_[row] = uint32_t(slot + 1);
    std::memcpy(&kept_[slot * bytes_], content, size_t(bytes_));
  }

  const char* base_;
  int64_t rows_, bytes_, capacity_, filled_ = 0, hand_ = 0;
  std::unique_ptr<uint32_t[], Free> slot_, row_;  // 1 + where a row is kept, 0: nowhere; the row in each slot
  std::unique_ptr<uint8_t[], Free> again_;        // read since the hand passed
  std::unique_ptr<char[], Free> kept_;
  std::mutex mutex_;
};

void bind_gathering(nb::module_& module);
void bind_gathering(nb::module_& module) {
  nb::class_<RowCache>(module, "RowCache")
      .def(nb::init<uintptr_t, int64_t, int64_t, int64_t>())
      .def("gather", [](RowCache& self, int readers, uintptr_t wanted, int64_t count, uintptr_t out) {
        nb::gil_scoped_release unlocked;
        return self.gather(readers, reinterpret_cast<const int64_t*>(wanted), count, reinterpret_cast<char*>(out));
      });
}

}  // namespace edgewise
