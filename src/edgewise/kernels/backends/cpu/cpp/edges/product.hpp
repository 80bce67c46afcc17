// Sparse products: y_i = ⊕_j w_ij x_j by receiver, and the gradients to weights.
#pragma once

#include <vector>

#include "dots.hpp"
#include "edges/parts.hpp"
#include "edges/table.hpp"
#include "memory.hpp"
#include "parallel.hpp"
#include "rows.hpp"

namespace edgewise::EDGEWISE_ISA {

// Whether a message is weighted not at all, by one number, or column by column.
enum class Weights { NONE, ONE, EACH };

// Sums and means. Heads that share one weight are as good as one head, and so are heads of one column with a weight each;
// a block of columns stays in registers over a row.
template <class S>
struct Summing {
  using A = Sum<S>;
  static constexpr int W = lanes<A>;
  const Product& call;
  const Adjacency& g;
  const int per;
  const bool each;  // column has its weight
  const int width;
  const Reach reach;
  const Bands bands;
  const A own;

  explicit Summing(const Product& call)
      : call(call), g(call.graph), per(call.weight ? call.weight_heads : 1),
        each(per > 1 && call.channels == 1), width(per == 1 || each ? call.heads * call.channels : call.channels),
        reach(reach_of(g, g.edges * width * int64_t(sizeof(S)) <= 1 << 21, call.x.row_stride * int64_t(sizeof(S)))),
        bands(g, call.senders, int64_t(call.heads) * call.channels * sizeof(S), narrow<S>, 6 << 20, 5), own(A(call.own)) {}

  // Prefetches what is read AHEAD of the part's edge n.
  template <Weights Kind>
  EDGEWISE_INLINE void prefetch_ahead(const Part& part, const S* x, const S* weight, int numbers, int64_t n) const {
    const int64_t ahead = n + AHEAD < part.known ? n + AHEAD : part.known - 1;
    prefetch(x + int64_t(part.index[ahead]) * call.x.row_stride, numbers * sizeof(S));
    if (Kind != Weights::NONE && part.edge)
      prefetch(weight + int64_t(part.edge[ahead]) * per, Kind == Weights::EACH ? numbers * sizeof(S) : 1);
  }

  // Calls add(x, w) for the part's edges from `first` on, in order, with the columns at x and the weights at w.
  template <Weights Kind, class Add>
  EDGEWISE_INLINE void over_edges(const Part& part, const S* x, const S* weight, int numbers, int64_t first, int64_t last,
                                  const Add& add) const {
    for (int64_t n = first; n < last; ++n) {
      if (part.reach == Reach::BEYOND) prefetch_ahead<Kind>(part, x, weight, numbers, n);
      const S* w = Kind == Weights::NONE ? nullptr : weight + part.number(n) * per;
      add(x + int64_t(part.index[n]) * call.x.row_stride, w);
    }
  }

  // B vectors of columns; of `numbers` < W columns where B is 0. The part is Whole where it is all of its row.
  template <Weights Kind, int B, bool Whole>
  EDGEWISE_INLINE void block(const Part& part, const S* x, const S* weight, S* y, int numbers) const {
    constexpr int vectors = B ? B : 1, chains = vectors < 4 ? 4 / vectors : 1;  // a long row's sum in several chains at once
    const int64_t count = part.last - part.first;
    const auto columns = [=](const S* row, int v) EDGEWISE_INLINE_LAMBDA { return B ? load(row + v * W) : load_some(row, numbers); };
    const auto add = [&](Vector<A>* total) EDGEWISE_INLINE_LAMBDA {
      return [=](const S* row, const S* w) EDGEWISE_INLINE_LAMBDA {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
          if constexpr (Kind == Weights::NONE) total[v] += columns(row, v);
          else if constexpr (Kind == Weights::ONE) total[v] += all(A(number(*w))) * columns(row, v);
          else total[v] += columns(w, v) * columns(row, v);
        }
      };
    };
    if (part.reach != Reach::CACHED) prefetch(y + NEXT * call.y.row_stride, numbers * sizeof(S));
    for (int64_t n = 0; part.reach == Reach::SCATTERED && n < count; ++n) prefetch_ahead<Kind>(part, x, weight, numbers, n);
    Vector<A> total[vectors] = {};
    if (!Whole && !part.begins)
      for (int v = 0; v < vectors; ++v) total[v] = columns(y, v);
    const int64_t long_part = count >= 4 * chains && chains > 1 ? count / chains : 0;
    if (long_part) {
      Vector<A> more[chains][vectors] = {};
      for (int64_t n = 0; n < long_part; ++n)
#pragma GCC unroll 4
        for (int chain = 0; chain < chains; ++chain)
          over_edges<Kind>(part, x, weight, numbers, n + chain * long_part, n + chain * long_part + 1, add(more[chain]));
#pragma GCC unroll 4
      for (int chain = 0; chain < chains; ++chain)
        for (int v = 0; v < vectors; ++v) total[v] += more[chain][v];
    }
    over_edges<Kind>(part, x, weight, numbers, long_part * chains, count, add(total));
    const bool ends = Whole || ends_row(part);
    const A factor = ends ? factor_of(part) : A(1);
    for (int v = 0; v < vectors; ++v) {
      total[v] *= factor;
      if (ends && own != 0) total[v] += own * columns(x + part.row * call.x.row_stride, v);
      if (B && std::is_same_v<S, A>) store((A*)y + v * W, total[v]);
      else for (int n = 0; n < (B ? W : numbers); ++n) put(y + v * W + n, total[v][n]);
    }
  }

  // Whether a part is the last of its row, and what the row's sum is then multiplied by.
  EDGEWISE_INLINE bool ends_row(const Part& part) const { return part.last == g.offsets[part.row + 1]; }
  EDGEWISE_INLINE A factor_of(const Part& part) const {
    const int64_t first = g.offsets[part.row];
    return call.reduce == MEAN && part.last > first ? A(1) / A(part.last - first) : A(1);
  }

  // The only column there is: no vector has anything to hold, and numbers are read as they come.
  template <Weights Kind>
  EDGEWISE_INLINE void column(const Part& part, const S* x, const S* weight, S* y) const {
    constexpr int chains = 4;
    const int64_t count = part.last - part.first;
    const auto term = [&](int64_t n) EDGEWISE_INLINE_LAMBDA {
      const A of = number(x[int64_t(part.index[n]) * call.x.row_stride]);
      return Kind == Weights::NONE ? of : A(number(weight[part.number(n)])) * of;
    };
    A sums[chains] = {part.begins ? A(0) : A(number(*y))};
    int64_t n = 0;
    for (; n + chains <= count; n += chains)
#pragma GCC unroll 4
      for (int chain = 0; chain < chains; ++chain) sums[chain] += term(n + chain);
    for (; n < count; ++n) sums[0] += term(n);
    const A total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    if (!ends_row(part)) return put(y, total);
    const A reduced = total * factor_of(part);
    put(y, own != 0 ? reduced + own * number(x[part.row * call.x.row_stride]) : reduced);
  }

  template <Weights Kind, int Fixed, bool Whole>
  EDGEWISE_INLINE void row(int64_t b, const Part& part) const {
    for (int h = 0; h < (per == 1 || each ? 1 : call.heads); ++h) {
      const S* x = (const S*)call.x.data + b * call.x.batch_stride + int64_t(h) * width;
      S* y = (S*)call.y.data + b * call.y.batch_stride + part.row * call.y.row_stride + int64_t(h) * width;
      const S* weight = Kind == Weights::NONE ? nullptr : (const S*)call.weight + b * call.weight_batch_stride + h;
      if (!Fixed && width == 1 && per == 1) {
        column<Kind>(part, x, weight, y);
        continue;
      }
      const auto of_column = [&](int c) { return Kind == Weights::EACH ? weight + c : weight; };
      const int whole = by_column<A, Fixed>(width, [&](int c, auto size) {
        block<Kind, size.value, Whole>(part, x + c, of_column(c), y + c, size.value * W);
      });
      if (Fixed || whole == width) continue;
      if (whole && (Whole || part.begins)) block<Kind, 1, Whole>(part, x + width - W, of_column(width - W), y + width - W, W);  // overlaps the one before
      else block<Kind, 0, Whole>(part, x + whole, of_column(whole), y + whole, width - whole);
    }
  }

  // parts(run) calls run(part) for some parts of the graph's rows.
  template <bool Whole, class Parts>
  void run(int64_t b, const Parts& parts) const {
    const auto of = [&](auto kind, auto fixed) {
      parts([&](const Part& part) EDGEWISE_INLINE_LAMBDA { row<kind.value, fixed.value, Whole>(b, part); });
    };
    const auto by_kind = [&](auto fixed) {
      if (!call.weight) of(std::integral_constant<Weights, Weights::NONE>{}, fixed);
      else if (each) of(std::integral_constant<Weights, Weights::EACH>{}, fixed);
      else of(std::integral_constant<Weights, Weights::ONE>{}, fixed);
    };
    if (std::is_same_v<S, float> && width == 16) by_kind(std::integral_constant<int, 16>{});
    else if (std::is_same_v<S, float> && width == 64) by_kind(std::integral_constant<int, 64>{});
    else by_kind(std::integral_constant<int, 0>{});
  }
  void run_rows(int64_t b, int64_t from, int64_t to) const {
    run<true>(b, [&](const auto& run) EDGEWISE_INLINE_LAMBDA { each_row(g, reach, from, to, run); });
  }
};

// Extremes, and the gradients to weights.
template <class S>
struct Multiplying {
  using A = Sum<S>;
  const Product& call;
  const Adjacency& g;
  decltype(&dots<S, 1, 0>) dots_of;
  const int H, C;
  Numbers<A> y;
  A w[CHUNK];

  explicit Multiplying(const Product& call)
      : call(call), g(call.graph), dots_of(for_channels<S>(call.channels, [](auto fixed) { return &dots<S, 1, fixed.value>; })),
        H(call.heads), C(call.channels), y(size_t(H) * C) {}

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
    for (int64_t e = first; e < last; ++e) prefetch(row(call.x, b, g.index[std::min(e + AHEAD, g.edges - 1)]), H * C * sizeof(S));
    const auto x = [&](int64_t e) EDGEWISE_INLINE_LAMBDA { return row(call.x, b, g.index[first + e]); };
    dots_of_heads<A>(row(call.g, b, i), x, C, last - first, H, C, (A*)call.out + (b * g.edges + first) * H);
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
        dots_of({y.data() + h * C, 0, nullptr, 0}, gathered(call.x, b, h, e, true), n, C, dot);
        for (int64_t m = 0; m < n; ++m) total[m] += dot[m];
        if (call.weight_heads > 1)
          for (int64_t m = 0; m < n; ++m) put((S*)call.out + (b * g.edges + number_of(e + m)) * H + h, dot[m]);
      }
      if (call.weight_heads == 1)
        for (int64_t m = 0; m < n; ++m) put((S*)call.out + b * g.edges + number_of(e + m), total[m]);
    }
  }

  // The same where every column has its weight: out_e = g_i ∘ x_j, and where an edge counts both ways + g_j ∘ x_i.
  template <bool Both>
  void column_gradient(int64_t b, int64_t i) const {
    constexpr int W = lanes<A>;
    const S *to = row(call.g, b, i), *own = Both ? row(call.x, b, i) : nullptr;
    for (int64_t e = g.offsets[i]; e < g.offsets[i + 1]; ++e) {
      const int64_t ahead = e + AHEAD < g.edges ? e + AHEAD : g.edges - 1;
      prefetch(row(call.x, b, g.index[ahead]), H * sizeof(S));
      if (Both) prefetch(row(call.g, b, g.index[ahead]), H * sizeof(S));
      const S *x = row(call.x, b, g.index[e]), *back = Both ? row(call.g, b, g.index[e]) : nullptr;
      S* out = (S*)call.out + (b * g.edges + number_of(e)) * H;
      int c = 0;
      if constexpr (std::is_same_v<S, A>) {
        for (; c + W <= H; c += W) {
          Vector<A> pair = load(to + c) * load(x + c);
          if (Both) pair += load(back + c) * load(own + c);
          store(out + c, pair);
        }
      }
      for (; c < H; ++c) put(out + c, number(to[c]) * number(x[c]) + (Both ? number(back[c]) * number(own[c]) : A(0)));
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
    by_band(call.threads, call.graph, pieces, bands, [&](int64_t, const auto& parts) { summing.template run<false>(b, parts); });
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
    if (call.both) m.template column_gradient<true>(b, i);
    else if (call.channels == 1 && call.weight_heads > 1) m.template column_gradient<false>(b, i);
    else m.weight_gradient(b, i);
  });
}

}  // namespace edgewise::EDGEWISE_ISA
