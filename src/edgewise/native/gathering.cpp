// Rows of a mapped array, gathered by many readers; those that are read often stay in memory.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "reading.hpp"

namespace nb = nanobind;

namespace edgewise {

// A cache of rows. Which stay: those that were read again since the hand last passed them (second chance: a clock).
class RowCache {
 public:
  RowCache(uintptr_t base, int64_t rows, int64_t row_bytes, int64_t capacity)
      : base_(reinterpret_cast<const char*>(base)), rows_(rows), bytes_(row_bytes), capacity_(std::min(capacity, rows)) {}

  // Writes the rows [count, row_bytes]; how many were in memory, or -1 - n where row n is out of range.
  int64_t gather(int readers, const int64_t* wanted, int64_t count, char* out) {
    for (int64_t n = 0; n < count; ++n)
      if (wanted[n] < 0 || wanted[n] >= rows_) return -1 - n;
    std::vector<int64_t> missing;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (int64_t n = 0; n < count; ++n) {
        const auto found = slot_.find(wanted[n]);
        if (found == slot_.end()) {
          missing.push_back(n);
          continue;
        }
        again_[found->second] = true;
        std::memcpy(out + n * bytes_, &cached_[found->second * bytes_], size_t(bytes_));
      }
    }
    over_readers(readers, int64_t(missing.size()), TOUCHED / 8, [&](int64_t first, int64_t last) {
      for (int64_t n = first; n < last; ++n)
        std::memcpy(out + missing[n] * bytes_, base_ + wanted[missing[n]] * bytes_, size_t(bytes_));
    });
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int64_t n = 0; capacity_ > 0 && n < int64_t(missing.size()); ++n) keep(wanted[missing[n]], out + missing[n] * bytes_);
    return count - int64_t(missing.size());
  }

 private:
  void keep(int64_t row, const char* content) {
    if (slot_.count(row)) return;  // another thread has read it, too
    int64_t slot = int64_t(row_.size());
    if (slot < capacity_) {
      row_.push_back(row), again_.push_back(false), cached_.resize(cached_.size() + size_t(bytes_));
    } else {
      for (; again_[hand_]; hand_ = (hand_ + 1) % capacity_) again_[hand_] = false;
      slot = hand_, hand_ = (hand_ + 1) % capacity_;
      slot_.erase(row_[slot]);
      row_[slot] = row;
    }
    slot_[row] = slot;
    std::memcpy(&cached_[slot * bytes_], content, size_t(bytes_));
  }

  const char* base_;
  int64_t rows_, bytes_, capacity_, hand_ = 0;
  std::unordered_map<int64_t, int64_t> slot_;  // of each row in the cache
  std::vector<int64_t> row_;                   // of each slot
  std::vector<bool> again_;                    // read since the hand passed
  std::vector<char> cached_;
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
