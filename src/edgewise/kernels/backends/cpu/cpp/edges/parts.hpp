// How rows of edges are walked: a few short ones as one part, long ones in bands whose neighbours fit the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel.hpp"
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
  const int32_t* edge = nullptr;  // their numbers, where these are not first, first + 1, …

  EDGEWISE_INLINE int64_t number(int64_t n) const { return edge ? int64_t(edge[n]) : first + n; }
  // How many neighbours there are from edge e on, where they are so prefetched.
  int64_t along(int64_t e) const { return reach == Reach::BEYOND ? known - (e - first) : 0; }
  int64_t at_once(int64_t e) const { return reach == Reach::SCATTERED ? known - (e - first) : 0; }
  int64_t ahead() const { return rows > 1 ? FURTHER : NEXT; }
};

// Rows that follow each other, or what lies of them in one band: of row + r the edges first[r] … last[r] - 1, whose neighbours and
// numbers lie side by side.
struct Run {
  const int64_t* offsets;  // of row, row + 1, …
  int64_t row, rows;
  const int64_t *first, *last;
  const int32_t *index, *edge;  // no edges' numbers where they are their own
  int64_t known;                // neighbours that may be read
  Reach reach;
  bool start;  // the first band: a row without edges has a part too

  Run(const Adjacency& graph, int64_t from, int64_t stop, Reach reach)
      : offsets(graph.offsets + from), row(from), rows(stop - from), first(offsets), last(offsets + 1),
        index(graph.index + *first), edge(graph.edge ? graph.edge + *first : nullptr), known(graph.edges - *first), reach(reach),
        start(true) {}

  // Calls of(part) for the part of each row that has one.
  template <class Of>
  EDGEWISE_INLINE void each(const Of& of) const {
    for (int64_t r = 0, at = 0; r < rows; ++r) {
      const int64_t count = last[r] - first[r];
      const bool begins = first[r] == offsets[r];
      if (count || (begins && start && first[r] == offsets[r + 1]))
        of(Part{row + r, 1, first[r], last[r], index + at, known - at, reach, begins, edge ? edge + at : nullptr});
      at += count;
    }
  }

  // The first of the rows, which are taken away here.
  Run take(int64_t some) {
    Run taken = *this;
    taken.rows = std::min(some, rows);
    int64_t count = 0;
    for (int64_t r = 0; r < taken.rows; ++r) count += last[r] - first[r];
    offsets += taken.rows, row += taken.rows, rows -= taken.rows, first += taken.rows, last += taken.rows;
    index += count, known -= count, edge = edge ? edge + count : nullptr;
    return taken;
  }
};

// How many rows from this one on are one part.
inline int64_t together(const int64_t* offsets, int64_t row, int64_t end) {
  int64_t n = row;
  while (n < end && n - row < CHUNK && offsets[n + 1] - offsets[n] <= SHORT && offsets[n + 1] - offsets[row] <= CHUNK) ++n;
  return std::max<int64_t>(1, n - row);
}

// Neighbours in bands whose rows stay in the cache where all of them together would not: then each row is walked in parts, one
// for each band. Reading and writing a row once more is paid for where it has many edges for the bytes of all neighbours, unless
// these lie near by in rows that follow each other. Bands have 12 MB, and parts at least 20 edges, in the mean: smaller ones took
// sums of 20 edges a row half as long again on Zen 4 with AVX-512, where rows that are asked for at once come fast.
struct Bands {
  int64_t count = 1, neighbours;
  Reach reach;

  Bands(const Adjacency& graph, int64_t neighbours, int64_t bytes, bool whole)
      : neighbours(neighbours), reach(reach_of(graph, bytes * neighbours < 1 << 19, bytes)) {
    constexpr int64_t worth = 5 << 18;  // bytes for each edge of a row
    constexpr int64_t usual = 12 << 20, least = 20;
    const int64_t all = bytes * neighbours, edges = graph.edges / std::max<int64_t>(1, graph.rows);
    if (whole || all > edges * worth) return;
    const int64_t several = std::min((all + usual / 2) / usual, edges / least);
    if (several > 1 && span(graph) * bytes > usual / 2) count = several;
  }

  // From the first to the last neighbour of two rows that follow each other, in the mean of some.
  static int64_t span(const Adjacency& graph) {
    constexpr int64_t some = 64;
    int64_t total = 0;
    for (int64_t n = 0; n < some; ++n) {
      const int64_t row = (graph.rows - 1) * n / some;
      int32_t low = INT32_MAX, high = 0;
      for (int64_t i = row; i < std::min(row + 2, graph.rows); ++i) {
        if (graph.offsets[i] == graph.offsets[i + 1]) continue;
        const int32_t first = graph.index[graph.offsets[i]], last = graph.index[graph.offsets[i + 1] - 1];
        low = std::min({low, first, last}), high = std::max({high, first, last});
      }
      total += std::max(0, high - low);
    }
    return total / some;
  }

  // Where in [from, to) the band ends. Neighbours that do not ascend are still walked once each.
  const int32_t* end(int64_t band, const int32_t* from, const int32_t* to) const {
    const int64_t limit = neighbours * (band + 1) / count;
    while (band + 1 < count && from < to && *from < limit) ++from;
    return band + 1 < count ? from : to;
  }
};

// Calls of_piece(piece, run) for what lies of the rows of each piece in each band, band by band.
template <class OfPiece>
void by_band(int threads, const Adjacency& graph, const Pieces& pieces, const Bands& bands, const OfPiece& of_piece) {
  std::vector<int64_t> next(graph.offsets, graph.offsets + graph.rows);  // each row's first edge that was not walked
  for (int64_t band = 0; band < bands.count; ++band) {
    over_items(threads, pieces.count, [&](int64_t piece, int) {
      const int64_t start = pieces.start(piece), stop = pieces.start(piece + 1);
      std::vector<int64_t> ends(stop - start);
      std::vector<int32_t> index, edge;  // of all parts, one after the other, so that rows can be prefetched early
      index.reserve(graph.offsets[stop] - graph.offsets[start]);
      if (graph.edge) edge.reserve(index.capacity());
      for (int64_t n = start; n < stop; ++n) {
        const int32_t *from = graph.index + next[n], *to = bands.end(band, from, graph.index + graph.offsets[n + 1]);
        index.insert(index.end(), from, to);
        ends[n - start] = to - graph.index;
        if (graph.edge) edge.insert(edge.end(), graph.edge + next[n], graph.edge + ends[n - start]);
      }
      Run run(graph, start, stop, bands.reach);
      run.first = next.data() + start, run.last = ends.data(), run.index = index.data(), run.known = int64_t(index.size());
      run.edge = graph.edge ? edge.data() : nullptr, run.start = band == 0;
      of_piece(piece, run);
      std::copy(ends.begin(), ends.end(), next.begin() + start);
    });
  }
}

}  // namespace edgewise::EDGEWISE_ISA
