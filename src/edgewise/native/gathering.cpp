// Rows of a mapped array, gathered by many readers; those that are read often stay in memory.
#include <nanobind/nanobind.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "random.hpp"
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

// Which slot of a cache each row has: a table of all rows or, where there are many, chains by hash of those that have one.
class Slots {
 public:
  Slots(int64_t rows, int64_t capacity, int64_t dense)
      : chains_(rows <= std::max(dense, 2 * capacity) ? 0 : uint64_t(capacity)), capacity_(capacity),
        first_(zeros<uint32_t>(capacity == 0 ? 0 : chains_ ? chains_ : uint64_t(rows))), slot_(zeros<Slot>(capacity)) {}

  // Prefetches what `of`, `give` and, of a slot that may be beyond the last, `take` read: some steps before, and fewer.
  void expect(int64_t row) const { __builtin_prefetch(&first_[start(row)]); }
  void expect_soon(int64_t row) const {
    if (const uint32_t at = chains_ ? first_[start(row)] : 0) __builtin_prefetch(&slot_[at - 1]);
  }
  void expect_slot(int64_t slot) const {
    if (slot < capacity_) expect(slot_[slot].row);
  }

  // -1: none.
  int64_t of(int64_t row) const {
    uint32_t at = first_[start(row)];
    while (chains_ && at != 0 && slot_[at - 1].row != row) at = slot_[at - 1].next;
    return int64_t(at) - 1;
  }

  // Gives a slot that has no row to a row that has no slot.
  void give(int64_t row, int64_t slot) {
    uint32_t& first = first_[start(row)];
    slot_[slot] = {uint32_t(row), first};
    first = uint32_t(slot + 1);
  }

  void take(int64_t slot) {
    uint32_t* at = &first_[start(slot_[slot].row)];
    while (*at != slot + 1) at = &slot_[*at - 1].next;
    *at = slot_[slot].next;
  }

 private:
  struct Slot {
    uint32_t row, next;  // 1 + the next slot of the chain, 0: none
  };

  uint64_t start(int64_t row) const { return chains_ ? home(row, chains_) : uint64_t(row); }

  uint64_t chains_;  // 0: each row has its own
  int64_t capacity_;
  std::unique_ptr<uint32_t[], Free> first_;  // of each chain: 1 + a slot, 0: none
  std::unique_ptr<Slot[], Free> slot_;
};

// A cache of rows. Which stay: those that were read again since the hand last passed them (second chance: a clock).
class RowCache {
 public:
  RowCache(uintptr_t base, int64_t rows, int64_t row_bytes, int64_t capacity, int64_t dense)
      : base_(reinterpret_cast<const char*>(base)), rows_(rows), bytes_(row_bytes),
        capacity_(rows > UINT32_MAX ? 0 : std::min<int64_t>(std::min(capacity, rows), UINT32_MAX - 1)),
        slots_(rows, capacity_, dense), again_(zeros<uint8_t>(capacity_)), kept_(zeros<char>(capacity_ * row_bytes)) {}

  // Writes the rows [count, row_bytes]; how many were in memory, or -1 - n where row n is out of range.
  int64_t gather(int readers, const int64_t* wanted, int64_t count, char* out) {
    for (int64_t n = 0; n < count; ++n)
      if (wanted[n] < 0 || wanted[n] >= rows_) return -1 - n;
    std::vector<int64_t> missing;
    if (capacity_ > 0) {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (int64_t n = 0; n < count; ++n) {
        if (n + 2 * AHEAD < count) slots_.expect(wanted[n + 2 * AHEAD]);
        if (n + AHEAD < count) slots_.expect_soon(wanted[n + AHEAD]);
        const int64_t slot = slots_.of(wanted[n]);
        if (slot < 0) {
          missing.push_back(n);
          continue;
        }
        again_[slot] = 1;
        std::memcpy(out + n * bytes_, &kept_[slot * bytes_], size_t(bytes_));
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
      for (int64_t n = 0; n < reads; ++n) {
        if (n + 2 * AHEAD < reads) slots_.expect(wanted[missing[n + 2 * AHEAD]]);
        if (n + AHEAD < reads) slots_.expect_soon(wanted[missing[n + AHEAD]]);
        keep(wanted[missing[n]], out + missing[n] * bytes_);
      }
    }
    return count - reads;
  }

 private:
  void keep(int64_t row, const char* content) {
    if (slots_.of(row) >= 0) return;  // another thread has read it, too
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
      slots_.expect_slot(slot + AHEAD);
      slots_.take(slot);
    }
    slots_.give(row, slot);
    std::memcpy(&kept_[slot * bytes_], content, size_t(bytes_));
  }

  static constexpr int64_t AHEAD = 16;  // rows whose entries are prefetched

  const char* base_;
  int64_t rows_, bytes_, capacity_, filled_ = 0, hand_ = 0;
  Slots slots_;
  std::unique_ptr<uint8_t[], Free> again_;        // read since the hand passed
  std::unique_ptr<char[], Free> kept_;
  std::mutex mutex_;
};

void bind_gathering(nb::module_& module);
void bind_gathering(nb::module_& module) {
  nb::class_<RowCache>(module, "RowCache")
      .def(nb::init<uintptr_t, int64_t, int64_t, int64_t, int64_t>())
      .def("gather", [](RowCache& self, int readers, uintptr_t wanted, int64_t count, uintptr_t out) {
        nb::gil_scoped_release unlocked;
        return self.gather(readers, reinterpret_cast<const int64_t*>(wanted), count, reinterpret_cast<char*>(out));
      });
}

}  // namespace edgewise
