// Where the nodes of a sample are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "memory.hpp"

namespace edgewise {

// Into the second cache: the first would let go of some before they are read.
static inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

// A number for every node of the graph or, where these are many, a table by hash of those that were drawn. The number is
// `base` + place in the sample; less than `base`: none, left from an earlier sample.
class Places {
 public:
  Places(int64_t size, int64_t dense) : size_(size), sparse_(size > dense) {
    if (!sparse_) place_ = scratch<uint32_t>(size_t(size));
    forget();
  }

  uint32_t base() const { return base_; }

  // A new sample, after one of so many nodes.
  void begin(int64_t before) {
    base_ += uint32_t(before);
    if (base_ <= std::numeric_limits<uint32_t>::max() - uint32_t(size_) - 1) return;
    forget();
    base_ = 1;
  }

  // Room for so many nodes, of which the sample has some; in a table, half of it stays empty.
  void reserve(int64_t count, const uint32_t* nodes, int64_t known) {
    count = std::min(count, size_);
    if (!sparse_ || int64_t(entries_) >= 2 * count) return;
    shift_ = 63;
    while (int64_t(1) << (64 - shift_) < 2 * count) --shift_;
    table_.reset();
    entries_ = size_t(1) << (64 - shift_);
    table_ = scratch<Entry>(entries_);
    forget();
    for (int64_t n = 0; n < known; ++n) found(nodes[n]) = base_ + uint32_t(n);
  }

  // Prefetches what `of` reads.
  void expect(uint32_t node) const {
    if (sparse_) prefetch(&table_[start(node)]);
    else prefetch(&place_[node]);
  }

  // The number of a node, to be read and written.
  uint32_t& of(uint32_t node) { return sparse_ ? found(node) : place_[node]; }

  // Calls work(of, expect) with the two for this kind of table: a loop need not decide at each node.
  template <class Work>
  void with(const Work& work) {
    if (sparse_)
      work([this](uint32_t node) -> uint32_t& { return found(node); },
           [this](uint32_t node) { prefetch(&table_[start(node)]); });
    else
      work([place = place_.get()](uint32_t node) -> uint32_t& { return place[node]; },
           [place = place_.get()](uint32_t node) { prefetch(&place[node]); });
  }

 private:
  struct Entry {
    uint32_t node, at;
  };

  void forget() {
    if (sparse_) std::fill_n(table_.get(), entries_, Entry{0, 0});
    else std::fill_n(place_.get(), size_, 0);
  }

  size_t start(uint32_t node) const { return size_t(uint64_t(node) * 0x9e3779b97f4a7c15 >> shift_); }

  // Where the node's number is; one that has none gets an entry, which is its own once the number is written.
  uint32_t& found(uint32_t node) {
    size_t n = start(node);
    while (table_[n].at >= base_ && table_[n].node != node) n = (n + 1) & (entries_ - 1);
    table_[n].node = node;
    return table_[n].at;
  }

  int64_t size_;  // nodes of the graph
  bool sparse_;
  uint32_t base_ = 1;
  std::unique_ptr<uint32_t[], Freed> place_;
  std::unique_ptr<Entry[], Freed> table_;
  size_t entries_ = 0;  // a power of two
  int shift_ = 63;
};

}  // namespace edgewise
