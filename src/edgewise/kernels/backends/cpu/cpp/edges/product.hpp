// Sparse products: y_i = ⊕_j w_ij x_j by receiver, and the gradients to weights.
#pragma once

#include <vector>

#include "dots.hpp"
#include "edges/sums.hpp"
#include "memory.hpp"
#include "parallel.hpp"
#include "rows.hpp"

namespace edgewise::EDGEWISE_ISA {

// Extremes, and the gradients to weights.
template <class S>
struct Multiplying {
  using A = Sum<S>;
  const Product& call;
  const Adjacency& g;
  const int H, C;
  Numbers<A> y;
  A w[CHUNK];

  explicit Multiplying(const Product& call)
      : call(call), g(call.graph), H(call.heads), C(call.channels), y(size_t(H) * C) {}

  const S* row(const Matrix& x, int64_t b, int64_t n) const { return (const S*)x.data + b * x.batch_stride + n * x.row_stride; }

  Rows<S> gathered(const Matrix& x, int64_t b, int h, int64_t e, bool ahead) const {
    return {(const S*)x.data + b * x.batch_stride + int64_t(h) * C, x.row_stride, g.index + e, ahead ? g.edges - e : 0};
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

  // A number as it is when it was written.
  static A rounded(A value) {
    if constexpr (std::is_same_v<S, A>) return value;
    S written;
    put(&written, value);
    return number(written);
  }

  // Calls columns(from, to, w) for the columns of edge e, where column c has the weight w(c): at once where all share one or
  // each has its own, else head by head.
  template <class Columns>
  EDGEWISE_INLINE void by_weight(int64_t b, int64_t e, const Columns& columns) const {
    const auto all_by = [&](A one, int from, int to) EDGEWISE_INLINE_LAMBDA { columns(from, to, [=](int) { return one; }); };
    if (!call.weight) return all_by(A(1), 0, H * C);
    const int per = call.weight_heads;
    const S* const w = (const S*)call.weight + b * call.weight_batch_stride + number_of(e) * per;
    if (per == 1) return all_by(number(*w), 0, H * C);
    if (C == 1) return columns(0, H, [=](int c) { return A(number(w[c])); });
    for (int h = 0; h < H; ++h) all_by(number(w[h]), h * C, (h + 1) * C);
  }

  void extreme(int64_t b, int64_t i) {
    S* out = (S*)call.y.data + b * call.y.batch_stride + i * call.y.row_stride;
    A* const best = y.data();
    std::fill(y.begin(), y.end(), A(0));
    const bool largest = call.reduce == MAX;
    for (int64_t e = g.offsets[i]; e < g.offsets[i + 1]; ++e) {
      const S* x = row(call.x, b, g.index[e]);
      const bool first = e == g.offsets[i];
      by_weight(b, e, [=](int from, int to, auto w) EDGEWISE_INLINE_LAMBDA {
        for (int c = from; c < to; ++c) {
          const A m = w(c) * A(number(x[c])), old = best[c];
          const bool better = (largest ? m > old : m < old) || m != m;
          best[c] = first || (better && old == old) ? m : old;  // NaN stays
        }
      });
    }
    for (int c = 0; c < H * C; ++c) put(out + c, y[c]);
  }

  // The same for several heads with a weight each, whose numbers lie side by side.
  void gradient_of_heads(int64_t b, int64_t i) const {
    const int64_t first = g.offsets[i], last = g.offsets[i + 1];
    const EdgeRows<A> rows{row(call.x, b, 0), call.x.row_stride, g.index + first, g.edges - 1 - first, H * C * sizeof(S)};
    dots_of_heads<A>(last - first, H, (A*)call.out + (b * g.edges + first) * H, Operand<A>{row(call.g, b, i), C, rows, C, C});
  }

  // out_e = g_i · x_j for each head, or over all heads where they share one weight.
  void weight_gradient(int64_t b, int64_t i) {
    if constexpr (!narrow<S>)
      if (call.weight_heads > 1 && !g.edge) return gradient_of_heads(b, i);
    const int64_t first = g.offsets[i], last = g.offsets[i + 1];
    const S* from = row(call.g, b, i);
    for (int c = 0; c < H * C; ++c) y[c] = number(from[c]);
    A dot[CHUNK + lanes<A>], total[CHUNK];
    for (int64_t e = first; e < last; e += CHUNK) {
      const int64_t n = std::min<int64_t>(CHUNK, last - e);
      std::fill_n(total, n, A(0));
      for (int h = 0; h < H; ++h) {
        dots<S, 1, 0>({y.data() + h * C, 0, nullptr, 0}, gathered(call.x, b, h, e, true), n, C, dot);
        for (int64_t m = 0; m < n; ++m) total[m] += dot[m];
        if (call.weight_heads > 1)
          for (int64_t m = 0; m < n; ++m) put((S*)call.out + (b * g.edges + number_of(e + m)) * H + h, dot[m]);
      }
      if (call.weight_heads == 1)
        for (int64_t m = 0; m < n; ++m) put((S*)call.out + b * g.edges + number_of(e + m), total[m]);
    }
  }

  // The same where every column has its weight: out_e = g_i ∘ x_j.
  void column_gradient(int64_t b, int64_t i) const {
    constexpr int W = lanes<A>;
    const S* to = row(call.g, b, i);
    for (int64_t e = g.offsets[i]; e < g.offsets[i + 1]; ++e) {
      prefetch(row(call.x, b, g.index[std::min(e + AHEAD, g.edges - 1)]), H * sizeof(S));
      const S* x = row(call.x, b, g.index[e]);
      S* out = (S*)call.out + (b * g.edges + number_of(e)) * H;
      int c = 0;
      if constexpr (std::is_same_v<S, A>)
        for (; c + W <= H; c += W) store(out + c, load(to + c) * load(x + c));
      for (; c < H; ++c) put(out + c, number(to[c]) * number(x[c]));
    }
  }

  int64_t number_of(int64_t e) const { return g.edge ? int64_t(g.edge[e]) : e; }

  // The gradient of an extreme is shared equally by the messages that reach it: out_i = g_i / how many do.
  void share(int64_t b, int64_t i) {
    const S *best = row(call.y, b, i), *from = row(call.g, b, i);
    A* const count = y.data();
    std::fill(y.begin(), y.end(), A(0));
    for (int64_t e = g.offsets[i]; e < g.offsets[i + 1]; ++e) {
      const S* x = row(call.x, b, g.index[e]);
      by_weight(b, e, [=](int first, int last, auto w) EDGEWISE_INLINE_LAMBDA {
        for (int c = first; c < last; ++c) count[c] += rounded(w(c) * A(number(x[c]))) == A(number(best[c])) ? A(1) : A(0);
      });
    }
    S* out = (S*)call.out + (b * g.rows + i) * H * C;
    for (int c = 0; c < H * C; ++c) put(out + c, y[c] > 0 ? number(from[c]) / y[c] : A(0));
  }

  // Both gradients of an extreme, from the shares: to the features of sender j along the transpose ...
  void extreme_gradient(int64_t b, int64_t j) {
    std::fill(y.begin(), y.end(), A(0));
    A* const total = y.data();
    const S* x = row(call.x, b, j);
    for (int64_t e = g.offsets[j]; e < g.offsets[j + 1]; ++e) {
      const S *best = row(call.y, b, g.index[e]), *from = row(call.g, b, g.index[e]);
      by_weight(b, e, [=](int first, int last, auto w) EDGEWISE_INLINE_LAMBDA {
        for (int c = first; c < last; ++c)
          total[c] += rounded(w(c) * A(number(x[c]))) == A(number(best[c])) ? w(c) * A(number(from[c])) : A(0);
      });
    }
    S* out = (S*)call.out + (b * g.rows + j) * H * C;
    for (int c = 0; c < H * C; ++c) put(out + c, y[c]);
  }

  // ... and to the weights of receiver i's edges.
  void extreme_weight_gradient(int64_t b, int64_t i) {
    const S *best = row(call.y, b, i), *from = row(call.g, b, i);
    const int per = call.weight_heads;
    for (int64_t e = g.offsets[i]; e < g.offsets[i + 1]; ++e) {
      const S* x = row(call.x, b, g.index[e]);
      S* const out = (S*)call.out + (b * g.edges + number_of(e)) * per;
      by_weight(b, e, [=](int first, int last, auto w) EDGEWISE_INLINE_LAMBDA {
        const auto reached = [=](int c) EDGEWISE_INLINE_LAMBDA {
          return rounded(w(c) * A(number(x[c]))) == A(number(best[c])) ? A(number(x[c])) * A(number(from[c])) : A(0);
        };
        A total = 0;
        if (per > 1 && C == 1)
          for (int c = first; c < last; ++c) put(out + c, reached(c));
        else
          for (int c = first; c < last; ++c) total += reached(c);
        if (per == 1 || C > 1) put(out + (per > 1 ? first / C : 0), total);
      });
    }
  }
};

inline Pieces pieces_of(const Product& call) {
  return Pieces(call.graph.offsets, call.graph.rows, int64_t(call.heads) * call.channels);
}

// Calls rows(b, from, to) for runs of rows.
template <class Rows>
void over_graph(const Product& call, const Rows& rows) {
  const Pieces pieces = pieces_of(call);
  over_items(call.threads, pieces.count * call.batch, [&](int64_t item, int) {
    const int64_t piece = item % pieces.count;
    rows(item / pieces.count, pieces.start(piece), pieces.start(piece + 1));
  });
}

template <class S, class Row>
void by_row(const Product& call, const Row& row) {
  over_graph(call, [&](int64_t b, int64_t from, int64_t to) {
    Multiplying<S> multiplying(call);
    for (int64_t i = from; i < to; ++i) row(multiplying, b, i);
  });
}

template <class S>
void product(const Product& call) {
  expect_writes(call.y.data, call.batch * call.graph.rows * call.heads * call.channels * sizeof(S));
  if (call.reduce == MAX || call.reduce == MIN) return by_row<S>(call, [](auto& m, int64_t b, int64_t i) { m.extreme(b, i); });
  const Summing<S> summing(call);
  const Pieces pieces = pieces_of(call);
  const Bands& bands = summing.bands;
  for (int64_t b = 0; bands.count > 1 && b < call.batch; ++b)
    by_band(call.threads, call.graph, pieces, bands, [&](int64_t, const Run& rows) { summing.run(b, rows); });
  if (bands.count == 1)
    over_graph(call, [&](int64_t b, int64_t from, int64_t to) { summing.run_rows(b, from, to); });
}

template <class S>
void extreme_share(const Product& call) {
  by_row<S>(call, [](auto& m, int64_t b, int64_t i) { m.share(b, i); });
}

template <class S>
void extreme_gradient(const Product& call) {
  by_row<S>(call, [](auto& m, int64_t b, int64_t j) { m.extreme_gradient(b, j); });
}

template <class S>
void extreme_weight_gradient(const Product& call) {
  by_row<S>(call, [](auto& m, int64_t b, int64_t i) { m.extreme_weight_gradient(b, i); });
}

template <class S>
void product_gradient(const Product& call) {
  expect_writes(call.out, call.batch * call.graph.edges * call.weight_heads * sizeof(S));
  by_row<S>(call, [&](auto& m, int64_t b, int64_t i) {
    if (call.channels == 1 && call.weight_heads > 1) m.column_gradient(b, i);
    else m.weight_gradient(b, i);
  });
}

}  // namespace edgewise::EDGEWISE_ISA
