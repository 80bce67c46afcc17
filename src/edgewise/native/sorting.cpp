// Edges sorted by one end, then by the other: by a radix sort in the cache. The same for every instruction set.
#include "sorting.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "memory.hpp"
#include "parallel.hpp"

namespace edgewise {

static int bits_of(uint64_t largest) { return largest == 0 ? 0 : 64 - __builtin_clzll(largest); }

// How the numbers of an edge share one word: the low bits of its major, its minor, where it came from.
struct Layout {
  int low_bits, minor_bits, index_bits;
};

// All three in 64 bits: the usual case, and half the memory traffic.
struct Narrow {
  uint64_t word;
  static Narrow of(const Layout& at, uint64_t low, uint64_t minor, uint64_t index) {
    return {((low << at.minor_bits | minor) << at.index_bits) | index};
  }
  uint64_t key(const Layout& at) const { return word >> at.index_bits; }
  int64_t index(const Layout& at) const { return int64_t(word & ((uint64_t(1) << at.index_bits) - 1)); }
  bool operator<(const Narrow& other) const { return word < other.word; }
};

struct Wide {
  uint64_t word;
  int64_t place;
  static Wide of(const Layout& at, uint64_t low, uint64_t minor, uint64_t index) {
    return {low << at.minor_bits | minor, int64_t(index)};
  }
  uint64_t key(const Layout&) const { return word; }
  int64_t index(const Layout&) const { return place; }
  bool operator<(const Wide& other) const { return word != other.word ? word < other.word : place < other.place; }
};

constexpr int DIGIT = 11;           // bits of a radix digit: its counts stay in the first-level cache
constexpr int64_t BUCKET = 1 << 14;  // edges aimed at in a bucket: sorted inside the second-level cache
constexpr int64_t FEW = 192;         // where comparing beats counting

// Stable radix sort of items[0, n) by the key bits from `first` on; returns where they ended up, items or spare.
template <class Item>
static Item* sort_bucket(Item* items, Item* spare, int64_t n, const Layout& at, int first) {
  if (n <= FEW) {
    std::sort(items, items + n);  // items are distinct by index, so any sort is stable
    return items;
  }
  const int bits = at.low_bits + at.minor_bits - first;
  const int passes = (bits + DIGIT - 1) / DIGIT, digit = passes ? (bits + passes - 1) / passes : 0;
  const uint64_t mask = (uint64_t(1) << digit) - 1;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = first + pass * digit;
    uint64_t starts[1 << DIGIT];
    std::memset(starts, 0, sizeof(uint64_t) << digit);
    for (int64_t e = 0; e < n; ++e) ++starts[items[e].key(at) >> shift & mask];
    if (starts[items[0].key(at) >> shift & mask] == uint64_t(n)) continue;
    uint64_t sum = 0;
    for (uint64_t d = 0; d <= mask; ++d) {
      const uint64_t here = starts[d];
      starts[d] = sum;
      sum += here;
    }
    for (int64_t e = 0; e < n; ++e) spare[starts[items[e].key(at) >> shift & mask]++] = items[e];
    std::swap(items, spare);
  }
  return items;
}

// First into buckets by the high bits of the major, then each bucket on its own: the second step stays in the cache.
template <class Item>
static void sort_items(const Edges& list, const Layout& at, int64_t buckets) {
  const int64_t count = list.count;
  const int threads = std::max(1, std::min<int>(usable_threads(list.threads), int(count / (4 * BUCKET)) + 1));
  std::unique_ptr<Item[]> items(new Item[count]);
  std::vector<int64_t> starts(buckets * threads + 1, 0);  // bucket by bucket, in it part by part of the list
  const auto part = [&](int64_t n) { return count / threads * n + std::min(n, count % threads); };
  over_items(threads, threads, [&](int64_t n, int) {
    std::vector<int64_t> mine(buckets, 0);
    for (int64_t e = part(n); e < part(n + 1); ++e) ++mine[list.majors[e] >> at.low_bits];
    for (int64_t b = 0; b < buckets; ++b) starts[b * threads + n + 1] = mine[b];
  });
  for (size_t n = 1; n < starts.size(); ++n) starts[n] += starts[n - 1];
  const uint64_t low_mask = (uint64_t(1) << at.low_bits) - 1;
  over_items(threads, threads, [&](int64_t n, int) {
    std::vector<int64_t> next(buckets);
    for (int64_t b = 0; b < buckets; ++b) next[b] = starts[b * threads + n];
    for (int64_t e = part(n); e < part(n + 1); ++e) {
      const uint64_t major = uint64_t(list.majors[e]);
      items[next[major >> at.low_bits]++] = Item::of(at, major & low_mask, uint64_t(list.minors[e]), uint64_t(e));
    }
  });

  int64_t most = 0;
  for (int64_t b = 0; b < buckets; ++b) most = std::max(most, starts[(b + 1) * threads] - starts[b * threads]);
  std::vector<std::unique_ptr<Item[]>> spares(threads);
  for (auto& spare : spares) spare.reset(new Item[most]);
  const uint64_t minor_mask = (uint64_t(1) << at.minor_bits) - 1;
  over_items(threads, buckets, [&](int64_t b, int thread) {
    const int64_t first = starts[b * threads], n = starts[(b + 1) * threads] - first;
    const Item* sorted = sort_bucket(&items[0] + first, &spares[thread][0], n, at, list.minors_ascend ? at.minor_bits : 0);
    int64_t row = b << at.low_bits;  // the next one whose start is not known yet
    const int64_t end = std::min(list.rows, (b + 1) << at.low_bits);
    for (int64_t e = 0; e < n; ++e) {
      const uint64_t key = sorted[e].key(at);
      const int64_t mine = (b << at.low_bits) + int64_t(key >> at.minor_bits);
      for (; row <= mine; ++row) list.offsets[row] = first + e;
      list.sorted[first + e] = int64_t(key & minor_mask);
      list.order[first + e] = sorted[e].index(at);
      if (list.along) list.along[first + e] = mine;
    }
    for (; row < end; ++row) list.offsets[row] = first + n;
  });
  list.offsets[list.rows] = count;
}

// True, and everything written, where the list is in order as it is.
static bool in_order(const Edges& list) {
  for (int64_t e = 1; e < list.count; ++e) {
    const int64_t before = list.majors[e - 1], here = list.majors[e];
    if (before > here || (before == here && list.minors[e - 1] > list.minors[e])) return false;
  }
  int64_t row = 0;
  for (int64_t e = 0; e < list.count; ++e) {
    for (; row <= list.majors[e]; ++row) list.offsets[row] = e;
    list.sorted[e] = list.minors[e];
    list.order[e] = e;
    if (list.along) list.along[e] = list.majors[e];
  }
  for (; row <= list.rows; ++row) list.offsets[row] = list.count;
  return true;
}

// Numbers of which none has its highest bit set where `number` is one of 0, ..., `most`.
static uint64_t outside(uint64_t number, uint64_t most) { return number | (most - number); }

static bool inside(const Edges& list) {
  constexpr int64_t block = 1 << 14;
  const uint64_t last_row = uint64_t(list.rows) - 1, last_column = uint64_t(list.columns) - 1;
  std::atomic<uint64_t> wrong{0};
  over_items(list.threads, (list.count + block - 1) / block, [&](int64_t n, int) {
    uint64_t mine = 0;
    for (int64_t e = n * block; e < std::min((n + 1) * block, list.count); ++e)
      mine |= outside(uint64_t(list.majors[e]), last_row) | outside(uint64_t(list.minors[e]), last_column);
    wrong.fetch_or(mine, std::memory_order_relaxed);
  });
  return !(wrong >> 63);
}

bool sort_edges(const Edges& list) {
  if (!list.minors_ascend && !inside(list)) return false;
  if (in_order(list)) return true;
  const int row_bits = bits_of(uint64_t(list.rows - 1));
  const int bucket_bits = std::min({bits_of(uint64_t(list.count / BUCKET)), DIGIT, row_bits});
  Layout at;
  at.low_bits = row_bits - bucket_bits;
  at.minor_bits = bits_of(uint64_t(list.columns - 1));
  at.index_bits = bits_of(uint64_t(list.count - 1));
  const int64_t buckets = ((list.rows - 1) >> at.low_bits) + 1;
  if (at.low_bits + at.minor_bits + at.index_bits <= 64) sort_items<Narrow>(list, at, buckets);
  else sort_items<Wide>(list, at, buckets);
  return true;
}

// True, and everything written, where receivers ascend and all is in bounds.
static bool ascending(const EdgeList& list) {
  constexpr int64_t block = 2048;  // whose numbers stay in the first-level cache
  const auto* receivers = reinterpret_cast<const uint64_t*>(list.receivers);
  const auto* senders = reinterpret_cast<const uint64_t*>(list.senders);
  const uint64_t last_row = uint64_t(list.rows) - 1, last_column = uint64_t(list.columns) - 1;
  std::atomic<bool> right{true};
  over_items(list.threads, (list.count + block - 1) / block, [&](int64_t n, int) {
    if (!right.load(std::memory_order_relaxed)) return;
    const int64_t first = n * block, last = std::min(first + block, list.count);
    const uint64_t before = first ? receivers[first - 1] : 0;
    uint64_t wrong = outside(before, last_row) | (receivers[first] - before);
    for (int64_t e = first; e < last; ++e) {
      wrong |= outside(senders[e], last_column) | outside(receivers[e], last_row);
      list.index[e] = int32_t(senders[e]);
    }
    for (int64_t e = first + 1; e < last; ++e) wrong |= receivers[e] - receivers[e - 1];
    if (wrong >> 63) return right.store(false, std::memory_order_relaxed);
    int64_t row = first ? int64_t(before) + 1 : 0;
    for (int64_t e = first; e < last; ++e)
      for (; row <= list.receivers[e]; ++row) list.offsets[row] = e;
    for (int64_t e = first; list.order && e < last; ++e) list.order[e] = int32_t(e);
  });
  if (!right) return false;
  const int64_t next = list.count ? list.receivers[list.count - 1] + 1 : 0;
  std::fill(list.offsets + next, list.offsets + list.rows + 1, list.count);
  return true;
}

bool by_receiver(const EdgeList& list) {
  constexpr int64_t most = int64_t(1) << 31;
  if (list.count >= most || list.rows >= most || list.columns >= most || list.rows < 0 || list.columns < 0) return false;
  expect_writes(list.index, list.count * sizeof(int32_t));
  if (list.order) expect_writes(list.order, list.count * sizeof(int32_t));
  if (ascending(list)) return true;
  std::unique_ptr<int64_t[]> senders(new int64_t[list.count]), order(new int64_t[list.count]);
  if (!sort_edges({list.threads, list.count, list.rows, list.columns, list.receivers, list.senders, false, list.offsets,
                   senders.get(), order.get(), nullptr}))
    return false;
  for (int64_t e = 0; e < list.count; ++e) {
    list.index[e] = int32_t(senders[e]);
    if (list.order) list.order[e] = int32_t(order[e]);
  }
  return true;
}

}  // namespace edgewise
