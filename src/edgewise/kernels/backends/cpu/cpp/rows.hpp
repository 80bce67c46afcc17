// The inner loops: G heads of a few gathered rows against the same heads of one row, which stays in registers.
// Numbers of edges are laid out [edge][head], so that one vector holds G heads of lanes / G edges.
#pragma once

#include <array>
#include <cstdlib>

#include "arrays.hpp"
#include "processor.hpp"
#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

// Sums are wider than what rows are stored in: they cannot wait there for the next part.
template <class S>
constexpr bool narrow = !std::is_same_v<S, Sum<S>>;

constexpr int CHUNK = 32;  // edges whose numbers are held at once
constexpr int AHEAD = 32;  // rows are prefetched this many edges before they are read
constexpr int FURTHER = 16;  // and those that ascend this many rows before, where several share a chunk of edges
constexpr int NEXT = 2;      // or this many, where each has chunks of its own

// Where neighbours' rows are: in a core's own cache, so that none is prefetched; beyond it, prefetched by the loops that read
// them; or on more pages than a processor remembers, prefetched at once.
enum class Reach { CACHED, BEYOND, SCATTERED };

inline const Processor HERE = processor_here(lanes<float> >= 16);

// Of rows that lie `bytes` apart, if they are not cached: it depends on how far those are apart that are read AHEAD of each
// other.
inline Reach reach_of(const Adjacency& graph, bool cached, int64_t bytes) {
  constexpr int64_t some = 64, pages = 7 << 20;
  if (cached || graph.edges <= AHEAD) return Reach::CACHED;
  int64_t apart = 0;
  for (int64_t n = 0; n < some; ++n) {
    const int32_t* at = graph.index + (graph.edges - AHEAD) * n / some;
    apart += std::abs(int64_t(at[AHEAD]) - at[0]);
  }
  return !HERE.at_once || apart * bytes < some * pages ? Reach::BEYOND : Reach::SCATTERED;
}

// Row e is x + index[e] * stride. `known` edges from here on have an index, so that their rows can be prefetched early; 0 for rows
// that are in the cache already, or whose index ascends: then the one that lies `further` rows on is prefetched.
template <class S>
struct Rows {
  const S* x;
  int64_t stride;
  const int32_t* index;
  int64_t known, further = 0;

  EDGEWISE_INLINE const S* at(int64_t e) const { return x + int64_t(index[e]) * stride; }
  EDGEWISE_INLINE Rows from(int64_t column) const { return {x + column, stride, index, known, further}; }
  EDGEWISE_INLINE void prefetch_at(int64_t e, int numbers) const {
    if (known) prefetch(at(e + AHEAD < known ? e + AHEAD : known - 1), numbers * sizeof(S));
    else if (further) prefetch(at(e) + further * stride, numbers * sizeof(S));
  }
};

// Prefetches at once the rows AHEAD of n edges, where loops do not prefetch row by row. Nothing behind a request is finished before
// its page is found, and where there are more pages than a processor remembers that takes long: among computations each
// request would hold these up, but together they look for their pages at the same time.
template <class S>
EDGEWISE_INLINE void prefetch_at_once(const Rows<S>& rows, int64_t n, int numbers) {
  for (int64_t e = 0; rows.known && e < n; ++e)
    prefetch(rows.at(e + AHEAD < rows.known ? e + AHEAD : rows.known - 1), numbers * sizeof(S));
}

// Calls part(e, row[lanes / G]) for the n edges, as many at once as fill a vector; the last is repeated beyond the end.
template <class S, int G, class Part>
EDGEWISE_INLINE void by_vector(const Rows<S>& rows, int64_t n, int numbers, const Part& part) {
  constexpr int edges = lanes<Sum<S>> / G;
  for (int64_t e = 0; e < n; e += edges) {
    const S* row[edges];
#pragma GCC unroll 16
    for (int i = 0; i < edges; ++i) {
      const int64_t at = e + i < n ? e + i : n - 1;
      row[i] = rows.at(at);
      rows.prefetch_at(at, numbers);
    }
    part(e, row);
  }
}

// The same, with a row of `own` for each edge too: part(e, mine, row), where mine(i) belongs to row[i]. Where the stride is 0 it
// is one row for all, which stays in registers.
template <class S, int G, class Part>
EDGEWISE_INLINE void by_vector(const Rows<Sum<S>>& own, const Rows<S>& rows, int64_t n, int numbers, const Part& part) {
  if (narrow<S> || own.stride == 0) {  // where sums are wider than rows, each row has chunks of its own
    const auto mine = [x = own.x](int) EDGEWISE_INLINE_LAMBDA { return x; };
    by_vector<S, G>(rows, n, numbers, [&](int64_t e, const S** row) EDGEWISE_INLINE_LAMBDA { part(e, mine, row); });
  } else {
    by_vector<S, G>(rows, n, numbers, [&](int64_t e, const S** row) EDGEWISE_INLINE_LAMBDA {
      for (int i = 0; i < lanes<Sum<S>> / G && e + i < n; ++i) own.prefetch_at(e + i, numbers);
      part(e, [&](int i) EDGEWISE_INLINE_LAMBDA { return own.at(e + i < n ? e + i : n - 1); }, row);
    });
  }
}

template <class A, int Count, class Half, size_t... L>
EDGEWISE_INLINE Short<A, Count> joined(Half a, Half b, std::index_sequence<L...>) {
  return __builtin_shufflevector(a, b, int(L)...);
}

// The first G numbers of each of Count / G rows, as one vector.
template <class A, int Count, int G>
EDGEWISE_INLINE Short<A, Count> some_side_by_side(const A* const* row) {
  if constexpr (Count == G) {
    Short<A, Count> x;
    std::memcpy(&x, row[0], sizeof x);
    return x;
  } else {
    return joined<A, Count>(some_side_by_side<A, Count / 2, G>(row), some_side_by_side<A, Count / 2, G>(row + Count / 2 / G),
                            std::make_index_sequence<Count>{});
  }
}

// The same for rows that fill a vector: none is read from memory that was just written number by number, for which a
// processor waits.
template <class S, int G>
EDGEWISE_INLINE Vector<Sum<S>> side_by_side(const S* const* row) {
  using A = Sum<S>;
  constexpr int W = lanes<A>;
  if constexpr (std::is_same_v<S, A> && G > 1) {
    return (Vector<A>)some_side_by_side<A, W, G>(row);
  } else {
    Vector<A> x;
#pragma GCC unroll 16
    for (int k = 0; k < W; ++k) x[k] = number(row[k / G][k % G]);
    return x;
  }
}

// Calls each(c) for the columns at which the vectors of G heads begin. Few enough of a Fixed number are written out, so that what
// belongs to the own end stays in registers; Fixed is 0 for any number.
template <int Fixed, int G, int W, class Each>
EDGEWISE_INLINE void over_vectors(int columns, const Each& each) {
  if constexpr (Fixed && G * Fixed <= 8 * W) {
#pragma GCC unroll 16
    for (int c = 0; c < columns; c += W) each(c);
  } else {
#pragma GCC unroll 1
    for (int c = 0; c < columns; c += W) each(c);
  }
}

// out[e][g] = Σ_c term(q_eg, x_eg) of vectors of columns, read by get(address); out has room for a whole last vector.
template <class S, int G, int Fixed, class Term>
EDGEWISE_INLINE void sums_of(const Rows<Sum<S>>& own, const Rows<S>& rows, int64_t n, int any, Sum<S>* out, const Term& term) {
  using A = Sum<S>;
  constexpr int W = lanes<A>;
  const int C = Fixed ? Fixed : any, whole = C / W * W;
  by_vector<S, G>(own, rows, n, G * C, [&](int64_t e, const auto& q, const S** row) EDGEWISE_INLINE_LAMBDA {
    Vector<A> total[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) total[i] = Vector<A>{};
    const auto add = [&](int c, const auto& get) EDGEWISE_INLINE_LAMBDA {
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) {
        const int at = i % G * C + c;
        total[i] += term(get(q(i / G) + at), get(row[i / G] + at), at, get);
      }
    };
    over_vectors<Fixed, G, W>(whole, [&](int c) EDGEWISE_INLINE_LAMBDA {
      add(c, [](auto* p) EDGEWISE_INLINE_LAMBDA { return load(p); });
    });
    if (whole < C) add(whole, [=](auto* p) EDGEWISE_INLINE_LAMBDA { return load_some(p, C - whole); });
    store(out + e * G, sums_across<A>(total));
  });
}

// out[e][g] = q_eg · x_eg.
template <class S, int G, int Fixed>
void dots(Rows<Sum<S>> own, Rows<S> rows, int64_t n, int any, Sum<S>* out) {
  sums_of<S, G, Fixed>(own, rows, n, any, out, [](auto q, auto x, int, const auto&) EDGEWISE_INLINE_LAMBDA { return q * x; });
}

// out[e][g] = a_g · LeakyReLU(q_eg + x_eg).
template <class S, int G, int Fixed>
void gated_scores(Rows<Sum<S>> own, const Sum<S>* a, Sum<S> slope, Rows<S> rows, int64_t n, int any, Sum<S>* out) {
  sums_of<S, G, Fixed>(own, rows, n, any, out, [=](auto q, auto x, int at, const auto& get) EDGEWISE_INLINE_LAMBDA {
    const auto z = q + x;
    return get(a + at) * (z > 0 ? z : z * slope);
  });
}

// Vectors of some heads' columns: Each of every head, the last of which is filled by `last` columns where it is Partial. The first
// head starts at column `from`, where the rows that are given here start too; heads lie `apart`.
template <class A, int Heads, int Each, bool Partial>
struct Columns {
  static constexpr int W = lanes<A>, vectors = Heads * Each;
  int head, from, apart, last;

  EDGEWISE_INLINE int head_of(int b) const { return head + b / Each; }
  EDGEWISE_INLINE int at(int b) const { return b / Each * apart + b % Each * W; }
  template <class S>
  EDGEWISE_INLINE Vector<A> of(const S* row, int b) const {
    return Partial && b % Each == Each - 1 ? load_some(row + at(b), last) : load(row + at(b));
  }
  EDGEWISE_INLINE void keep(A* row, int b, Vector<A> x) const {
    if (Partial && b % Each == Each - 1) store_some(row + at(b), last, x);
    else store(row + at(b), x);
  }
  template <class S>
  EDGEWISE_INLINE void prefetch_columns(const S* row) const {
    prefetch(row, ((Heads - 1) * apart + (Each - 1) * W + last) * sizeof(S));
  }
};

// Calls block(columns) for runs of at most 8 vectors that cover the C columns of each of G heads: several heads at once where each
// has a Fixed number of whole vectors, or of floats fewer columns than one vector; else head by head.
template <class S, int G, int Fixed, class Block>
EDGEWISE_INLINE void over_columns(int C, const Block& block) {
  using A = Sum<S>;
  constexpr int W = lanes<A>;
  const auto by_heads = [&](auto vectors, auto partial) EDGEWISE_INLINE_LAMBDA {
    constexpr int heads = std::min(G, 8 / vectors.value);
    for (int g = 0; g < G; g += heads) block(Columns<A, heads, vectors.value, partial.value>{g, g * C, C, partial.value ? C : W});
  };
  if constexpr (Fixed) {
    by_heads(std::integral_constant<int, Fixed / W>{}, std::false_type{});
  } else {
    if constexpr (std::is_same_v<S, float>)
      if (C < W) return by_heads(std::integral_constant<int, 1>{}, std::true_type{});
    for (int g = 0; g < G; ++g) {
      int c = 0;
      const auto run = [&](auto vectors, auto partial, int columns) EDGEWISE_INLINE_LAMBDA {
        block(Columns<A, 1, vectors.value, partial.value>{g, g * C + c, C, columns - (vectors.value - 1) * W});
        c += columns;
      };
      while (C - c >= 4 * W) run(std::integral_constant<int, 4>{}, std::false_type{}, 4 * W);
      if constexpr (std::is_same_v<S, float>) {
        if (C - c > 3 * W) run(std::integral_constant<int, 4>{}, std::true_type{}, C - c);
        else if (C - c > 2 * W) run(std::integral_constant<int, 3>{}, std::true_type{}, C - c);
        else if (C - c > W) run(std::integral_constant<int, 2>{}, std::true_type{}, C - c);
      }
      while (C - c >= W) run(std::integral_constant<int, 1>{}, std::false_type{}, W);
      if (c < C) run(std::integral_constant<int, 1>{}, std::true_type{}, C - c);
    }
  }
}

// y_g = Σ_e w[e][g] x_eg, or added to what is there; of two weights at once where there are two y, so that x_eg is read once.
template <class S, int G, int Fixed, int Sums>
void add_rows(std::array<const Sum<S>*, Sums> w, Rows<S> rows, int64_t n, int any, std::array<Sum<S>*, Sums> y, bool fresh) {
  using A = Sum<S>;
  over_columns<S, G, Fixed>(Fixed ? Fixed : any, [&](auto columns) EDGEWISE_INLINE_LAMBDA {  // their sums stay in registers
    constexpr int B = columns.vectors, chains = B >= 8 ? 1 : 8 / B;
    const Rows<S> some = rows.from(columns.from);
    Vector<A> total[chains][Sums][B] = {};
    auto edge = [&](int64_t e, auto& sum) EDGEWISE_INLINE_LAMBDA {
      const S* row = some.at(e);
      if (rows.known) columns.prefetch_columns(some.at(e + AHEAD < rows.known ? e + AHEAD : rows.known - 1));
#pragma GCC unroll 8
      for (int b = 0; b < B; ++b)
#pragma GCC unroll 2
        for (int k = 0; k < Sums; ++k) sum[k][b] += all(w[k][e * G + columns.head_of(b)]) * columns.of(row, b);
    };
    int64_t e = 0;
    for (; e + chains <= n; e += chains)
#pragma GCC unroll 8
      for (int chain = 0; chain < chains; ++chain) edge(e + chain, total[chain]);
    for (; e < n; ++e) edge(e, total[0]);
#pragma GCC unroll 2
    for (int k = 0; k < Sums; ++k)
#pragma GCC unroll 8
      for (int b = 0; b < B; ++b) {
#pragma GCC unroll 8
        for (int chain = 1; chain < chains; ++chain) total[0][k][b] += total[chain][k][b];
        A* const mine = y[k] + columns.from;
        columns.keep(mine, b, fresh ? total[0][k][b] : columns.of(mine, b) + total[0][k][b]);
      }
  });
}

// y_g += Σ_e w[e][g] (q_g + x_eg > 0), channel by channel.
template <class S, int G, int Fixed>
void add_positive(const Sum<S>* q, const Sum<S>* w, Rows<S> rows, int64_t n, int any, Sum<S>* y) {
  using A = Sum<S>;
  over_columns<S, G, Fixed>(Fixed ? Fixed : any, [&](auto columns) EDGEWISE_INLINE_LAMBDA {
    constexpr int B = columns.vectors;
    const Rows<S> some = rows.from(columns.from);
    const A* const own = q + columns.from;
    A* const mine = y + columns.from;
    Vector<A> total[B];
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) total[b] = columns.of(mine, b);
    for (int64_t e = 0; e < n; ++e) {
      const S* row = some.at(e);
      if (rows.known) columns.prefetch_columns(some.at(e + AHEAD < rows.known ? e + AHEAD : rows.known - 1));
#pragma GCC unroll 8
      for (int b = 0; b < B; ++b)
        total[b] += columns.of(own, b) + columns.of(row, b) > 0 ? all(w[e * G + columns.head_of(b)]) : Vector<A>{};
    }
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) columns.keep(mine, b, total[b]);
  });
}

// The type of `add_rows`.
template <class S, int Sums>
using Adding = void (*)(std::array<const Sum<S>*, Sums>, Rows<S>, int64_t, int, std::array<Sum<S>*, Sums>, bool);

// The loops for one number of channels, chosen once for a call. Of floats those that are common are written out.
template <class S, int G>
struct Loops {
  decltype(&dots<S, G, 0>) dots = EDGEWISE_ISA::dots<S, G, 0>;
  decltype(&gated_scores<S, G, 0>) gated_scores = EDGEWISE_ISA::gated_scores<S, G, 0>;
  Adding<S, 1> add_rows = EDGEWISE_ISA::add_rows<S, G, 0, 1>;
  Adding<S, 2> add_rows_twice = EDGEWISE_ISA::add_rows<S, G, 0, 2>;
  decltype(&add_positive<S, G, 0>) add_positive = EDGEWISE_ISA::add_positive<S, G, 0>;

  explicit Loops(int channels) {
    if constexpr (std::is_same_v<S, float>) {
      constexpr int W = lanes<float>;
      if (channels == W) add_whole<W>();
      else if (channels == 2 * W) add_whole<2 * W>();
      else if (channels == 4 * W) add_whole<4 * W>();
      else if (channels == 8 * W) add_whole<8 * W>();
      if constexpr (G >= 4)
        if (channels == 16) dots = EDGEWISE_ISA::dots<S, G, 16>, gated_scores = EDGEWISE_ISA::gated_scores<S, G, 16>;
      if constexpr (G == 4)
        if (channels == 32) dots = EDGEWISE_ISA::dots<S, G, 32>;
      if constexpr (G == 8)
        if (channels == 8) dots = EDGEWISE_ISA::dots<S, G, 8>;
    }
  }

  template <int Fixed>
  void add_whole() {
    add_rows = EDGEWISE_ISA::add_rows<S, G, Fixed, 1>, add_rows_twice = EDGEWISE_ISA::add_rows<S, G, Fixed, 2>;
    if constexpr (Fixed == 16) add_positive = EDGEWISE_ISA::add_positive<S, G, Fixed>;
  }
};

}  // namespace edgewise::EDGEWISE_ISA
