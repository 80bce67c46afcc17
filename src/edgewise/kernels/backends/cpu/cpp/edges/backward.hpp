// The gradients of attention on edges: one pass by sender, which recomputes p_ij from the saved log-sum-exp and finishes dk_j
// and dv_j, then one by receiver for dq_i. Additive scores need no second pass: since Σ_j p_ij (dp_ij − δ_i) = 0, dq_i follows
// from what the forward pass sums over its positive scores.
#pragma once

#include "edges/attending.hpp"

namespace edgewise::EDGEWISE_ISA {

// Everything that a sender's gradient needs, and ds of each of its edges.
template <class S, int G>
EDGEWISE_APART void Attending<S, G>::by_sender(int64_t b, int h, const Part& part, const A* stats, A* ds_out, double* da) {
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
    prefetch_at_once(Rows<A>{stats + h, stats_of() * H, index, at_once}, n, (stats_of() == 4 ? 2 : 1) * H + G);
    if (queries.data == call.q.data) prefetch_at_once(rows(queries, b, h * C, index, at_once), n, G * C);
    prefetch_at_once(rows(call.dy, b, h * D, index, at_once), n, G * D);
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
        if (call.score != NONE) prefetch_row(call.dk, b, j + r + part.ahead(), h * C, G * C);
        prefetch_row(call.dv, b, j + r + part.ahead(), h * D, G * D);
      }
      by_value.add_rows({p + from * G}, rows(call.dy, b, h * D, index + from, 0), count, D, {dv}, fresh);
      if (call.score == DOT) {
        by_channel.add_rows({ds + from * G}, rows(call.q, b, h * C, index + from, 0), count, C, {dk}, fresh && !shared);
      } else if (call.score == ADDITIVE) {
        add_units(s + from * G, count, dk);
      } else if (call.score == GATED) {
        through_gated_scores(h, own.x + r * call.k.row_stride, rows(call.q, b, h * C, index + from, 0), count, ds + from * G,
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
template <class S, int G>
EDGEWISE_INLINE void Attending<S, G>::through_gated_scores(int h, const A* x, const Rows<S>& others, int64_t n, const A* weight,
                                                            bool begins, bool ends, A* dx, double* da) {
  A *total = room.data() + 2 * G * (C + D) + W, *positive = total + W;
  if (begins) std::memset(total, 0, (W + G * C) * sizeof(A));
  add_units(weight, n, total);
  by_channel.add_positive(x, weight, others, n, C, positive);
  if (!ends || (begins && n == 0)) return;  // 0 times the numbers of a row without edges may be NaN
  const A* a = (const A*)call.a + h * C;
  for (int g = 0; g < G; ++g)
    for (int c = g * C; c < (g + 1) * C; ++c) {
      const A sum = slope * total[g] + (1 - slope) * positive[c];
      dx[c] += a[c] * sum;
      da[h * C + c] += x[c] * sum;
    }
}

// dq_i and the gradients to the biases of a receiver's edges, from the ds that its senders left.
template <class S, int G>
EDGEWISE_APART void Attending<S, G>::by_receiver(int64_t b, int h, const Part& part, const A* ds_in, double* da) {
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
    prefetch_at_once(Rows<A>{ds_in + h, H, at, at_once}, n, G);
    if (reads_keys) prefetch_at_once(rows(call.k, b, h * C, index, at_once), n, G * C);
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
      if (e == first) prefetch_row(call.dq, b, i + r + part.ahead(), h * C, G * C);
      if (call.score == DOT)
        by_channel.add_rows({ds + from * G}, keys, count, C, {dq}, e == first && part.begins);
      else
        through_gated_scores(h, own.x + r * call.q.row_stride, keys, count, ds + from * G, part.rows > 1 || e == first,
                             part.rows > 1 || e + n == last, dq, da);
    }
  }
  if (reads_keys && !std::is_same_v<S, A>) narrowed(place, G * C, 1, row(call.dq, b, i, h * C));
}


// Log-sum-exp, δ_i = dy_i · y_i and the number that is an ADDITIVE query, each of all heads; for ADDITIVE also
// dq_i = (1 − slope) (dy_i · y⁺_i − δ_i p⁺_i).
template <class S, int G>
inline void Attending<S, G>::prepare(int64_t b, int64_t first, int64_t count, int h, A* stats) {
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

template <class S, int G>
void attend_gradient_by(const Attention& call) {
  using A = Sum<S>;
  const int64_t I = call.graph.rows, E = call.graph.edges, H = call.heads, width = H * call.channels;
  const int64_t work = work_of(call, G);
  const Pieces receivers(call.graph.offsets, I, work), senders(call.transpose.offsets, call.transpose.rows, work);
  const bool reads_keys = call.score == DOT || call.score == GATED, second = reads_keys || call.dbias;
  const int64_t partial = call.score == GATED ? std::max(senders.count, receivers.count) * width : 0;
  const auto stats = scratch<A>(I * H * 4), ds = scratch<A>(second ? E * H : 0);
  const int64_t nodes = call.batch * H * sizeof(S);
  const int64_t keys = reads_keys ? G * call.channels * sizeof(S) : 0, values = G * call.values * sizeof(S);
  const Bands of_senders(call.graph, call.senders, keys, narrow<S>),
      of_receivers(call.transpose, I, keys + values, narrow<S>);
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

template <class S, int G>
struct Backward {
  static void run(const Attention& call) { attend_gradient_by<S, G>(call); }
};

template <class S>
void attend_gradient(const Attention& call) {
  by_heads<S, Backward>(call);
}

}  // namespace edgewise::EDGEWISE_ISA
