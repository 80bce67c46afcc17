// Scaled dot-product attention whose keys and values have a linear map W of their edge's features added to them. No edge meets the
// map: q_i · W x_ij is (Wᵀ q_i) · x_ij, and Σ_j p_ij W x_ij is W Σ_j p_ij x_ij. The weights p are kept; backward goes by receiver,
// which finds the gradients to scores, and by sender, which reads these and the weights side by side. A pass looks rows of one tensor
// up, more of which stay in the cache than of two.
#pragma once

#include <vector>

#include "dropout.hpp"
#include "features/heads.hpp"
#include "features/vectors.hpp"

namespace edgewise::EDGEWISE_ISA {

// A matrix for each head, and its transpose: rows of whole vectors, as products read them.
template <class A>
struct HeadMaps {
  Numbers<A> in, back;  // [H, outputs, wide R], [H, R, wide outputs]

  HeadMaps(const void* weight, int H, int outputs, int R) {
    if (!weight) return;
    const int wide = whole<A>(R), wide_back = whole<A>(outputs);
    in.resize(size_t(H) * outputs * wide), back.resize(size_t(H) * R * wide_back);
    for (int h = 0; h < H; ++h)
      for (int c = 0; c < outputs; ++c)
        for (int r = 0; r < R; ++r)
          in[(size_t(h) * outputs + c) * wide + r] = back[(size_t(h) * R + r) * wide_back + c] =
              ((const A*)weight)[(size_t(h) * outputs + c) * R + r];
  }
};

template <class A>
struct FeaturedMaps {
  const HeadMaps<A> keys, values;

  explicit FeaturedMaps(const FeaturedAttention& call)
      : keys(call.key_weight, call.heads, call.channels, call.inputs),
        values(call.value_weight, call.heads, call.values, call.inputs) {}
};

// One piece of the receivers or senders.
template <class A>
struct Featured {
  static constexpr int ROWS = 32;  // receivers of a product with a map

  const FeaturedAttention& call;
  const FeaturedMaps<A>& maps;
  const int64_t b;
  const int H, C, D, R, wide;
  const A scale;
  const bool keys, values;
  const Dropout dropout;
  const RowSoftmax<A> softmax;
  std::unique_ptr<A[], Freed> room;
  A *const q, *const u, *const z, *const dz, *const du;  // scale q_i [ROWS, H C]; by the maps, or before them [ROWS, H wide]
  Numbers<A> dp, dropped, ds, exponentials;          // [a row's edges, H]

  Featured(const FeaturedAttention& call, const FeaturedMaps<A>& maps, int64_t b)
      : call(call), maps(maps), b(b), H(call.heads), C(call.channels), D(call.values), R(call.inputs), wide(whole<A>(R)),
        scale(A(call.scale)), keys(call.key_weight), values(call.value_weight), dropout(call.dropout, call.seed),
        softmax(call.heads), room(scratch<A>(size_t(ROWS) * H * (C + 4 * wide))), q(room.get()), u(q + ROWS * H * C),
        z(u + ROWS * H * wide), dz(z + ROWS * H * wide), du(dz + ROWS * H * wide) {}

  A* row(const Matrix& x, int64_t n) const { return (A*)x.data + b * x.batch_stride + n * x.row_stride; }
  const A* features(int64_t e) const { return (const A*)call.x + b * call.x_batch_stride + e * R; }
  A* numbers(const void* x, int64_t e) const { return (A*)x + (b * call.graph.edges + e) * H; }  // of an edge's heads
  HeadRows<A> some(A* rows) const { return {rows, int64_t(H) * wide, wide}; }
  HeadRows<const A> given(const A* rows) const { return {rows, int64_t(H) * wide, wide}; }
  HeadRows<const A> given(const Matrix& x, int64_t n, int each) const { return {row(x, n), x.row_stride, each}; }

  // The rows of x at the other ends of edges from `first` on, and the features of these.
  EdgeRows<A> looked_up(const Adjacency& graph, int64_t first, const Matrix& x, int each) const {
    return {row(x, 0), x.row_stride, graph.index + first, graph.edges - 1 - first, H * each * sizeof(A)};
  }
  EdgeRows<A> of_edges(int64_t first) const { return {features(first), R}; }

  // out_eh = own_h · x_jh, and other_h · x_ij where there is one, of a receiver's edges.
  void dots(const A* own, const Matrix& x, int each, const A* other, int64_t first, int64_t n, A* out) const {
    const Operand<A> nodes{own, each, looked_up(call.graph, first, x, each), each, each};
    if (other) dots_of_heads<A>(n, H, out, nodes, Operand<A>{other, wide, of_edges(first), 0, R});
    else dots_of_heads<A>(n, H, out, nodes);
  }

  // out_h = Σ_e w_eh x_jh of a row's edges.
  void sums(const Adjacency& graph, const EdgeRows<A>& weights, const Matrix& x, int each, int64_t first, int64_t n, A* out) const {
    if (n) sums_of_heads<A>(weights, looked_up(graph, first, x, each), each, n, H, each, out, each);
    else std::fill_n(out, H * each, A(0));
  }

  // out_h = Σ_e w_eh x_ij of a receiver's edges.
  void sums_of_features(const EdgeRows<A>& weights, int64_t first, int64_t n, A* out) const {
    if (n) sums_of_heads<A>(weights, of_edges(first), 0, n, H, R, out, wide);
    else std::fill_n(out, H * wide, A(0));
  }

  // The weights of a row's edges after dropout.
  const A* kept(const A* weights, int64_t first, int64_t n) {
    if (call.dropout == 0) return weights;
    dropped.resize(std::max(dropped.size(), size_t(n * H)));
    drop_from<A>(dropout, uint64_t(b * call.graph.edges + first) * H, n * H, A(1 / (1 - call.dropout)), weights, dropped.data());
    return dropped.data();
  }

  // Calls of(i, r, first, n) for receiver i, the r-th of some, and its n edges from `first` on; before(i, count) and after(i, count)
  // for some receivers at a time, from the i-th on.
  template <class Before, class Of, class After>
  void over_receivers(int64_t from, int64_t to, const Before& before, const Of& of, const After& after) {
    for (int64_t block = from; block < to; block += ROWS) {
      const int64_t count = std::min<int64_t>(ROWS, to - block);
      before(block, count);
      for (int64_t r = 0; r < count; ++r) {
        const int64_t i = block + r, first = call.graph.offsets[i];
        of(i, r, first, call.graph.offsets[i + 1] - first);
      }
      after(block, count);
    }
  }

  // scale q_i of some receivers into `q`, and u_i.
  void queries(int64_t block, int64_t count, bool mapped) {
    for (int64_t i = 0; i < count; ++i)
      for (int c = 0; c < H * C; ++c) q[i * H * C + c] = row(call.q, block + i)[c] * scale;
    if (mapped) rows_by_heads<A, Start::ZERO>({q, int64_t(H) * C, C}, count, H, maps.keys.in.data(), C, R, some(u));
  }

  // The scores, where p belongs.
  void score(int64_t from, int64_t to, A* weights) {
    const auto before = [&](int64_t block, int64_t count) { queries(block, count, keys); };
    const auto of = [&](int64_t, int64_t r, int64_t first, int64_t n) {
      A* const s = weights + first * H;
      dots(q + r * H * C, call.k, C, keys ? u + r * H * wide : nullptr, first, n, s);
      const A* const bias = call.bias ? (const A*)call.bias + b * call.bias_batch_stride + first * H : nullptr;
      for (int64_t at = 0; bias && at < n * H; ++at) s[at] += bias[at];
    };
    over_receivers(from, to, before, of, [](int64_t, int64_t) {});
  }

  // p, and y.
  void add_up(int64_t from, int64_t to, A* weights) {
    const auto of = [&](int64_t i, int64_t r, int64_t first, int64_t n) {
      softmax.forward(weights + first * H, n, H, weights + first * H, exponentials);
      const EdgeRows<A> w{kept(weights + first * H, first, n), H};
      sums(call.graph, w, call.v, D, first, n, row(call.y, i));
      if (values) sums_of_features(w, first, n, z + r * H * wide);
    };
    const auto after = [&](int64_t block, int64_t count) {
      const HeadRows<A> y{row(call.y, block), call.y.row_stride, D};
      if (values) rows_by_heads<A, Start::AFTER>(given(z), count, H, maps.values.back.data(), R, D, y);
    };
    over_receivers(from, to, [](int64_t, int64_t) {}, of, after);
  }

  // The weights and the gradients to the scores into `both` [E, 2, H], and the gradients to what edges gave; adds the one to the
  // values' map.
  void score_gradient(int64_t from, int64_t to, A* both, A* dmap) {
    const A factor = A(1 / (1 - call.dropout));
    const auto before = [&](int64_t block, int64_t count) {
      if (keys && call.dx) queries(block, count, true);
      if (values) rows_by_heads<A, Start::ZERO>(given(call.dy, block, D), count, H, maps.values.in.data(), D, R, some(dz));
    };
    const auto of = [&](int64_t i, int64_t r, int64_t first, int64_t n) {
      for (Numbers<A>* numbers : {&dp, &ds}) numbers->resize(std::max(numbers->size(), size_t(n * H)));
      const A *const weights = numbers(call.p, first), *const w = kept(weights, first, n);
      dots(row(call.dy, i), call.v, D, values ? dz + r * H * wide : nullptr, first, n, dp.data());
      for (int64_t at = 0; call.dropout > 0 && at < n * H; ++at) dp[at] = w[at] != 0 ? dp[at] * factor : A(0);
      softmax.backward(weights, dp.data(), n, H, ds.data());
      for (int64_t e = 0; e < n; ++e) {
        A* const out = both + (first + e) * 2 * H;
        std::memcpy(out, w + e * H, H * sizeof(A)), std::memcpy(out + H, ds.data() + e * H, H * sizeof(A));
      }
      if (call.dbias && n) std::memcpy(numbers(call.dbias, first), ds.data(), n * H * sizeof(A));
      if (dmap) sums_of_features({w, H}, first, n, z + r * H * wide);
      if (call.dx) to_features(r, w, first, n);
    };
    const auto after = [&](int64_t block, int64_t count) {
      if (dmap) sums_by_heads<A, Start::AFTER>(given(call.dy, block, D), given(z), count, H, D, R, dmap);
    };
    over_receivers(from, to, before, of, after);
  }

  // dq; adds the gradient to the keys' map.
  void to_queries(int64_t from, int64_t to, const A* both, A* dmap) {
    const auto of = [&](int64_t i, int64_t r, int64_t first, int64_t n) {
      const EdgeRows<A> ds_of{both + (first * 2 + 1) * H, 2 * H};
      sums(call.graph, ds_of, call.k, C, first, n, row(call.dq, i));
      if (keys) sums_of_features(ds_of, first, n, du + r * H * wide);
    };
    const auto after = [&](int64_t block, int64_t count) {
      const HeadRows<A> dq{row(call.dq, block), call.dq.row_stride, C};
      if (keys) rows_by_heads<A, Start::AFTER>(given(du), count, H, maps.keys.back.data(), R, C, dq);
      if (dmap) queries(block, count, false), sums_by_heads<A, Start::AFTER>({q, int64_t(H) * C, C}, given(du), count, H, C, R, dmap);
      for (int64_t i = block; i < block + count; ++i) multiply_row(row(call.dq, i), H * C);
    };
    over_receivers(from, to, [](int64_t, int64_t) {}, of, after);
  }

  void multiply_row(A* x, int count) const {
    for (int c = 0; c < count; ++c) x[c] *= scale;
  }

  // The gradients to the features of row r's edges: Σ_h (ds_eh u_ih + w_eh dz_ih).
  void to_features(int64_t r, const A* w, int64_t first, int64_t n) const {
    for (int64_t e = 0; e < n; ++e) {
      A* const out = (A*)call.dx + (b * call.graph.edges + first + e) * R;
      for (int c = 0; c < R; c += lanes<A>) {
        Vector<A> total{};
        for (int h = 0; h < H; ++h) {
          const int64_t at = (r * H + h) * wide + c;
          if (keys) total += all(ds[e * H + h]) * load(u + at);
          if (values) total += all(w[e * H + h]) * load(dz + at);
        }
        store_some<A>(out + c, std::min(R - c, lanes<A>), total);
      }
    }
  }

  // To senders, dx_j = Σ_i w_ij y_i of the first or second numbers of `both`: dv of dy, or without its scale dk of q.
  void to_senders(int64_t from, int64_t to, const A* both, int part, const Matrix& y, int each, const Matrix& dx) const {
    const Adjacency& graph = call.transpose;
    for (int64_t j = from; j < to; ++j) {
      const int64_t first = graph.offsets[j], n = graph.offsets[j + 1] - first;
      const EdgeRows<A> weights{both + part * H, 2 * H, graph.edge + first, graph.edges - 1 - first, H * sizeof(A)};
      sums(graph, weights, y, each, first, n, row(dx, j));
    }
  }

  void to_keys(int64_t from, int64_t to, const A* both) const {
    to_senders(from, to, both, 1, call.q, C, call.dk);
    for (int64_t j = from; j < to; ++j) multiply_row(row(call.dk, j), H * C);
  }
};

// Calls run(featured, group, from, to) for runs of the rows' pieces: in groups that do not depend on how many threads there are.
template <class A, class Run>
void over_groups(const FeaturedAttention& call, const FeaturedMaps<A>& maps, const Adjacency& graph, int64_t b, int64_t groups,
                 const Run& run) {
  const Pieces pieces = pieces_of(call, graph);
  over_items(call.threads, groups, [&](int64_t group, int) {
    Featured<A> featured(call, maps, b);
    run(featured, group, pieces.start(pieces.count * group / groups), pieces.start(pieces.count * (group + 1) / groups));
  });
}

template <class A>
void attention(const FeaturedAttention& call) {
  const FeaturedMaps<A> maps(call);
  expect_writes(call.y.data, call.batch * call.graph.rows * call.heads * call.values * sizeof(A));
  if (call.p) expect_writes(call.p, call.batch * call.graph.edges * call.heads * sizeof(A));
  const int64_t pieces = pieces_of(call, call.graph).count, numbers = call.graph.edges * call.heads;
  const auto room = scratch<A>(call.p ? 0 : numbers);
  for (int64_t b = 0; b < call.batch; ++b) {
    A* const p = call.p ? (A*)call.p + b * numbers : room.get();
    const auto over = [&](const auto& run) { over_groups<A>(call, maps, call.graph, b, pieces, run); };
    over([=](auto& some, int64_t, int64_t from, int64_t to) { some.score(from, to, p); });
    over([=](auto& some, int64_t, int64_t from, int64_t to) { some.add_up(from, to, p); });
  }
}

template <class A>
void attention_gradient(const FeaturedAttention& call) {
  constexpr int64_t most = 1 << 22, least = 64;  // numbers of all groups' totals, unless that were less than so many groups
  const FeaturedMaps<A> maps(call);
  const int64_t I = call.graph.rows, J = call.transpose.rows, H = call.heads, R = call.inputs, wide = whole<A>(call.inputs);
  for (const auto& [there, count] : {std::pair(call.dq.data, I * call.channels), std::pair(call.dk.data, J * call.channels),
                                     std::pair(call.dv.data, J * call.values)})
    expect_writes(there, call.batch * H * count * sizeof(A));
  const int64_t of_keys = call.dkey_weight ? H * call.channels * wide : 0, of_values = call.dvalue_weight ? H * call.values * wide : 0;
  const int64_t pieces = pieces_of(call, call.graph).count, numbers = of_keys + of_values;
  const int64_t groups = std::min(pieces, std::max(least, most / std::max<int64_t>(1, numbers)));
  Numbers<A> totals(numbers * groups);
  const auto both = scratch<A>(call.graph.edges * 2 * H);
  for (int64_t b = 0; b < call.batch; ++b) {
    const auto by_receiver = [&](const auto& run) { over_groups<A>(call, maps, call.graph, b, groups, run); };
    const auto by_sender = [&](const auto& run) { over_groups<A>(call, maps, call.transpose, b, pieces_of(call, call.transpose).count, run); };
    by_receiver([&](auto& some, int64_t group, int64_t from, int64_t to) {
      some.score_gradient(from, to, both.get(), of_values ? totals.data() + group * numbers + of_keys : nullptr);
    });
    by_receiver([&](auto& some, int64_t group, int64_t from, int64_t to) {
      some.to_queries(from, to, both.get(), of_keys ? totals.data() + group * numbers : nullptr);
    });
    by_sender([&](auto& some, int64_t, int64_t from, int64_t to) { some.to_senders(from, to, both.get(), 0, call.dy, call.values, call.dv); });
    by_sender([&](auto& some, int64_t, int64_t from, int64_t to) { some.to_keys(from, to, both.get()); });
  }
  for (int64_t n = 0; n < numbers; ++n) {
    double total = 0;
    for (int64_t group = 0; group < groups; ++group) total += totals[group * numbers + n];
    const bool of_key = n < of_keys;
    const int64_t at = of_key ? n : n - of_keys;
    if (at % wide < R) ((A*)(of_key ? call.dkey_weight : call.dvalue_weight))[at / wide * R + at % wide] = A(total);
  }
}

}  // namespace edgewise::EDGEWISE_ISA
