// How rows of edges are walked: a few short ones as one part, long ones in bands whose neighbours fit the cache.
#pragma once

#include <algorithm>
#include <vector>

#include "rows.hpp"

namespace edgewise::EDGEWISE_ISA {

constexpr int SHORT = 8;  // edges of a row that is worth taking together with others

// Edges first … last - 1, whose neighbours are index[0], index[1], …: some of one row, or all of a few short rows, which then
// fit a chunk. `known` neighbours may be read, and there are as many edges in the graph from `first` on.
struct Part {
  int64_t row, rows, first, last;
  const int32_t* index;
  int64_t known;
  Reach reach;
  bool begins;  // no edge of the row comes earlier

  // How many neighbours there are from edge e on, where they are so prefetched.
  int64_t along(int64_t e) const { return reach == Reach::BEYOND ? known - (e - first) : 0; }
  int64_t at_once(int64_t e) const { return reach == Reach::SCATTERED ? known - (e - first) : 0; }
  int64_t ahead() const { return rows > 1 ? FURTHER : NEXT; }
};

// How many rows from this one on are one part.
inline int64_t together(const int64_t* offsets, int64_t row, int64_t end) {
  int64_t n = row;
  while (n < end && n - row < CHUNK && offsets[n + 1] - offsets[n] <= SHORT && offsets[n + 1] - offsets[row] <= CHUNK) ++n;
  return std::max<int64_t>(1, n - row);
}

// Neighbours in bands whose rows stay in the cache where all of them together would not: then each row is walked in parts,
// one for each band, as long as parts are long enough to pay for what is read and written of the row itself.
struct Bands {
  int64_t count = 1, neighbours;
  Reach reach;

  Bands(const Adjacency& graph, int64_t neighbours, int64_t bytes, bool whole) : neighbours(neighbours) {
    constexpr int64_t usual = 12 << 20, most = 24 << 20, edges = 20;  // bytes of a band, edges of a part
    reach = reach_of(graph, bytes * neighbours < 1 << 19, bytes);
    bytes *= neighbours;
    if (whole || graph.rows == 0) return;
    count = std::max<int64_t>(1, std::min((bytes + usual / 2) / usual, graph.edges / graph.rows / edges));
    if (bytes / count > most) count = 1;
  }
  // Where in [from, to) the band ends. Neighbours that do not ascend are still walked once each.
  const int32_t* end(int64_t band, const int32_t* from, const int32_t* to) const {
    return band + 1 == count ? to : std::lower_bound(from, to, int32_t(neighbours * (band + 1) / count));
  }
};

}  // namespace edgewise::EDGEWISE_ISA
