// Sparse products: y_i = ⊕_j w_ij x_j by receiver, and the gradients to weights.
#pragma once

#include <vector>

#include "memory.hpp"
#include "parallel.hpp"
#include "rows.hpp"
#include "table.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class S>
struct Multiplying {
  using A = Sum<S>;
  const Product& call;
  const Adjacency& g;
  Loops<S, 1> loops;
  const int H, C;
  std::vector<A> y;
  A w[CHUNK];

  explicit Multiplying(const Product& call)
      : call(call), g(call.graph), loops(Loops<S, 1>::choose(call.channels)), H(call.heads), C(call.channels), y(size_t(H) * C) {}

  const S* row(const Matrix& x, int64_t b, int64_t n) const { return (const S*)x.data + b * x.batch_stride + n * x.row_stride; }

  Rows<S> gathered(const Matrix& x, int64_t b, int h, int64_t e, bool ask) const {
    return {(const S*)x.data + b * x.batch_stride + int64_t(h) * C, x.row_stride, g.index + e, ask ? g.edges - e : 0};
  }

  // The weights of edges e .. e + n - 1 for head h, or null where all are 1.
  const A* weights(int64_t b, int64_t e, int64_t n, int h) {
    if (!call.weight) return nullptr;
    const int per = call.weight_heads;
    const S* from = (const S*)call.weight + b * call.weight_batch_stride + (per == 1 ? 0 : h);
    if (g.edge) {
      for (int64_t m = 0; m < n; ++m) w[m] = number(from[int64_t(g.edge[e + m]) * per]);
    } else {
      for (int64_t m = 0; m < n; ++m) w[m] = number(from[(e + m) * per]);
    }
    return w;
  }

  void sum(int64_t b, int64_t i) {
    const int64_t first = g.offsets[i], last = g.offsets[i + 1];
    std::fill(y.begin(), y.end(), A(0));
    for (int64_t e = first; e < last; e += CHUNK) {
      const int64_t n = std::min<int64_t>(CHUNK, last - e);
      if (call.weight && g.edge)
        for (int64_t m = 0; m < n && e + m + AHEAD < g.edges; ++m)
          __builtin_prefetch((const S*)call.weight + int64_t(g.edge[e + m + AHEAD]) * call.weight_heads);
      for (int h = 0; h < H; ++h) loops.add_rows(weights(b, e, n, h), gathered(call.x, b, h, e, true), n, C, y.data() + h * C);
    }
    const A divisor = call.reduce == MEAN && last > first ? A(1) / A(last - first) : A(1);
    S* out = (S*)call.y.data + b * call.y.batch_stride + i * call.y.row_stride;
    for (int c = 0; c < H * C; ++c) put(out + c, y[c] * divisor);
  }

  // Calls see(e, h, c, w x) for every message that arrives at row i.
  template <class See>
  void messages(int64_t b, int64_t i, const See& see) {
    for (int64_t e = g.offsets[i]; e < g.offsets[i + 1]; ++e)
      for (int h = 0; h < H; ++h) {
        const A* weight = weights(b, e, 1, h);
        const S* x = gathered(call.x, b, h, e, false).at(0);
        for (int c = 0; c < C; ++c) see(e, h, c, weight ? *weight * number(x[c]) : A(number(x[c])));
      }
  }

  void extreme(int64_t b, int64_t i) {
    S* out = (S*)call.y.data + b * call.y.batch_stride + i * call.y.row_stride;
    std::fill(y.begin(), y.end(), A(0));
    const int64_t first = g.offsets[i];
    const bool largest = call.reduce == MAX;
    messages(b, i, [&](int64_t e, int h, int c, A m) {
      A& best = y[h * C + c];
      if (e == first || (largest ? m > best : m < best) || m != m) best = best != best && e != first ? best : m;
    });
    for (int c = 0; c < H * C; ++c) put(out + c, y[c]);
  }

  // out_e = g_i · x_j for each head, or over all heads where they share one weight.
  void weight_gradient(int64_t b, int64_t i) {
    const int64_t first = g.offsets[i], last = g.offsets[i + 1];
    const S* from = row(call.g, b, i);
    for (int c = 0; c < H * C; ++c) y[c] = number(from[c]);
    A dot[CHUNK + lanes<A>], total[CHUNK];
    for (int64_t e = first; e < last; e += CHUNK) {
      const int64_t n = std::min<int64_t>(CHUNK, last - e);
      std::fill_n(total, n, A(0));
      for (int h = 0; h < H; ++h) {
        loops.dots(y.data() + h * C, gathered(call.x, b, h, e, true), n, C, dot);
        for (int64_t m = 0; m < n; ++m) total[m] += dot[m];
        if (call.weight_heads > 1)
          for (int64_t m = 0; m < n; ++m) put((S*)call.out + (b * g.edges + number_of(e + m)) * H + h, dot[m]);
      }
      if (call.weight_heads == 1)
        for (int64_t m = 0; m < n; ++m) put((S*)call.out + b * g.edges + number_of(e + m), total[m]);
    }
  }

  int64_t number_of(int64_t e) const { return g.edge ? int64_t(g.edge[e]) : e; }

  // The gradient of an extreme is shared equally by the messages that reach it: out_i = g_i / how many do.
  void share(int64_t b, int64_t i) {
    const S *best = row(call.y, b, i), *from = row(call.g, b, i);
    std::fill(y.begin(), y.end(), A(0));
    S m;
    messages(b, i, [&](int64_t, int h, int c, A message) {
      put(&m, message);  // as it was rounded when it was compared
      y[h * C + c] += number(m) == number(best[h * C + c]);
    });
    S* out = (S*)call.out + (b * g.rows + i) * H * C;
    for (int c = 0; c < H * C; ++c) put(out + c, y[c] > 0 ? number(from[c]) / y[c] : A(0));
  }

  // Both gradients of an extreme, from the shares: to the features of sender j along the transpose ...
  void extreme_gradient(int64_t b, int64_t j) {
    std::fill(y.begin(), y.end(), A(0));
    const S* x = row(call.x, b, j);
    S m;
    for (int64_t e = g.offsets[j]; e < g.offsets[j + 1]; ++e) {
      const S *best = row(call.y, b, g.index[e]), *from = row(call.g, b, g.index[e]);
      for (int h = 0; h < H; ++h) {
        const A* weight = weights(b, e, 1, h);
        const A factor = weight ? *weight : A(1);
        for (int c = h * C; c < (h + 1) * C; ++c) {
          put(&m, factor * number(x[c]));
          if (number(m) == number(best[c])) y[c] += factor * number(from[c]);
        }
      }
    }
    S* out = (S*)call.out + (b * g.rows + j) * H * C;
    for (int c = 0; c < H * C; ++c) put(out + c, y[c]);
  }

  // ... and to the weights of receiver i's edges.
  void extreme_weight_gradient(int64_t b, int64_t i) {
    const S *best = row(call.y, b, i), *from = row(call.g, b, i);
    S m;
    for (int64_t e = g.offsets[i]; e < g.offsets[i + 1]; ++e) {
      const S* x = row(call.x, b, g.index[e]);
      A total = 0;
      for (int h = 0; h < H; ++h) {
        const A factor = *weights(b, e, 1, h);
        if (call.weight_heads > 1) total = 0;
        for (int c = h * C; c < (h + 1) * C; ++c) {
          put(&m, factor * number(x[c]));
          if (number(m) == number(best[c])) total += number(x[c]) * number(from[c]);
        }
        const int64_t at = (b * g.edges + number_of(e)) * call.weight_heads + (call.weight_heads > 1 ? h : 0);
        put((S*)call.out + at, total);
      }
    }
  }
};

template <class S, class Row>
void over_graph(const Product& call, const Row& row) {
  const Pieces pieces(call.graph.offsets, call.graph.rows);
  over_items(call.threads, pieces.count * call.batch, [&](int64_t item, int) {
    Multiplying<S> multiplying(call);
    const int64_t b = item / pieces.count, piece = item % pieces.count, last = pieces.start(piece + 1);
    for (int64_t i = pieces.start(piece); i < last; ++i) row(multiplying, b, i);
  });
}

template <class S>
void product(const Product& call) {
  expect_writes(call.y.data, call.batch * call.graph.rows * call.heads * call.channels * sizeof(S));
  if (call.reduce == MAX || call.reduce == MIN)
    over_graph<S>(call, [](auto& m, int64_t b, int64_t i) { m.extreme(b, i); });
  else
    over_graph<S>(call, [](auto& m, int64_t b, int64_t i) { m.sum(b, i); });
}

template <class S>
void extreme_share(const Product& call) {
  over_graph<S>(call, [](auto& m, int64_t b, int64_t i) { m.share(b, i); });
}

template <class S>
void extreme_gradient(const Product& call) {
  over_graph<S>(call, [](auto& m, int64_t b, int64_t j) { m.extreme_gradient(b, j); });
}

template <class S>
void extreme_weight_gradient(const Product& call) {
  over_graph<S>(call, [](auto& m, int64_t b, int64_t i) { m.extreme_weight_gradient(b, i); });
}

template <class S>
void product_gradient(const Product& call) {
  over_graph<S>(call, [](auto& m, int64_t b, int64_t i) { m.weight_gradient(b, i); });
}

}  // namespace edgewise::EDGEWISE_ISA
