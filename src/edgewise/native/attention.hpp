// Attention on the edges of a graph, receiver by receiver: y_i = Σ_j softmax_j(s_ij) v_j, and its gradients.
//
// Forward: an online softmax over chunks of a row. Backward: one pass by sender, which recomputes p_ij from the saved
// log-sum-exp and finishes dk_j and dv_j, then one by receiver for dq_i. Additive scores need no second pass: since
// Σ_j p_ij (dp_ij − δ_i) = 0, dq_i follows from what the forward pass sums over its positive scores. Short rows are taken a
// chunk of edges at a time, long ones band by band where their neighbours exceed the cache.
#pragma once

#include <cmath>
#include <vector>

#include "dropout.hpp"
#include "memory.hpp"
#include "parallel.hpp"
#include "rows.hpp"
#include "table.hpp"

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

  // How many neighbours there are from edge e on, where they are so asked for.
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
    constexpr int64_t wanted = 12 << 20, most = 24 << 20, edges = 20;  // bytes of a band, edges of a part
    reach = reach_of(graph, bytes * neighbours < 1 << 19, bytes);
    bytes *= neighbours;
    if (whole || graph.rows == 0) return;
    count = std::max<int64_t>(1, std::min((bytes + wanted / 2) / wanted, graph.edges / graph.rows / edges));
    if (bytes / count > most) count = 1;
  }
  // Where in [from, to) the band ends. Neighbours that do not ascend are still walked once each.
  const int32_t* end(int64_t band, const int32_t* from, const int32_t* to) const {
    return band + 1 == count ? to : std::lower_bound(from, to, int32_t(neighbours * (band + 1) / count));
  }
};

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
  std::vector<A> room;

  using Unit = Short<A, G>;  // a number for each head

  explicit Attending(const Attention& call)
      : call(call), by_channel(Loops<S, G>::choose(call.channels)), by_value(Loops<S, G>::choose(call.values)),
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
  // Asks for a row that a later part reads or writes.
  EDGEWISE_INLINE static void ask(const Matrix& x, int64_t b, int64_t n, int from, int count) {
    prefetch(row(x, b, n, from), count * sizeof(S));
  }
  // What of an ADDITIVE y_i comes from positive scores, and by it the heads' sums of such weights; null where nobody asks.
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
    if (!which) ask(x, b, n + NEXT, from, count);
    return {widened(row(x, b, n, from), count, room), which ? x.row_stride : 0, which, 0, FURTHER};
  }
  // Where a row's sums are kept until `narrowed` finishes them: in the row itself if it is wide enough. They start at zero
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
      by_channel.gates(own, (const A*)call.a + h * C, slope, rows(others, b, h * C, index, along), n, C, s);
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
        const Bits<float> found = dropout.hash(start, dropout.upper(0));
        std::memcpy(hashes, &found, sizeof found);
      }
      for (int k = 0; k < L; ++k) mask[at + k] = dropout.pass(keep, hashes[k]);
    }
  }

  // Asks for the row that a later receiver's sums are written to.
  EDGEWISE_INLINE void ask_for_sums(int64_t b, int64_t i, int h) {
    ask(call.y, b, i, h * D, G * D);
    if (splits) prefetch(positive_of(b, i, h), G * D * sizeof(A));
  }
  // Asks for what the edges ahead of n read of their senders.
  EDGEWISE_INLINE void ask_for_senders(int64_t b, int h, const int32_t* index, int64_t n, int64_t known) {
    if (call.score != NONE) ask_at_once(rows(call.k, b, h * C, index, known), n, G * C);
    if (!alike) ask_at_once(rows(call.v, b, h * D, index, known), n, G * D);
  }

  void forward(int64_t b, int h, const Part& part) {
    if (part.rows > 1) return forward_short(b, h, part);
    const int64_t i = part.row, first = part.first, last = part.last;
    const A infinity = std::numeric_limits<A>::infinity();
    const Vector<A> lowest = all(-infinity);
    S* out = row(call.y, b, i, h * D);
    const bool at_once = first < last && last - first <= CHUNK;  // all weights are here before the first is used
    A *y = sums(out, G * D, room.data() + G * C, first == last), *const y_positive = positive_of(b, i, h);
    const Rows<A> own = own_rows(call.q, b, i, h * C, G * C, nullptr, room.data());
    ask_for_sums(b, i + part.ahead(), h);
    if (splits && first == last) std::memset(y_positive, 0, G * D * sizeof(A));
    const int64_t at = (b * call.graph.rows + i) * H + h;
    A *const lse = (A*)call.lse, *const shares = positive_share_of(b, i, h);
    Vector<A> top = lowest, total{}, positive{}, inverse{}, rest = all(A(1));
    if (!part.begins) {  // the earlier parts count as one edge, whose weight is 1 at their log-sum-exp
      prefetch(y, G * D * sizeof(A));
      for (int l = 0; l < G; ++l) {
        if (lse[at + l] != infinity) total[l] = 1;
        if (splits) positive[l] = shares[l];
      }
      for (int l = 0; l < W; ++l)
        if (lse[at + l % G] != infinity) top[l] = lse[at + l % G];
    }
    const auto finish = [&] {
      total = sum_of_repeats<A, G>(total);
      inverse = choose<A>(total == Vector<A>{}, Vector<A>{}, 1 / total);  // NaN stays NaN
    };
    for (int64_t e = first; e < last; e += CHUNK) {
      const int64_t n = std::min<int64_t>(CHUNK, last - e), along = part.along(e);
      const int32_t* index = part.index + (e - first);
      const bool fresh = e == first && part.begins;
      if (part.reach == Reach::SCATTERED) ask_for_senders(b, h, index, n, part.at_once(e));
      score(h, own, call.k, b, index, n, along, e, nullptr);
      for (int64_t at = n * G; at % W; ++at) s[at] = -infinity;
      Vector<A> highest = top;
      for (int64_t at = 0; at < n * G; at += W) highest = larger<A>(load(s + at), highest);
      highest = largest_of_repeats<A, G>(highest);
      Vector<A> shrink = all(A(1));  // of what was summed earlier
      if (!fresh) {
        shrink = exponential(choose<A>(highest > lowest, top - highest, Vector<A>{}));
        total *= shrink;
        positive *= shrink;
      }
      top = highest;
      const Vector<A> shift = choose<A>(top > lowest, top, Vector<A>{});
      for (int64_t at = 0; at < n * G; at += W) {
        const Vector<A> weight = exponential(load(s + at) - shift);
        store(p + at, weight);
        total += weight;
        if (splits) {
          const Vector<A> some = load(ds + at) > 0 ? weight : Vector<A>{};
          store(dp + at, some);
          positive += some;
        }
      }
      if (call.dropout > 0) {
        drop(b, e, nullptr, n, h);
        for (int64_t at = 0; at < n * G; ++at) p[at] *= mask[at];
        for (int64_t at = 0; splits && at < n * G; ++at) dp[at] *= mask[at];
      }
      if (at_once) {
        finish();
        shrink *= inverse;
        multiply(p, n * G, inverse);
        if (splits) multiply(dp, n * G, inverse);
      }
      for (int g = 0; !fresh && g < G; ++g)
        if (shrink[g] != 1) {
          for (int d = 0; d < D; ++d) y[g * D + d] *= shrink[g];
          for (int d = 0; splits && d < D; ++d) y_positive[g * D + d] *= shrink[g];
        }
      const Rows<S> values = rows(call.v, b, h * D, index, alike ? 0 : along);
      if (splits) by_value.add_rows_twice({p, dp}, values, n, D, {y, y_positive}, fresh);
      else by_value.add_rows({p}, values, n, D, {y}, fresh);
    }
    if (!at_once) {
      finish();
      rest = inverse;
    }
    positive = sum_of_repeats<A, G>(positive);
    for (int g = 0; g < G; ++g) narrowed(y + g * D, D, rest[g], out + g * D);
    if (lse) {
      const Vector<A> found = choose<A>(total == Vector<A>{}, -lowest, top + logarithm(total));
      for (int g = 0; g < G; ++g) lse[at + g] = found[g];
    }
    for (int g = 0; splits && g < G; ++g) {
      for (int d = 0; d < D && rest[g] != 1; ++d) y_positive[g * D + d] *= rest[g];
      shares[g] = positive[g] * inverse[g];
    }
  }

  // Short rows together: their scores and exponentials fill vectors that each alone would leave half empty, and none waits
  // for the one before it.
  void forward_short(int64_t b, int h, const Part& part) {
    const int64_t n = part.last - part.first, numbers = part.rows * G, at = (b * call.graph.rows + part.row) * H + h;
    const A infinity = std::numeric_limits<A>::infinity();
    const int32_t* which = lay_out(part, call.graph.offsets);
    A *const top = lse_of, *const total = delta_of, *const lse = (A*)call.lse;
    A* const positive = s;  // the scores are not needed any more by then
    const int64_t along = part.along(part.first);
    if (part.reach == Reach::SCATTERED) ask_for_senders(b, h, part.index, n, part.known);
    score(h, own_rows(call.q, b, part.row, h * C, G * C, which, nullptr), call.k, b, part.index, n, along, part.first, nullptr);
    for (int r = 0; r < part.rows; ++r) {
      Unit highest = Unit{} - infinity;
      for (int e = starts[r]; e < starts[r + 1]; ++e) highest = unit(s + e * G) > highest ? unit(s + e * G) : highest;
      put_unit(top + r * G, highest);
      const Unit shift = highest > -infinity ? highest : Unit{};
      for (int e = starts[r]; e < starts[r + 1]; ++e) put_unit(s + e * G, unit(s + e * G) - shift);
    }
    for (int64_t at = n * G; at % W; ++at) s[at] = -infinity;
    for (int64_t at = 0; at < n * G; at += W) {
      const Vector<A> weight = exponential(load(s + at));
      store(p + at, weight);
      if (splits) store(dp + at, load(ds + at) > 0 ? weight : Vector<A>{});
    }
    std::memset(total, 0, numbers * sizeof(A));
    for (int r = 0; r < part.rows; ++r) add_units(p + starts[r] * G, starts[r + 1] - starts[r], total + r * G);
    if (splits) {
      std::memset(positive, 0, numbers * sizeof(A));
      for (int r = 0; r < part.rows; ++r) add_units(dp + starts[r] * G, starts[r + 1] - starts[r], positive + r * G);
    }
    for (int64_t at = 0; at < numbers; at += W) {
      const Vector<A> sum = load(total + at);
      store(total + at, choose<A>(sum == Vector<A>{}, Vector<A>{}, 1 / sum));  // NaN stays NaN
      if (lse) store(top + at, choose<A>(sum == Vector<A>{}, all(infinity), load(top + at) + logarithm(sum)));
    }
    if (call.dropout > 0) {
      drop(b, part.first, nullptr, n, h);
      for (int64_t at = 0; at < n * G; ++at) p[at] *= mask[at];
      for (int64_t at = 0; splits && at < n * G; ++at) dp[at] *= mask[at];
    }
    for (int r = 0; r < part.rows; ++r) {
      const int64_t from = starts[r], count = starts[r + 1] - from;
      const Unit inverse = unit(total + r * G);
      for (int64_t e = from; e < from + count; ++e) put_unit(p + e * G, unit(p + e * G) * inverse);
      ask_for_sums(b, part.row + r + part.ahead(), h);
      const Rows<S> values = rows(call.v, b, h * D, part.index + from, along && !alike ? along - from : 0);
      A* const y = (A*)row(call.y, b, part.row + r, h * D);
      if (lse) std::memcpy(lse + at + r * H, top + r * G, G * sizeof(A));
      if (!splits) {
        by_value.add_rows({p + from * G}, values, count, D, {y}, true);
        continue;
      }
      for (int64_t e = from; e < from + count; ++e) put_unit(dp + e * G, unit(dp + e * G) * inverse);
      by_value.add_rows_twice({p + from * G, dp + from * G}, values, count, D, {y, positive_of(b, part.row + r, h)}, true);
      put_unit(positive_share_of(b, part.row + r, h), unit(positive + r * G) * inverse);
    }
  }

  // Everything that a sender's gradient needs, and ds of each of its edges.
  void by_sender(int64_t b, int h, const Part& part, const A* stats, A* ds_out, double* da) {
    const int64_t j = part.row, first = part.first, last = part.last;
    const Matrix queries = stats_of() == 4 ? Matrix{(void*)(stats + 2 * H), 0, 4 * H} : call.q;
    A* place = room.data() + G * (C + D) + W;
    const int32_t* which = lay_out(part, call.transpose.offsets);
    const Rows<A> own = own_rows(call.k, b, j, h * C, G * C, which, room.data());
    const Rows<A> own_v = own_rows(call.v, b, j, h * D, G * D, which, room.data() + G * C);
    const bool zero = part.begins && (call.score != DOT || first == last), shared = call.dk.data == call.dv.data;
    A* const place_v = place + (shared ? 0 : G * C);
    for (int64_t r = 0; r < part.rows; ++r) {
      if (call.score != NONE) sums(row(call.dk, b, j + r, h * C), G * C, place, zero);
      sums(row(call.dv, b, j + r, h * D), G * D, place_v, first == last);
    }
    for (int64_t t = first; t < last; t += CHUNK) {
      const int64_t n = std::min<int64_t>(CHUNK, last - t), along = part.along(t), at_once = part.at_once(t);
      const int32_t *index = part.index + (t - first), *edge = call.transpose.edge + t;
      const bool fresh = t == first && part.begins;
      ask_at_once(Rows<A>{stats + h, stats_of() * H, index, at_once}, n, (stats_of() == 4 ? 2 : 1) * H + G);
      if (queries.data == call.q.data) ask_at_once(rows(queries, b, h * C, index, at_once), n, G * C);
      ask_at_once(rows(call.dy, b, h * D, index, at_once), n, G * D);
      score(h, own, queries, b, index, n, along, 0, edge);
      by_vector<A, G>(Rows<A>{stats + h, stats_of() * H, index, along}, n, H + G, [&](int64_t e, const A** of) {
        store(lse_of + e * G, side_by_side<A, G>(of));
        for (int k = 0; k < W / G; ++k) of[k] += H;
        store(delta_of + e * G, side_by_side<A, G>(of));
      });
      by_value.dots(own_v, rows(call.dy, b, h * D, index, along), n, D, dp);
      if (call.dropout > 0) drop(b, 0, edge, n, h);
      for (int64_t at = n * G; at % W; ++at) lse_of[at] = std::numeric_limits<A>::infinity(), delta_of[at] = dp[at] = s[at] = 0;
      for (int64_t at = 0; at < n * G; at += W) {
        const Vector<A> weight = exponential(load(s + at) - load(lse_of + at));
        const Vector<A> dropped = call.dropout > 0 ? weight * load(mask + at) : weight;
        store(p + at, dropped);
        const Vector<A> gradient = dropped * load(dp + at) - weight * load(delta_of + at);
        store(s + at, call.score != ADDITIVE || load(ds + at) > 0 ? gradient : gradient * slope);
        store(ds + at, gradient);
      }
      for (int64_t e = 0; ds_out && e < n; ++e) std::memcpy(ds_out + (t + e) * H + h, ds + e * G, G * sizeof(A));
      if (call.score == DOT) multiply(ds, n * G, all(scale));
      if (part.rows == 1) starts[1] = int32_t(n);
      for (int64_t r = 0; r < part.rows; ++r) {
        const int64_t from = starts[r], count = starts[r + 1] - from;
        A *dk = sums(row(call.dk, b, j + r, h * C), G * C, place, false);
        A *dv = sums(row(call.dv, b, j + r, h * D), G * D, place_v, false);
        if (t == first) {
          if (call.score != NONE) ask(call.dk, b, j + r + part.ahead(), h * C, G * C);
          ask(call.dv, b, j + r + part.ahead(), h * D, G * D);
        }
        by_value.add_rows({p + from * G}, rows(call.dy, b, h * D, index + from, 0), count, D, {dv}, fresh);
        if (call.score == DOT) {
          by_channel.add_rows({ds + from * G}, rows(call.q, b, h * C, index + from, 0), count, C, {dk}, fresh && !shared);
        } else if (call.score == ADDITIVE) {
          add_units(s + from * G, count, dk);
        } else if (call.score == GATED) {
          through_gates(h, own.x + r * call.k.row_stride, rows(call.q, b, h * C, index + from, 0), count, ds + from * G,
                        part.rows > 1 || t == first, part.rows > 1 || t + n == last, dk, da);
        }
      }
    }
    for (int64_t r = 0; r < part.rows && !std::is_same_v<S, A>; ++r) {
      if (call.score != NONE) narrowed(place, G * C, 1, row(call.dk, b, j + r, h * C));
      narrowed(place_v, G * D, 1, row(call.dv, b, j + r, h * D));
    }
  }

  // The gradients of GATED to one end x of some edges and to a. LeakyReLU' is 1 or the slope, so Σ ds LeakyReLU'(z) follows
  // from the sum of ds and that over positive z. And LeakyReLU(z) = LeakyReLU'(z) z, where z is the sum of both ends.
  EDGEWISE_INLINE void through_gates(int h, const A* x, const Rows<S>& others, int64_t n, const A* weight, bool begins,
                                     bool ends, A* dx, double* da) {
    A *total = room.data() + 2 * G * (C + D) + W, *positive = total + W;
    if (begins) std::memset(total, 0, (W + G * C) * sizeof(A));
    add_units(weight, n, total);
    by_channel.add_positive(x, weight, others, n, C, positive);
    if (!ends) return;
    const A* a = (const A*)call.a + h * C;
    for (int g = 0; g < G; ++g)
      for (int c = g * C; c < (g + 1) * C; ++c) {
        const A sum = slope * total[g] + (1 - slope) * positive[c];
        dx[c] += a[c] * sum;
        da[h * C + c] += x[c] * sum;
      }
  }

  // dq_i and the gradients to the biases of a receiver's edges, from the ds that its senders left.
  void by_receiver(int64_t b, int h, const Part& part, const A* ds_in, double* da) {
    const int64_t i = part.row, first = part.first, last = part.last;
    const bool reads_keys = call.score == DOT || call.score == GATED;
    A* place = room.data() + G * C;
    lay_out(part, call.graph.offsets);
    const Rows<A> own = call.score == GATED ? own_rows(call.q, b, i, h * C, G * C, nullptr, room.data()) : Rows<A>{};
    for (int64_t r = 0; reads_keys && r < part.rows; ++r)
      sums(row(call.dq, b, i + r, h * C), G * C, place, part.begins && (call.score == GATED || first == last));
    for (int64_t e = first; e < last; e += CHUNK) {
      const int64_t n = std::min<int64_t>(CHUNK, last - e), along = part.along(e), at_once = part.at_once(e);
      const int32_t *index = part.index + (e - first), *at = call.transposed + e;
      ask_at_once(Rows<A>{ds_in + h, H, at, at_once}, n, G);
      if (reads_keys) ask_at_once(rows(call.k, b, h * C, index, at_once), n, G * C);
      // Where degrees are large these are more than the keys, and not near even if those are.
      const Rows<A> left{ds_in + h, H, at, at_once ? 0 : part.known - (e - first)};
      by_vector<A, G>(left, n, G, [&](int64_t m, const A** of) { store(ds + m * G, side_by_side<A, G>(of)); });
      if (call.dbias)
        for (int64_t m = 0; m < n; ++m)
          for (int g = 0; g < G; ++g) ((A*)call.dbias)[(b * call.graph.edges + e + m) * H + h + g] = ds[m * G + g];
      if (!reads_keys) continue;
      if (call.score == DOT) multiply(ds, n * G, all(scale));
      if (part.rows == 1) starts[1] = int32_t(n);
      for (int64_t r = 0; r < part.rows; ++r) {
        const int64_t from = starts[r], count = starts[r + 1] - from;
        const Rows<S> keys = rows(call.k, b, h * C, index + from, along ? along - from : 0);
        A* dq = sums(row(call.dq, b, i + r, h * C), G * C, place, false);
        if (e == first) ask(call.dq, b, i + r + part.ahead(), h * C, G * C);
        if (call.score == DOT)
          by_channel.add_rows({ds + from * G}, keys, count, C, {dq}, e == first && part.begins);
        else
          through_gates(h, own.x + r * call.q.row_stride, keys, count, ds + from * G, part.rows > 1 || e == first,
                        part.rows > 1 || e + n == last, dq, da);
      }
    }
    if (reads_keys && !std::is_same_v<S, A>) narrowed(place, G * C, 1, row(call.dq, b, i, h * C));
  }

  // How many numbers of a receiver's head its senders read beside vectors. Four fill a line where there are four heads.
  int stats_of() const { return call.score == ADDITIVE && std::is_same_v<S, A> ? 4 : 2; }

  // Log-sum-exp, δ_i = dy_i · y_i and the number that is an ADDITIVE query, each of all heads; for ADDITIVE also
  // dq_i = (1 − slope) (dy_i · y⁺_i − δ_i p⁺_i).
  void prepare(int64_t b, int64_t first, int64_t count, int h, A* stats) {
    for (int r = 0; r < count; ++r) places[r] = r;
    const Rows<A> dy = own_rows(call.dy, b, first, h * D, G * D, count > 1 ? places : nullptr, room.data());
    by_value.dots(dy, {row(call.y, b, first, h * D), call.y.row_stride, places, 0}, count, D, dp);
    A* const along = s;
    if (splits)
      by_value.dots({positive_of(b, first, h), count > 1 ? H * (D + 1) : 0, places, 0, FURTHER},
                    {row(call.dy, b, first, h * D), call.dy.row_stride, places, 0}, count, D, along);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t i = first + r, at = (b * call.graph.rows + i) * H + h;
      A* const mine = stats + i * stats_of() * H + h;
      std::memcpy(mine, (const A*)call.lse + at, G * sizeof(A));
      std::memcpy(mine + H, dp + r * G, G * sizeof(A));
      if (!splits) continue;
      const Unit dq = (unit(along + r * G) - unit(dp + r * G) * unit(positive_share_of(b, i, h))) * (1 - slope);
      for (int g = 0; g < G; ++g) {
        put(row(call.dq, b, i, h + g), dq[g]);
        if (stats_of() == 4) mine[2 * H + g] = number(row(call.q, b, i, h)[g]);
      }
    }
  }
};

// Sums are wider than what rows are stored in: they cannot wait there for the next part.
template <class S>
constexpr bool narrow = !std::is_same_v<S, Sum<S>>;

// Calls run(attending, piece, h) for every piece and every group of G heads.
template <class S, int G, class Run>
void for_pieces(const Attention& call, const Pieces& pieces, const Run& run) {
  // Group by group: the heads' slices of all nodes stay in the cache more easily than whole rows do.
  over_items(call.threads, call.heads / G * pieces.count, [&](int64_t item, int) {
    Attending<S, G> attending(call);
    run(attending, item % pieces.count, int(item / pieces.count) * G);
  });
}

// Calls run(attending, piece, h, part) for the parts of every row; a row without edges has one, or its share of one.
template <class S, int G, class Run>
void for_parts(const Attention& call, const Adjacency& graph, const Pieces& pieces, const Bands& bands, const Run& run) {
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
  std::vector<int64_t> next(graph.rows);  // each row's first edge that was not walked
  for (int h = 0; h < call.heads; h += G) {
    std::copy_n(graph.offsets, graph.rows, next.begin());
    for (int64_t band = 0; band < bands.count; ++band) {
      over_items(call.threads, pieces.count, [&](int64_t piece, int) {
        const int64_t start = pieces.start(piece), stop = pieces.start(piece + 1);
        std::vector<int64_t> ends(stop - start);
        std::vector<int32_t> index;  // of all parts, one after the other, so that rows can be asked for early
        for (int64_t n = start; n < stop; ++n) {
          const int32_t *from = graph.index + next[n], *to = bands.end(band, from, graph.index + graph.offsets[n + 1]);
          index.insert(index.end(), from, to);
          ends[n - start] = to - graph.index;
        }
        Attending<S, G> attending(call);
        const int32_t* at = index.data();
        for (int64_t n = start; n < stop; ++n) {
          const int64_t first = next[n], last = ends[n - start], known = index.data() + index.size() - at;
          const bool begins = first == graph.offsets[n], empty = begins && first == graph.offsets[n + 1] && band == 0;
          if (first < last || empty) run(attending, piece, h, Part{n, 1, first, last, at, known, bands.reach, begins});
          at += last - first;
          next[n] = last;
        }
      });
    }
  }
}

template <class S, int G>
void attend_by(const Attention& call) {
  const Pieces pieces(call.graph.offsets, call.graph.rows);
  const int64_t receivers = call.batch * call.graph.rows * call.heads;
  expect_writes(call.y.data, receivers * call.values * sizeof(S));
  if (call.positive) expect_writes(call.positive, receivers * (call.values + 1) * sizeof(Sum<S>));
  const bool reads_keys = call.score == DOT || call.score == GATED;
  const int64_t bytes = G * (call.values + (reads_keys ? call.channels : 0)) * sizeof(S);
  const Bands bands(call.graph, call.senders, bytes, narrow<S> || !call.lse);
  for (int64_t b = 0; b < call.batch; ++b)
    for_parts<S, G>(call, call.graph, pieces, bands, [&](auto& some, int64_t, int h, const Part& part) {
      some.forward(b, h, part);
    });
}

template <class S, int G>
void attend_gradient_by(const Attention& call) {
  using A = Sum<S>;
  const int64_t I = call.graph.rows, E = call.graph.edges, H = call.heads, width = H * call.channels;
  const Pieces receivers(call.graph.offsets, I), senders(call.transpose.offsets, call.transpose.rows);
  const bool reads_keys = call.score == DOT || call.score == GATED, second = reads_keys || call.dbias;
  const int64_t partial = call.score == GATED ? std::max(senders.count, receivers.count) * width : 0;
  const auto stats = scratch<A>(I * H * 4), ds = scratch<A>(second ? E * H : 0);
  const int64_t nodes = call.batch * H * sizeof(S);
  const int64_t keys = reads_keys ? G * call.channels * sizeof(S) : 0, values = G * call.values * sizeof(S);
  const Bands of_senders(call.graph, call.senders, keys, narrow<S>), of_receivers(call.transpose, I, keys + values, narrow<S>);
  if (call.score != NONE) {
    expect_writes(call.dq.data, I * nodes * call.channels);
    expect_writes(call.dk.data, call.senders * nodes * call.channels);
  }
  expect_writes(call.dv.data, call.senders * nodes * call.values);
  std::vector<double> das(partial), da(partial ? width : 0);
  for (int64_t b = 0; b < call.batch; ++b) {
    std::fill(das.begin(), das.end(), 0.0);
    for_pieces<S, G>(call, receivers, [&](auto& some, int64_t piece, int h) {
      constexpr int64_t most = narrow<S> ? 1 : CHUNK;
      const int64_t stop = receivers.start(piece + 1);
      for (int64_t i = receivers.start(piece); i < stop; i += most) some.prepare(b, i, std::min(most, stop - i), h, stats.get());
    });
    for_parts<S, G>(call, call.transpose, senders, of_receivers,
                    [&](auto& some, int64_t piece, int h, const Part& part) {
      some.by_sender(b, h, part, stats.get(), second ? ds.get() : nullptr, das.data() + (partial ? piece * width : 0));
    });
    if (second)
      for_parts<S, G>(call, call.graph, receivers, of_senders,
                      [&](auto& some, int64_t piece, int h, const Part& part) {
        some.by_receiver(b, h, part, ds.get(), das.data() + (partial ? piece * width : 0));
      });
    for (int64_t n = 0; n < partial; ++n) da[n % width] += das[n];
  }
  if (call.da) std::copy(da.begin(), da.end(), (A*)call.da);
}

// The largest group of heads that divides them and fits a vector.
template <class S, template <class, int> class Kernel>
void by_heads(const Attention& call) {
  constexpr int W = lanes<Sum<S>>;
  const int H = call.heads;
  if (W >= 8 && H % 8 == 0) Kernel<S, W >= 8 ? 8 : W>::run(call);
  else if (W >= 4 && H % 4 == 0) Kernel<S, W >= 4 ? 4 : W>::run(call);
  else if (H % 2 == 0) Kernel<S, 2>::run(call);
  else Kernel<S, 1>::run(call);
}

template <class S, int G>
struct Forward {
  static void run(const Attention& call) { attend_by<S, G>(call); }
};
template <class S, int G>
struct Backward {
  static void run(const Attention& call) { attend_gradient_by<S, G>(call); }
};

template <class S>
void attend(const Attention& call) {
  by_heads<S, Forward>(call);
}

template <class S>
void attend_gradient(const Attention& call) {
  by_heads<S, Backward>(call);
}

}  // namespace edgewise::EDGEWISE_ISA
