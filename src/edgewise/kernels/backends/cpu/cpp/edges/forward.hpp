// Attention on the edges of a graph, receiver by receiver: y_i = Σ_j softmax_j(s_ij) v_j by an online softmax over chunks of
// a row. Short rows are taken a chunk of edges at a time, long ones band by band where their neighbours exceed the cache.
#pragma once

#include "edges/attending.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class S, int G>
EDGEWISE_APART void Attending<S, G>::forward(int64_t b, int h, const Part& part) {
  if constexpr (!narrow<S>)
    if (part.rows > 1) return forward_short(b, h, part);
  const int64_t i = part.row, first = part.first, last = part.last;
  const A infinity = std::numeric_limits<A>::infinity();
  const Vector<A> lowest = all(-infinity);
  S* out = row(call.y, b, i, h * D);
  const bool at_once = first < last && last - first <= CHUNK;  // all weights are here before the first is used
  A *y = sums(out, G * D, room.data() + G * C, first == last), *const y_positive = positive_of(b, i, h);
  const Rows<A> own = own_rows(call.q, b, i, h * C, G * C, nullptr, room.data());
  prefetch_sums(b, i + part.ahead(), h);
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
    if (part.reach == Reach::SCATTERED) prefetch_senders(b, h, index, n, part.at_once(e));
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
    const Vector<A> lse_of_row = choose<A>(total == Vector<A>{}, -lowest, top + logarithm(total));
    for (int g = 0; g < G; ++g) lse[at + g] = lse_of_row[g];
  }
  for (int g = 0; splits && g < G; ++g) {
    for (int d = 0; d < D && rest[g] != 1; ++d) y_positive[g * D + d] *= rest[g];
    shares[g] = positive[g] * inverse[g];
  }
}

// Short rows together: their scores and exponentials fill vectors that each alone would leave half empty, and none waits
// for the one before it.
template <class S, int G>
EDGEWISE_APART void Attending<S, G>::forward_short(int64_t b, int h, const Part& part) {
  const int64_t n = part.last - part.first, numbers = part.rows * G, at = (b * call.graph.rows + part.row) * H + h;
  const A infinity = std::numeric_limits<A>::infinity();
  const int32_t* which = lay_out(part, call.graph.offsets);
  A *const top = lse_of, *const total = delta_of, *const lse = (A*)call.lse;
  A* const positive = s;  // the scores are not needed any more by then
  const int64_t along = part.along(part.first);
  if (part.reach == Reach::SCATTERED) prefetch_senders(b, h, part.index, n, part.known);
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
    prefetch_sums(b, part.row + r + part.ahead(), h);
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

template <class S, int G>
void attend_by(const Attention& call) {
  const Pieces pieces(call.graph.offsets, call.graph.rows, work_of(call, G));
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
struct Forward {
  static void run(const Attention& call) { attend_by<S, G>(call); }
};

template <class S>
void attend(const Attention& call) {
  by_heads<S, Forward>(call);
}

}  // namespace edgewise::EDGEWISE_ISA
