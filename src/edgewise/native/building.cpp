// Graphs from edges: sorting, transposing, coalescing. The same for every instruction set.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "parallel.hpp"

namespace nb = nanobind;

namespace edgewise {

// An edge list to be sorted by major, then by minor; equal edges keep their order.
struct Edges {
  int threads;
  int64_t count, rows, columns;    // 0 <= major < rows, 0 <= minor < columns
  const int64_t *majors, *minors;  // [count]
  bool minors_ascend;              // in the list as it is: sorting by major alone is then enough
  int64_t *offsets, *sorted, *order;  // out: [rows + 1], minors [count], where each came from [count]
};

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
  }
  for (; row <= list.rows; ++row) list.offsets[row] = list.count;
  return true;
}

static void sort_edges(const Edges& list) {
  if (in_order(list)) return;
  const int row_bits = bits_of(uint64_t(list.rows - 1));
  const int bucket_bits = std::min({bits_of(uint64_t(list.count / BUCKET)), DIGIT, row_bits});
  Layout at;
  at.low_bits = row_bits - bucket_bits;
  at.minor_bits = bits_of(uint64_t(list.columns - 1));
  at.index_bits = bits_of(uint64_t(list.count - 1));
  const int64_t buckets = ((list.rows - 1) >> at.low_bits) + 1;
  if (at.low_bits + at.minor_bits + at.index_bits <= 64) sort_items<Narrow>(list, at, buckets);
  else sort_items<Wide>(list, at, buckets);
}

// The first edge of each set of parallel ones: offsets [rows + 1], and how many there are.
static int64_t count_distinct(int threads, int64_t rows, const int64_t* offsets, const int64_t* senders, int64_t* kept) {
  const Pieces pieces(offsets, rows);
  over_items(threads, pieces.count, [&](int64_t piece, int) {
    for (int64_t i = pieces.start(piece), stop = pieces.start(piece + 1); i < stop; ++i) {
      int64_t count = offsets[i + 1] > offsets[i];
      for (int64_t e = offsets[i] + 1; e < offsets[i + 1]; ++e) count += senders[e] != senders[e - 1];
      kept[i + 1] = count;
    }
  });
  kept[0] = 0;
  for (int64_t i = 0; i < rows; ++i) kept[i + 1] += kept[i];
  return kept[rows];
}

static void keep_distinct(int threads, int64_t rows, const int64_t* offsets, const int64_t* senders, const int64_t* kept,
                          int64_t* distinct) {
  const Pieces pieces(offsets, rows);
  over_items(threads, pieces.count, [&](int64_t piece, int) {
    for (int64_t i = pieces.start(piece), stop = pieces.start(piece + 1); i < stop; ++i) {
      int64_t out = kept[i];
      for (int64_t e = offsets[i]; e < offsets[i + 1]; ++e)
        if (e == offsets[i] || senders[e] != senders[e - 1]) distinct[out++] = senders[e];
    }
  });
}

static const int64_t* in(uintptr_t address) { return reinterpret_cast<const int64_t*>(address); }
static int64_t* out(uintptr_t address) { return reinterpret_cast<int64_t*>(address); }

void bind_building(nb::module_& module);
void bind_building(nb::module_& module) {
  module.def("sort_edges", [](int threads, int64_t count, int64_t rows, int64_t columns, uintptr_t majors, uintptr_t minors,
                              bool minors_ascend, uintptr_t offsets, uintptr_t sorted, uintptr_t order) {
    nb::gil_scoped_release unlocked;
    sort_edges({threads, count, rows, columns, in(majors), in(minors), minors_ascend, out(offsets), out(sorted), out(order)});
  });
  module.def("count_distinct", [](int threads, int64_t rows, uintptr_t offsets, uintptr_t senders, uintptr_t kept) {
    nb::gil_scoped_release unlocked;
    return count_distinct(threads, rows, in(offsets), in(senders), out(kept));
  });
  module.def("keep_distinct", [](int threads, int64_t rows, uintptr_t offsets, uintptr_t senders, uintptr_t kept,
                                 uintptr_t distinct) {
    nb::gil_scoped_release unlocked;
    keep_distinct(threads, rows, in(offsets), in(senders), in(kept), out(distinct));
  });
}

}  // namespace edgewise
