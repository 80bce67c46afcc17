// Neighbours drawn at random, hop by hop, the same on any number of threads.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "parallel.hpp"
#include "picking.hpp"
#include "random.hpp"
#include "reading.hpp"

namespace nb = nanobind;

namespace edgewise {

struct Hop {
  int threads;
  const int64_t* offsets;  // of the graph
  const int32_t* senders;  // half the memory traffic: this is where a hop spends its time
  const void* weight;                // [E] or null
  bool doubles;                      // the weights are float64, not float32
  int64_t fanout;                    // -1: all
  int64_t edges;                     // of the graph: what a damaged store says beyond them is not followed
  int readers;                       // threads that wait for the pages of a mapped graph; 0: it is in memory
};

constexpr int64_t WHOLE = 12;        // edges of a row that are written whether it has so many or not
constexpr int64_t BLOCK = 32;        // receivers that go through the stages together: far enough ahead to hide memory
constexpr int64_t PIECE = 8;         // blocks that a thread takes at once
// Edges to pick among that are worth a second thread, 1.5 ms on one: beside other programs, threads wait for one another.
constexpr int64_t SHARED = 1 << 18;
constexpr int64_t WRONG = std::numeric_limits<int64_t>::min();  // offsets or senders of a damaged store
constexpr int64_t AHEAD = 128;       // edges whose places are prefetched together

// Into the second cache: the first would let go of some before they are read.
static inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

class Sampler {
 public:
  explicit Sampler(int64_t size) : size_(size), place_(size_t(size), 0) {}

  // Starts a sample. The first seed that is out of range or there already, by its position; -1 where all are right.
  int64_t begin(const int64_t* seeds, int64_t count) {
    base_ += uint32_t(count_);
    if (base_ > std::numeric_limits<uint32_t>::max() - uint32_t(size_) - 1) std::fill(place_.begin(), place_.end(), 0), base_ = 1;
    count_ = 0;
    reserve(count);
    for (int64_t n = 0; n < count; ++n) {
      if (seeds[n] < 0 || seeds[n] >= size_) return n;
      uint32_t& at = place_[seeds[n]];
      if (at >= base_) return n;
      at = base_ + uint32_t(count_);
      nodes_[count_++] = uint32_t(seeds[n]);
    }
    return -1;
  }

  // Writes the sample's offsets [rows + 1]; how many edges the hop has, -1 - e where edge e has no legal weight, or WRONG.
  int64_t count(const Hop& hop, int64_t* offsets) {
    const int64_t most = hop.fanout < 0 ? std::numeric_limits<int64_t>::max() : hop.fanout;
    rows_ = count_;
    most_ = 0;
    first_.resize(rows_);
    degree_.resize(rows_);
    offsets[0] = 0;
    if (hop.readers > 0) touch(hop.readers, hop.offsets, rows_, [&](int64_t r) { return int64_t(nodes_[r]); });
    for (int64_t r = 0; r < rows_; ++r) {
      if (r + BLOCK < rows_) prefetch(&hop.offsets[nodes_[r + BLOCK]]);
      first_[r] = hop.offsets[nodes_[r]];
      degree_[r] = hop.offsets[nodes_[r] + 1] - first_[r];
      if (first_[r] < 0 || degree_[r] < 0 || degree_[r] > hop.edges - first_[r]) return WRONG;
      most_ = std::max(most_, degree_[r]);
      offsets[r + 1] = offsets[r] + std::min(degree_[r], most);
    }
    if (hop.weight != nullptr) {
      const int64_t wrong = hop.doubles ? count_positive<double>(hop) : count_positive<float>(hop);
      if (wrong >= 0) return -1 - wrong;
      for (int64_t r = 0; r < rows_; ++r) offsets[r + 1] = offsets[r] + std::min(positive_[r], most);
    }
    return offsets[rows_];
  }

  // Writes the edges of a hop that was counted, [E] each: senders by their place in the sample, ascending in each row.
  // How many nodes the sample has by then, or WRONG where a sender is no node.
  int64_t draw(const Hop& hop, uint64_t seed, int64_t number, const int64_t* offsets, int64_t* senders, int64_t* edges) {
    const uint64_t hop_seed = hash(seed + STEP * uint64_t(number + 1));
    const int64_t total = offsets[rows_], blocks = (rows_ + BLOCK - 1) / BLOCK;
    const auto row = [&](int64_t block) { return std::min(std::max<int64_t>(block, 0) * BLOCK, rows_); };
    reserve(count_ + total);
    if (int64_t(source_.size()) <= total) {
      source_.resize(size_t(total + 1));
      falls_.resize(size_t(total + 1));
    }
    const int64_t work = hop.weight == nullptr ? total : std::accumulate(degree_.begin(), degree_.end(), int64_t(0));
    const bool shared = hop.readers > 0 || (hop.threads > 1 && work >= SHARED && usable_threads(hop.threads) > 1);
    prepare(shared ? hop.threads : 1, hop.fanout < 0 ? most_ : std::min(hop.fanout, most_), hop.weight != nullptr);
    if (!shared) {
      // Three stages, each a block behind the one before: each prefetches the memory that the next one reads.
      for (int64_t block = 0; block < blocks + 2; ++block) {
        pick(hop, hop_seed, row(block), row(block + 1), offsets, total, edges, scratch_[0]);
        if (!gather(hop, offsets[row(block - 1)], offsets[row(block)], edges)) return WRONG;
        relabel(offsets[row(block - 2)], offsets[row(block - 1)], senders);
        sort(row(block - 2), row(block - 1), offsets, senders, edges, scratch_[0]);
      }
      return count_;
    }
    // Places are given in the order of the edges, so by one thread; all of them pick before it and sort behind.
    std::atomic<bool> right{true};
    const auto look = [&](int64_t first, int64_t last) {
      if (!gather(hop, first, last, edges)) right = false;
    };
    const int64_t pieces = (blocks + PIECE - 1) / PIECE;
    over_items(hop.threads, pieces, [&](int64_t piece, int thread) {
      const int64_t start = piece * PIECE, stop = std::min(start + PIECE, blocks);
      for (int64_t block = start; block < stop; ++block)
        pick(hop, hop_seed, row(block), row(block + 1), offsets, offsets[row(stop)], edges, scratch_[thread]);
      if (hop.readers == 0) look(offsets[row(start)], offsets[row(stop)]);
    });
    if (hop.readers > 0) over_readers(hop.readers, total, TOUCHED, look);  // by many more threads, which wait for a disk
    if (!right) return WRONG;
    for (int64_t e = 0; e < total; e += AHEAD) {
      for (int64_t next = e + AHEAD; next < std::min(e + 2 * AHEAD, total); ++next) prefetch(&place_[source_[next]]);
      relabel(e, std::min(e + AHEAD, total), senders);
    }
    over_items(hop.threads, blocks, [&](int64_t block, int thread) {
      sort(row(block), row(block + 1), offsets, senders, edges, scratch_[thread]);
    });
    return count_;
  }

  void nodes(int64_t* out) const { std::copy(nodes_.begin(), nodes_.begin() + count_, out); }

 private:
  void reserve(int64_t count) {
    // One more than there can be: `relabel` writes before it knows whether the node is new.
    if (int64_t(nodes_.size()) < count + 1) nodes_.resize(std::max<int64_t>(count + 1, 2 * int64_t(nodes_.size())));
  }

  // Room for what the threads write beside the output: inside a parallel loop nothing may run out of memory.
  void prepare(int threads, int64_t most_kept, bool weighted) {
    if (int(scratch_.size()) < threads) scratch_.resize(threads);
    for (int n = 0; n < threads; ++n) {
      Scratch& scratch = scratch_[n];
      if (most_kept > SCANNED) {
        scratch.bits.resize(std::max<size_t>(scratch.bits.size(), size_t(most_ / 64 + 1)), 0);
        scratch.row.reserve(size_t(most_kept));
      }
      if (weighted) scratch.best.reserve(size_t(most_kept) + 1);
    }
  }

  template <class T>
  int64_t count_positive(const Hop& hop) {
    const T* weight = static_cast<const T*>(hop.weight);
    positive_.resize(rows_);
    constexpr int64_t NONE_WRONG = std::numeric_limits<int64_t>::max();
    std::atomic<int64_t> wrong{NONE_WRONG};
    over_items(hop.threads, (rows_ + 255) / 256, [&](int64_t piece, int) {
      for (int64_t r = piece * 256; r < std::min(rows_, piece * 256 + 256); ++r) {
        if (r + 4 < rows_) prefetch(&weight[first_[r + 4]]);
        int64_t positive = 0, legal = 0;
        for (int64_t e = first_[r]; e < first_[r] + degree_[r]; ++e) {
          positive += weight[e] > 0;
          legal += weight[e] >= 0 && weight[e] <= std::numeric_limits<T>::max();
        }
        positive_[r] = positive;
        if (legal == degree_[r]) continue;
        int64_t e = first_[r];
        while (weight[e] >= 0 && weight[e] <= std::numeric_limits<T>::max()) ++e;
        int64_t least = wrong;
        while (e < least && !wrong.compare_exchange_weak(least, e)) {}
      }
    });
    return wrong == NONE_WRONG ? -1 : int64_t(wrong);
  }

  // Which edges of the graph each of some rows keeps, ascending. What lies between a row and `end` may be written to.
  void pick(const Hop& hop, uint64_t hop_seed, int64_t start, int64_t stop, const int64_t* offsets, int64_t end,
            int64_t* edges, Scratch& scratch) {
    int64_t some[BLOCK], rows = 0;  // those that do not keep all of their edges
    for (int64_t r = start; r < stop; ++r) {
      const int64_t kept = offsets[r + 1] - offsets[r], first = first_[r], degree = degree_[r];
      int64_t* out = edges + offsets[r];
      int64_t d = 0;
      if (offsets[r] + WHOLE <= end)
        for (; d < WHOLE; ++d) out[d] = first + d;
      for (; d < kept; ++d) out[d] = first + d;
      some[rows] = r;
      rows += kept < degree;
      prefetch(&hop.senders[first]);
      prefetch(&hop.senders[first + std::max<int64_t>(kept, 1) - 1]);
    }
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t r = some[n], kept = offsets[r + 1] - offsets[r], degree = degree_[r];
      int64_t* out = edges + offsets[r];
      if (hop.weight == nullptr) pick_uniform(Random(hop_seed, nodes_[r]), first_[r], degree, kept, out, scratch);
      else if (hop.doubles) pick_weighted<double>(hop, hop_seed, r, kept, out, scratch);
      else pick_weighted<float>(hop, hop_seed, r, kept, out, scratch);
      for (int64_t d = 0; d < kept; ++d) prefetch(&hop.senders[out[d]]);
    }
  }

  // The edges with the least -log(u_e) / w_e (Efraimidis & Spirakis, 2006): as if drawn one after the other by weight.
  template <class T>
  void pick_weighted(const Hop& hop, uint64_t hop_seed, int64_t r, int64_t kept, int64_t* out, Scratch& scratch) {
    const T* weight = static_cast<const T*>(hop.weight) + first_[r];
    if (kept == positive_[r]) {
      for (int64_t d = 0, found = 0; found < kept; ++d)
        if (weight[d] > 0) out[found++] = first_[r] + d;
      return;
    }
    const Random random(hop_seed, nodes_[r]);
    auto& best = scratch.best;
    best.clear();
    for (int64_t d = 0; d < degree_[r] && kept > 0; ++d) {
      if (!(weight[d] > 0)) continue;
      const double w = double(weight[d]), u = double((random.word(d) >> 11) + 1) * 0x1p-53;  // 0 < u <= 1
      const bool full = int64_t(best.size()) == kept;
      if (full && 1 - u > best.front().first * w) continue;  // -log u >= 1 - u: most edges of a hub need no logarithm
      const std::pair<double, int64_t> mine(-std::log(u) / w, first_[r] + d);
      if (full) {
        if (!(mine < best.front())) continue;
        std::pop_heap(best.begin(), best.end());
        best.pop_back();
      }
      best.push_back(mine);
      std::push_heap(best.begin(), best.end());
    }
    for (int64_t d = 0; d < kept; ++d) out[d] = best[d].second;
    std::sort(out, out + kept);
  }

  // Whether all senders are nodes: others must not be followed.
  bool gather(const Hop& hop, int64_t start, int64_t stop, const int64_t* edges) {
    uint32_t most = 0;
    for (int64_t e = start; e < stop; ++e) {
      source_[e] = uint32_t(hop.senders[edges[e]]);
      most = std::max(most, source_[e]);
      prefetch(place_.data() + source_[e]);
    }
    return start >= stop || most < uint64_t(size_);
  }

  // From nodes to their places in the sample; a node that has none gets the next one. Whether it has one and where a row ends
  // are hard to foresee, so that nothing here branches on them.
  void relabel(int64_t start, int64_t stop, int64_t* senders) {
    const uint32_t *const source = source_.data(), base = base_;
    uint32_t *const nodes = nodes_.data(), *const fall = falls_.data();
    uint32_t next = base + uint32_t(count_), last = start > 0 ? base + uint32_t(senders[start - 1]) : 0;
    uint32_t falls = start > 0 ? fall[start - 1] : 0;
    for (int64_t e = start; e < stop; ++e) {
      const uint32_t node = source[e];
      uint32_t& place = place_[node];
      const uint32_t at = place, fresh = -uint32_t(at < base), mine = at ^ ((at ^ next) & fresh);
      nodes[next - base] = node;
      place = mine;
      next -= fresh;
      senders[e] = int64_t(mine - base);
      falls += mine <= last;
      last = mine;
      fall[e] = falls;
    }
    count_ = next - base;
  }

  // Brings the senders of each row into ascending order; where a node sends to a row more than once, its edges ascend already.
  void sort(int64_t start, int64_t stop, const int64_t* offsets, int64_t* senders, int64_t* edges, Scratch& scratch) const {
    int64_t unsorted[BLOCK], rows = 0;
    for (int64_t r = start; r < stop; ++r) {
      const int64_t first = offsets[r], end = std::max(first, offsets[r + 1] - 1);
      unsorted[rows] = r;
      rows += falls_[end] != falls_[first];
    }
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t first = offsets[unsorted[n]], length = offsets[unsorted[n] + 1] - first;
      if (length <= SCANNED) sort_short(senders + first, edges + first, length);
      else sort_long(senders + first, edges + first, length, scratch.row);
    }
  }

  int64_t size_;  // nodes of the graph
  // Of every node base_ + its place in the sample; less where it has none, as an earlier sample left it.
  std::vector<uint32_t> place_;
  uint32_t base_ = 1;
  int64_t count_ = 0, rows_ = 0, most_ = 0;  // nodes of the sample; receivers of the hop; their largest degree
  std::vector<uint32_t> nodes_, source_;  // of the sample; the sender of each edge: both as the graph numbers them
  std::vector<int64_t> first_, degree_, positive_;
  std::vector<uint32_t> falls_;  // how often places do not ascend, until each edge
  std::vector<Scratch> scratch_;
};

static const int64_t* in(uintptr_t address) { return reinterpret_cast<const int64_t*>(address); }
static int64_t* out(uintptr_t address) { return reinterpret_cast<int64_t*>(address); }

void bind_sampling(nb::module_& module);
void bind_sampling(nb::module_& module) {
  nb::class_<Hop>(module, "Hop")
      .def("__init__", [](Hop* self, int threads, uintptr_t offsets, uintptr_t senders, uintptr_t weight, bool doubles,
                          int64_t fanout, int64_t edges, int readers) {
        new (self) Hop{threads, in(offsets), reinterpret_cast<const int32_t*>(senders),
                       reinterpret_cast<const void*>(weight), doubles, fanout, edges, readers};
      });
  nb::class_<Sampler>(module, "Sampler")
      .def(nb::init<int64_t>())
      .def("begin",
           [](Sampler& self, uintptr_t seeds, int64_t count) {
             nb::gil_scoped_release unlocked;
             return self.begin(in(seeds), count);
           })
      .def("count",
           [](Sampler& self, const Hop& hop, uintptr_t offsets) {
             nb::gil_scoped_release unlocked;
             return self.count(hop, out(offsets));
           })
      .def("draw",
           [](Sampler& self, const Hop& hop, uint64_t seed, int64_t number, uintptr_t offsets, uintptr_t senders,
              uintptr_t edges) {
             nb::gil_scoped_release unlocked;
             return self.draw(hop, seed, number, in(offsets), out(senders), out(edges));
           })
      .def("nodes", [](const Sampler& self, uintptr_t nodes) {
        nb::gil_scoped_release unlocked;
        self.nodes(out(nodes));
      });
}

}  // namespace edgewise
