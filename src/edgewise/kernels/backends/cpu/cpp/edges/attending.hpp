// What both passes of attention on edges share: one thread's scores, dropout and rows of a few heads, and how it walks along.
#pragma once

#include <cmath>
#include <vector>

#include "dropout.hpp"
#include "edges/parts.hpp"
#include "edges/table.hpp"
#include "memory.hpp"
#include "parallel.hpp"
#include "rows.hpp"

namespace edgewise::EDGEWISE_ISA {

// One thread's share of a call, G heads at a time. Arrays of edges are laid out [edge][head of the group].
template <class S, int G>
struct Attending {
  using A = Sum<S>;
  static constexpr int W = lanes<A>, ROOM = CHUNK * G + W;

  const Attention& call;
  const Loops<S, G> by_channel, by_value;
  const A scale, slope, keep;
  const Dropout dropout;
  const int H, C, D;
  const bool splits, alike, far;  // alike: values are keys; far: places of weights do not fit 32 bits
  alignas(64) A mask[CHUNK * G + lanes<float>], s[ROOM], p[ROOM], dp[ROOM], ds[ROOM], lse_of[ROOM], delta_of[ROOM];
  int32_t places[CHUNK], starts[CHUNK + 1];  // of the edges of a part of several rows: their row; of its rows: their edges
  Numbers<A> room;

  using Unit = Short<A, G>;  // a number for each head

  explicit Attending(const Attention& call)
      : call(call), by_channel(call.channels), by_value(call.values),
        scale(A(call.scale)), slope(A(call.slope)), keep(A(1 / (1 - call.dropout))), dropout(call.dropout, call.seed),
        H(call.heads), C(call.channels), D(call.values), splits(call.score == ADDITIVE && call.positive),
        alike(call.v.data == call.k.data),
        far(uint64_t(call.batch) * call.graph.edges * call.heads > UINT32_MAX) {
    room.resize(size_t(G) * (3 * C + 2 * D) + 8 * W);
  }

  static S* row(const Matrix& x, int64_t b, int64_t n, int64_t from) {
    return (S*)x.data + b * x.batch_stride + n * x.row_stride + from;
  }
  static Rows<S> rows(const Matrix& x, int64_t b, int64_t from, const int32_t* index, int64_t known) {
    return {(const S*)x.data + b * x.batch_stride + from, x.row_stride, index, known};
  }
  // Prefetches a row that a later part reads or writes.
  EDGEWISE_INLINE static void prefetch_row(const Matrix& x, int64_t b, int64_t n, int from, int count) {
    prefetch(row(x, b, n, from), count * sizeof(S));
  }
  // What of an ADDITIVE y_i comes from positive scores, and by it the heads' sums of such weights; null where no gradient follows.
  A* positive_of(int64_t b, int64_t i, int h) const {
    return splits ? (A*)call.positive + (b * call.graph.rows + i) * H * (D + 1) + h * D : nullptr;
  }
  A* positive_share_of(int64_t b, int64_t i, int h) const {
    return splits ? positive_of(b, i, 0) + H * D + h : nullptr;
  }
  // A row as it is computed with: itself, or a wider copy in `room`.
  static const A* widened(const S* x, int count, A* room) {
    if constexpr (std::is_same_v<S, A>) return x;
    for (int n = 0; n < count; ++n) room[n] = number(x[n]);
    return room;
  }
  // The rows of a part's own end: `which` of them for each of its edges, or null for the only one. None where x is not given.
  static Rows<A> own_rows(const Matrix& x, int64_t b, int64_t n, int from, int count, const int32_t* which, A* room) {
    if (!x.data) return {};
    if (!which) prefetch_row(x, b, n + NEXT, from, count);
    return {widened(row(x, b, n, from), count, room), which ? x.row_stride : 0, which, 0, FURTHER};
  }
  // Where a row's sums lie until `narrowed` finishes them: in the row itself if it is wide enough. They start at zero
  // where nothing may come, or what comes is added.
  static A* sums(S* out, int count, A* room, bool zero) {
    if constexpr (std::is_same_v<S, A>) room = out;
    if (zero) std::memset(room, 0, count * sizeof(A));
    return room;
  }
  EDGEWISE_INLINE static Unit unit(const A* p) {
    Unit x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  EDGEWISE_INLINE static void put_unit(A* p, Unit x) { std::memcpy(p, &x, sizeof x); }
  // Σ of the numbers of n edges, added to one for each head.
  EDGEWISE_INLINE static void add_units(const A* x, int64_t n, A* sum) {
    constexpr int edges = W / G;
    Unit total = unit(sum);
    int64_t e = 0;
    if (edges > 1 && n >= 2 * edges) {
      Vector<A> several{};
      for (; e + edges <= n; e += edges) several += load(x + e * G);
      several = sum_of_repeats<A, G>(several);
      total += unit((const A*)&several);
    }
    for (; e < n; ++e) total += unit(x + e * G);
    put_unit(sum, total);
  }
  EDGEWISE_INLINE static void multiply(A* x, int64_t count, Vector<A> factor) {
    for (int64_t at = 0; at < count; at += W) store(x + at, load(x + at) * factor);
  }
  static void narrowed(const A* x, int count, A factor, S* out) {
    if (std::is_same_v<S, A> && factor == 1) return;
    for (int n = 0; n < count; ++n) put(out + n, x[n] * factor);
  }

  // Which row of the part each edge is of, if there are several; and where the edges of each begin.
  EDGEWISE_INLINE const int32_t* lay_out(const Part& part, const int64_t* offsets) {
    starts[0] = 0;
    if (part.rows == 1) return nullptr;
    for (int r = 0; r < part.rows; ++r) {
      starts[r + 1] = int32_t(offsets[part.row + r + 1] - part.first);
      for (int e = starts[r]; e < starts[r + 1]; ++e) places[e] = r;
    }
    return places;
  }

  // s: the scores between `own` (the heads from h of this end) and the ends of `others`, scaled, with their bias.
  // For ADDITIVE ds keeps what LeakyReLU was applied to.
  EDGEWISE_INLINE void score(int h, const Rows<A>& own, const Matrix& others, int64_t b, const int32_t* index, int64_t n,
                             int64_t along, int64_t first, const int32_t* edge) {
    if (call.score == DOT) {
      by_channel.dots(own, rows(others, b, h * C, index, along), n, C, s);
      if (scale != 1) multiply(s, n * G, all(scale));
    } else if (call.score == GATED) {
      by_channel.gated_scores(own, (const A*)call.a + h * C, slope, rows(others, b, h * C, index, along), n, C, s);
    } else if (call.score == ADDITIVE) {
      const A* mine[W / G];
      std::fill_n(mine, W / G, own.x);
      const Vector<A> only = side_by_side<A, G>(mine);
      by_vector<S, G>(own, rows(others, b, h, index, along), n, G, [&](int64_t e, const auto& one, const S** x) {
        for (int i = 0; i < W / G; ++i) mine[i] = one(i);
        const Vector<A> z = (own.stride == 0 ? only : side_by_side<A, G>(mine)) + side_by_side<S, G>(x);
        store(ds + e * G, z);
        store(s + e * G, z > 0 ? z : z * slope);
      });
    } else {
      for (int64_t at = 0; at < n * G; ++at) s[at] = 0;
    }
    if (call.bias) {
      const A* bias = (const A*)call.bias + b * call.bias_batch_stride + h;
      for (int64_t e = 0; e < n; ++e)
        for (int g = 0; g < G; ++g) s[e * G + g] += bias[(edge ? int64_t(edge[e]) : first + e) * H + g];
    }
  }

  // mask: by what the weights of n edges are multiplied, `keep` or 0; the edges are first, first + 1, … or edge[0], edge[1], …
  EDGEWISE_INLINE void drop(int64_t b, int64_t first, const int32_t* edge, int64_t n, int h) {
    constexpr int L = lanes<float>;  // of L / G edges
    const auto place = [&](int64_t e) { return uint64_t((b * call.graph.edges + e) * H + h); };
    const auto edge_of = [&](int64_t e) { return edge ? int64_t(edge[std::min(e, n - 1)]) : first + e; };
    Bits<float> lane;
    for (int k = 0; k < L; ++k) lane[k] = uint32_t((edge ? 0 : k / G * H) + k % G);
    uint32_t hashes[L];
    for (int64_t at = 0; at < n * G; at += L) {
      if (far) {
        for (int k = 0; k < L; ++k) {
          const uint64_t mine = place(edge_of(at / G + k / G)) + k % G;
          hashes[k] = dropout.hash(uint32_t(mine), dropout.upper(mine));
        }
      } else {
        Bits<float> start = lane;
        if (!edge) start += uint32_t(place(first + at / G));
        else
#pragma GCC unroll 16
          for (int k = 0; k < L; ++k) start[k] += uint32_t(place(edge_of(at / G + k / G)));
        const Bits<float> several = dropout.hash(start, dropout.upper(0));
        std::memcpy(hashes, &several, sizeof several);
      }
      for (int k = 0; k < L; ++k) mask[at + k] = dropout.pass(keep, hashes[k]);
    }
  }

  // Prefetches the row that a later receiver's sums are written to.
  EDGEWISE_INLINE void prefetch_sums(int64_t b, int64_t i, int h) {
    prefetch_row(call.y, b, i, h * D, G * D);
    if (splits) prefetch(positive_of(b, i, h), G * D * sizeof(A));
  }
  // Prefetches what the edges ahead of n read of their senders.
  EDGEWISE_INLINE void prefetch_senders(int64_t b, int h, const int32_t* index, int64_t n, int64_t known) {
    if (call.score != NONE) prefetch_at_once(rows(call.k, b, h * C, index, known), n, G * C);
    if (!alike) prefetch_at_once(rows(call.v, b, h * D, index, known), n, G * D);
  }

  // How many numbers of a receiver's head its senders read beside vectors. Four fill a line where there are four heads.
  int stats_of() const { return call.score == ADDITIVE && std::is_same_v<S, A> ? 4 : 2; }

  void forward(int64_t b, int h, const Part& part);
  void forward_short(int64_t b, int h, const Part& part);
  void by_sender(int64_t b, int h, const Part& part, const A* stats, A* ds_out, double* da);
  void by_receiver(int64_t b, int h, const Part& part, const A* ds_in, double* da);
  void prepare(int64_t b, int64_t first, int64_t count, int h, A* stats);
  void through_gated_scores(int h, const A* x, const Rows<S>& others, int64_t n, const A* weight, bool begins, bool ends,
                            A* dx, double* da);
};

// What an edge of some heads takes, its exponentials included, in multiplications.
inline int64_t work_of(const Attention& call, int heads) { return int64_t(heads) * (call.channels + call.values + 16); }

// Calls run(attending, piece, h) for every piece and every group of G heads.
template <class S, int G, class OfPiece>
void for_pieces(const Attention& call, const Pieces& pieces, const OfPiece& run) {
  // Group by group: the heads' slices of all nodes stay in the cache more easily than whole rows do.
  over_items(call.threads, call.heads / G * pieces.count, [&](int64_t item, int) {
    Attending<S, G> attending(call);
    run(attending, item % pieces.count, int(item / pieces.count) * G);
  });
}

// Calls run(attending, piece, h, part) for the parts of every row; a row without edges has one, or its share of one.
template <class S, int G, class OfPart>
void for_parts(const Attention& call, const Adjacency& graph, const Pieces& pieces, const Bands& bands, const OfPart& run) {
  if (bands.count == 1) {
    for_pieces<S, G>(call, pieces, [&](auto& some, int64_t piece, int h) {
      const int64_t stop = pieces.start(piece + 1);
      for (int64_t n = pieces.start(piece), rows; n < stop; n += rows) {
        rows = narrow<S> ? 1 : together(graph.offsets, n, stop);
        const int64_t first = graph.offsets[n], last = graph.offsets[n + rows];
        run(some, piece, h, Part{n, rows, first, last, graph.index + first, graph.edges - first, bands.reach, true});
      }
    });
    return;
  }
  for (int h = 0; h < call.heads; h += G)
    by_band(call.threads, graph, pieces, bands, [&](int64_t piece, const Run& rows) {
      Attending<S, G> attending(call);
      rows.each([&](const Part& part) { run(attending, piece, h, part); });
    });
}

// The largest group of heads that divides them and fits a vector; of numbers other than floats 4 heads or 1.
template <class S, template <class, int> class Kernel>
void by_heads(const Attention& call) {
  constexpr int W = lanes<Sum<S>>;
  const int H = call.heads;
  if constexpr (std::is_same_v<S, float> && W >= 8)
    if (H % 8 == 0) return Kernel<S, 8>::run(call);
  if constexpr (W >= 4)
    if (H % 4 == 0) return Kernel<S, 4>::run(call);
  if constexpr (std::is_same_v<S, float>)
    if (H % 2 == 0) return Kernel<S, 2>::run(call);
  Kernel<S, 1>::run(call);
}

}  // namespace edgewise::EDGEWISE_ISA
