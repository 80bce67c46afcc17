// Sums and means of a sparse product, row by row or in parts of rows.
#pragma once

#include "edges/parts.hpp"
#include "edges/table.hpp"
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

  explicit Summing(const Product& call)
      : call(call), g(call.graph), per(call.weight ? call.weight_heads : 1),
        each(per > 1 && call.channels == 1), width(per == 1 || each ? call.heads * call.channels : call.channels),
        reach(reach_of(g, g.edges * width * int64_t(sizeof(S)) <= 1 << 21, call.x.row_stride * int64_t(sizeof(S)))),
        bands(g, call.senders, int64_t(call.heads) * call.channels * sizeof(S), narrow<S>) {}

  // Prefetches what is read some edges after the part's edge n.
  template <Weights Kind>
  EDGEWISE_INLINE void prefetch_ahead(const Part& part, const S* x, const S* weight, int numbers, int64_t n) const {
    const int64_t ahead = n + HERE.ahead < part.known ? n + HERE.ahead : part.known - 1;
    const S* const row = x + int64_t(part.index[ahead]) * call.x.row_stride;
    HERE.first ? prefetch<1>(row, numbers * sizeof(S)) : prefetch(row, numbers * sizeof(S));
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

  // `numbers` columns: B vectors, the last of which ends where they end and may overlap the one before; fewer than W where B is 0.
  template <Weights Kind, int B>
  EDGEWISE_INLINE void block(const Part& part, const S* x, const S* weight, S* y, int numbers) const {
    y += part.row * call.y.row_stride;
    constexpr int vectors = B ? B : 1, chains = vectors < 4 ? 4 / vectors : 1;  // a long row's sum in several chains at once
    const int64_t count = part.last - part.first;
    const auto at = [=](int v) EDGEWISE_INLINE_LAMBDA { return v && v == B - 1 ? numbers - W : v * W; };
    const auto columns = [=](const S* row, int v) EDGEWISE_INLINE_LAMBDA { return B ? load(row + at(v)) : load_some(row, numbers); };
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
    if (!part.begins)
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
    const A factor = factor_of(part);
    for (int v = 0; v < vectors; ++v) {
      total[v] *= factor;
      if (B && std::is_same_v<S, A>) store((A*)y + at(v), total[v]);
      else for (int n = 0; n < (B ? W : numbers); ++n) put(y + at(v) + n, total[v][n]);
    }
  }

  // What a row's sum is multiplied by at its last part.
  EDGEWISE_INLINE A factor_of(const Part& part) const {
    const int64_t count = g.offsets[part.row + 1] - g.offsets[part.row];
    return call.reduce == MEAN && count && part.last == g.offsets[part.row + 1] ? A(1) / A(count) : A(1);
  }

  // All columns, where they are fewer than a vector has lanes: one or two vectors of N, the second of which ends where they end.
  // Such vectors cross no more of the memory's lines than the columns do.
  template <Weights Kind, int N, int vectors>
  EDGEWISE_INLINE void few_columns(const Part& part, const S* x, const S* weight, S* y) const {
    y += part.row * call.y.row_stride;
    using Columns = std::conditional_t<N == 1, A, Short<A, N>>;
    constexpr int chains = 4;
    const int64_t count = part.last - part.first;
    const auto at = [=, this](int v) EDGEWISE_INLINE_LAMBDA { return v ? width - N : 0; };
    const auto read = [](const S* from) EDGEWISE_INLINE_LAMBDA {
      if constexpr (N == 1) return A(number(*from));
      else {
        Columns columns;
        std::memcpy(&columns, from, sizeof columns);
        return columns;
      }
    };
    const auto add = [&](Columns* total, int64_t n) EDGEWISE_INLINE_LAMBDA {
      if (N > 1 && part.reach == Reach::BEYOND) prefetch_ahead<Kind>(part, x, weight, width, n);
      const S *from = x + int64_t(part.index[n]) * call.x.row_stride, *w = weight;
      if (Kind != Weights::NONE) w += part.number(n) * per;
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) {
        const Columns of = read(from + at(v));
        if constexpr (Kind == Weights::NONE) total[v] += of;
        else if constexpr (Kind == Weights::ONE) total[v] += A(number(*w)) * of;
        else total[v] += read(w + at(v)) * of;
      }
    };
    for (int64_t n = 0; N > 1 && part.reach == Reach::SCATTERED && n < count; ++n)
      prefetch_ahead<Kind>(part, x, weight, width, n);
    Columns sums[chains][vectors] = {};
    for (int v = 0; !part.begins && v < vectors; ++v) sums[0][v] = read(y + at(v));
    int64_t n = 0;
    for (; n + chains <= count; n += chains)
#pragma GCC unroll 4
      for (int chain = 0; chain < chains; ++chain) add(sums[chain], n + chain);
    for (; n < count; ++n) add(sums[0], n);
    const A factor = factor_of(part);
    for (int v = 0; v < vectors; ++v) {
      const Columns total = ((sums[0][v] + sums[1][v]) + (sums[2][v] + sums[3][v])) * factor;
      if constexpr (N == 1) put(y, total);
      else std::memcpy(y + at(v), &total, sizeof total);
    }
  }

  // Calls each(block, c, numbers) for the loops that sum all columns between them, numbers of which begin at column c.
  template <Weights Kind, class Each>
  void over_blocks(const Each& each) const {
    const auto few = [&](auto n, auto vectors) {
      each(&Summing::of_rows<Kind, -decltype(n)::value, decltype(vectors)::value>, 0, width);
    };
    const auto whole = [&](auto vectors, int c) { each(&Summing::of_rows<Kind, decltype(vectors)::value, 1>, c, vectors.value * W); };
    const auto some = [&](auto vectors, int c) { each(&Summing::of_rows<Kind, decltype(vectors)::value, 0>, c, width - c); };
    constexpr std::integral_constant<int, 0> none;
    constexpr std::integral_constant<int, 1> one;
    constexpr std::integral_constant<int, 2> two;
    constexpr std::integral_constant<int, 4> four;
    constexpr std::integral_constant<int, 8> eight;
    if (width == 1) return few(one, one);
    int c = 0;
    if constexpr (std::is_same_v<S, float>) {
      if (width < W) {
        if (width <= 3) return width == 2 ? few(two, one) : few(two, two);
        if constexpr (W > 4)
          if (width < 8) return width == 4 ? few(four, one) : few(four, two);
        if constexpr (W > 8) return width == 8 ? few(eight, one) : few(eight, two);
      }
      for (; c + 8 * W <= width; c += 8 * W) whole(eight, c);
      if (c + 4 * W <= width) whole(four, c), c += 4 * W;
      if (width - c > 3 * W) return some(four, c);
      if (width - c > 2 * W) return some(std::integral_constant<int, 3>{}, c);
      if (width - c == 2 * W) return whole(two, c);
      if (width - c > W) return some(two, c);
    }
    for (; c + 4 * W <= width; c += 4 * W) whole(four, c);
    for (; c + W <= width; c += W) whole(one, c);
    if (c < width && c && bands.count == 1) whole(one, width - W);  // overlaps the one before
    else if (c < width) some(none, c);
  }

  // Some columns of some rows: B vectors, all whole if the next number is 1; or those of few columns.
  template <Weights Kind, int B, int vectors>
  void of_rows(const Run& rows, const S* x, const S* weight, S* y, int numbers) const {
    rows.each([&](const Part& part) EDGEWISE_INLINE_LAMBDA {
      if constexpr (B < 0) few_columns<Kind, -B, vectors>(part, x, weight, y);
      else block<Kind, B>(part, x, weight, y, vectors ? B * W : numbers);  // the first is known when this is compiled
    });
  }

  // Where columns take several loops, four rows at a time: what these read stays near by from loop to loop, its pages too.
  template <Weights Kind>
  void run_kind(int64_t b, Run rows) const {
    const int heads = per == 1 || each ? 1 : call.heads;
    const bool once = heads == 1 && (width <= 4 * W || (std::is_same_v<S, float> && width == 8 * W));
    const int64_t some = once ? rows.rows : 4;
    while (rows.rows > 0) {
      const Run now = rows.take(some);
      for (int h = 0; h < heads; ++h) {
        const S* const x = (const S*)call.x.data + b * call.x.batch_stride + int64_t(h) * width;
        S* const y = (S*)call.y.data + b * call.y.batch_stride + int64_t(h) * width;
        const S* const weight = Kind == Weights::NONE ? nullptr : (const S*)call.weight + b * call.weight_batch_stride + h;
        over_blocks<Kind>([&](auto loop, int c, int numbers) {
          (this->*loop)(now, x + c, Kind == Weights::EACH ? weight + c : weight, y + c, numbers);
        });
      }
    }
  }

  void run(int64_t b, const Run& rows) const {
    if (!call.weight) run_kind<Weights::NONE>(b, rows);
    else if (each) run_kind<Weights::EACH>(b, rows);
    else run_kind<Weights::ONE>(b, rows);
  }
  void run_rows(int64_t b, int64_t from, int64_t to) const { run(b, Run(g, from, to, reach)); }
};

}  // namespace edgewise::EDGEWISE_ISA
