// Which neighbours of a node are drawn, and the order in which its edges stand.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "random.hpp"

namespace edgewise {

constexpr int64_t SCANNED = 48;      // picks that are compared one by one; beyond, a bit for each neighbour

// What one thread needs beside the output.
struct Scratch {
  std::vector<uint64_t> bits;                    // which neighbours are taken; all zero between rows
  std::vector<std::pair<double, int64_t>> best;  // (key, edge): a heap of those with the least keys, the greatest on top
  std::vector<std::pair<int64_t, int64_t>> row;  // (sender, edge)
};

// Floyd's algorithm: of the neighbours 0 .. last, one that is not taken yet, else `last` itself. Each set is as likely.
inline void pick_uniform(const Random& random, int64_t first, int64_t degree, int64_t kept, int64_t* out,
                         Scratch& scratch) {
  const int64_t shift = degree - kept;
  if (degree <= 64) {  // so few that half a word is random enough for a draw
    uint64_t taken = 0, word = 0;
    for (int64_t d = 0; d < kept; ++d) {
      word = d & 1 ? word >> 32 : random.word(d);
      const uint64_t pick = (word & 0xffffffff) * uint64_t(shift + d + 1) >> 32;
      taken |= uint64_t(1) << pick | (taken >> pick & 1) << (shift + d);
    }
    for (int64_t d = 0; d < kept; ++d, taken &= taken - 1) out[d] = first + __builtin_ctzll(taken);
  } else if (kept <= SCANNED) {
    for (int64_t d = 0; d < kept; ++d) {
      const int64_t pick = first + random.below(shift + d + 1, d);
      bool taken = false;
      for (int64_t before = 0; before < d; ++before) taken |= out[before] == pick;
      out[d] = taken ? first + shift + d : pick;
    }
    std::sort(out, out + kept);
  } else {
    for (int64_t d = 0; d < kept; ++d) {
      const int64_t pick = random.below(shift + d + 1, d);
      const int64_t mine = scratch.bits[pick >> 6] >> (pick & 63) & 1 ? shift + d : pick;
      scratch.bits[mine >> 6] |= uint64_t(1) << (mine & 63);
    }
    for (int64_t word = 0; word <= (degree - 1) / 64; ++word) {
      for (uint64_t left = scratch.bits[word]; left != 0; left &= left - 1)
        *out++ = first + 64 * word + __builtin_ctzll(left);
      scratch.bits[word] = 0;
    }
  }
}

inline void sort_long(int64_t* senders, int64_t* edges, int64_t n, std::vector<std::pair<int64_t, int64_t>>& row) {
  row.resize(size_t(n));
  for (int64_t d = 0; d < n; ++d) row[d] = {senders[d], edges[d]};
  std::sort(row.begin(), row.end());
  for (int64_t d = 0; d < n; ++d) std::tie(senders[d], edges[d]) = row[d];
}

inline void sort_short(int64_t* senders, int64_t* edges, int64_t n) {
  for (int64_t d = 1; d < n; ++d) {
    const int64_t sender = senders[d], edge = edges[d];
    int64_t to = d;
    for (; to > 0 && senders[to - 1] > sender; --to) {
      senders[to] = senders[to - 1];
      edges[to] = edges[to - 1];
    }
    senders[to] = sender;
    edges[to] = edge;
  }
}

}  // namespace edgewise
