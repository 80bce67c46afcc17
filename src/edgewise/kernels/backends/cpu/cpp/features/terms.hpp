// What both ends of an edge and a linear map of its features add up to, a few edges at a time: it stays in the nearest cache.
#pragma once

#include "features/vectors.hpp"
#include "network/network.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class A>
Packed<A> packed(const Terms& call) {
  LinearMap linear;
  linear.inputs = call.inputs, linear.outputs = call.width, linear.weight = call.weight;
  return Packed<A>(linear);
}

template <class A>
EDGEWISE_INLINE uint64_t bits_of(Whole<A> condition) {
#if EDGEWISE_VECTOR_BYTES == 64
  if constexpr (std::is_same_v<A, float>) return _mm512_movepi32_mask((__m512i)condition);
  else return _mm512_movepi64_mask((__m512i)condition);
#elif EDGEWISE_VECTOR_BYTES == 32
  if constexpr (std::is_same_v<A, float>) return uint32_t(_mm256_movemask_ps((__m256)condition));
  else return uint32_t(_mm256_movemask_pd((__m256d)condition));
#else
  uint64_t bits = 0;
  for (int n = 0; n < lanes<A>; ++n) bits |= uint64_t(condition[n] & 1) << n;
  return bits;
#endif
}

// yes where the first bits are set, no elsewhere.
template <class A>
EDGEWISE_INLINE Vector<A> by_bits(uint64_t bits, Vector<A> yes, Vector<A> no) {
#if EDGEWISE_VECTOR_BYTES == 64
  if constexpr (std::is_same_v<A, float>) return (Vector<A>)_mm512_mask_blend_ps(__mmask16(bits), (__m512)no, (__m512)yes);
  else return (Vector<A>)_mm512_mask_blend_pd(__mmask8(bits), (__m512d)no, (__m512d)yes);
#else
  Whole<A> lane;
  for (int n = 0; n < lanes<A>; ++n) lane[n] = decltype(lane[0] + 0)(1) << n;
  return choose<A>((lane & decltype(lane[0] + 0)(bits)) == lane, yes, no);
#endif
}

// One piece of the rows of the graph, or of its transpose: tiles of their edges.
template <class A, class Call>
struct Tiles {
  static constexpr int W = lanes<A>, SOME = 24;  // edges of a tile
  const Call& call;
  const Packed<A>& map;
  const Adjacency& graph;
  const bool backward;  // by sender
  const int64_t b;
  const int D, R, wide, words;
  Numbers<A> room;
  A *z, *u, *inputs, *nothing;  // [SOME, wide] twice, [SOME, wide inputs], [wide] zeros
  const A* given = nullptr;  // the features of a tile's edges, `apart` numbers from each other
  int64_t apart = 0, own[SOME], first = 0;
  int count = 0;

  Tiles(const Call& call, const Packed<A>& map, bool backward, int64_t b)
      : call(call), map(map), graph(backward ? call.transpose : call.graph), backward(backward), b(b), D(call.width),
        R(call.inputs), wide(map.wide_outputs), words((D + 63) / 64),
        room(size_t(SOME) * (2 * wide + map.wide_inputs) + wide) {
    z = room.data(), u = z + SOME * wide;
    inputs = u + SOME * wide, nothing = inputs + SOME * map.wide_inputs;
  }

  const A* row(const Matrix& x, int64_t n) const { return (const A*)x.data + b * x.batch_stride + n * x.row_stride; }
  int64_t other(int64_t e) const { return graph.index[first + e]; }
  int64_t receiver(int64_t e) const { return backward ? other(e) : own[e]; }
  int64_t sender(int64_t e) const { return backward ? own[e] : other(e); }
  int64_t number(int64_t e) const { return graph.edge ? int64_t(graph.edge[first + e]) : first + e; }
  int64_t ahead(int64_t e) const { return std::min(first + e + AHEAD, graph.edges - 1); }
  const A* features(int64_t number) const { return (const A*)call.e + b * call.e_batch_stride + number * (R ? R : D); }
  uint64_t* signs(int64_t number) const { return call.signs + (b * call.graph.edges + number) * words; }

  // Calls tile() for all edges of the rows.
  template <class Tile>
  void over_tiles(int64_t from, int64_t to, const Tile& tile) {
    int64_t at = from;
    for (first = graph.offsets[from]; first < graph.offsets[to]; first += count) {
      count = int(std::min<int64_t>(SOME, graph.offsets[to] - first));
      for (int e = 0; e < count; ++e) {
        while (graph.offsets[at + 1] <= first + e) ++at;
        own[e] = at;
      }
      tile();
    }
  }

  // Calls part(c, vectors) for runs of vectors that cover a row of `wide` numbers.
  template <class Part>
  EDGEWISE_INLINE void over_columns(const Part& part) const {
    by_vectors<A, 4, 2, 1>(wide, [&](int64_t c, auto vectors) EDGEWISE_INLINE_LAMBDA { part(int(c), vectors); });
  }

  void read_inputs() {
    if (!R) return;
    given = features(first), apart = R;
    if (!graph.edge) return;  // side by side as they are
    for (int e = 0; e < count; ++e)
      for (int c = 0; c < map.wide_inputs; c += W) store(inputs + e * map.wide_inputs + c, load_part(features(number(e)) + c, R - c));
    given = inputs, apart = map.wide_inputs;
  }

  // Prefetches what a later edge reads of its other end: of all edges of a tile the first line at once, so that their pages are
  // looked for together, then row by row among the computations, which no longer wait for pages.
  EDGEWISE_INLINE void prefetch_term(int e, size_t bytes) const {
    const Matrix& there = backward ? call.a : call.b;
    if (there.data) prefetch(row(there, graph.index[ahead(e)]), bytes);
    if (graph.edge && call.e) prefetch(features(graph.edge[ahead(e)]), std::min(bytes, (R ? R : D) * sizeof(A)));
  }

  // N vectors of columns of M edges' z, from edge e and column c on.
  template <int M, int N>
  EDGEWISE_INLINE void some_sums(int e, int c) {
    Vector<A> total[M][N];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      if (c == 0) prefetch_term(e + m, D * sizeof(A));
      const A* x = call.a.data ? row(call.a, receiver(e + m)) : nothing;
      const A* y = call.b.data ? row(call.b, sender(e + m)) : nothing;
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) total[m][n] = load_part(x + c + n * W, D - c - n * W) + load_part(y + c + n * W, D - c - n * W);
      if (R || !call.e) continue;
      const A* own = features(number(e + m));
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) total[m][n] += load_part(own + c + n * W, D - c - n * W);
    }
    const A *from = given + e * apart, *weight = map.forward.data() + c;
    for (int r = 0; r < R; ++r) {
      Vector<A> column[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) column[n] = load(weight + r * wide + n * W);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        const Vector<A> x = all(from[m * apart + r]);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) total[m][n] += x * column[n];
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) store(z + (e + m) * wide + c + n * W, total[m][n]);
  }

  // z of a tile.
  void add_up() {
    for (int e = 0; e < count; ++e) prefetch_term(e, 1);
    read_inputs();
    over_columns([&](int c, auto vectors) {
      constexpr int N = decltype(vectors)::value;
      int e = 0;
      for (; e + 6 <= count; e += 6) some_sums<6, N>(e, c);
      for (; e < count; ++e) some_sums<1, N>(e, c);
    });
  }

  static void add(A* total, int c, int width, Vector<A> x) {
    if (width - c >= W) store(total + c, load(total + c) + x);
    else store_some<A>(total + c, width - c, load_some(total + c, width - c) + x);
  }

  A* cleared(void* rows, int64_t from, int64_t to) const {
    A* mine = rows ? (A*)rows + b * graph.rows * D : nullptr;
    if (mine) std::fill(mine + from * D, mine + to * D, A(0));
    return mine;
  }

  // total [R, wide] += eᵀ dz, of a tile.
  void learn(const A* dz, A* total) const {
    multiply_rows<A, Start::AFTER, true>(given, apart, R, dz, wide, count, total, wide);
  }

  // The gradients to what a tile's edges gave.
  void write_edges(const A* dz) {
    const int width = R ? R : D, apart = R ? map.wide_inputs : wide;
    if (R) multiply_rows<A, Start::ZERO, false>(dz, wide, count, map.back.data(), apart, D, inputs, apart);
    const A* from = R ? inputs : dz;
    for (int e = 0; e < count; ++e)
      std::memcpy((A*)call.de + (b * call.graph.edges + number(e)) * width, from + e * apart, width * sizeof(A));
  }
};

// Calls run(tiles, n, from, to) for every piece n of the rows, of every member of the batch; returns how many there are.
template <class A, template <class, class> class Kind, class Call, class Run>
int64_t over_pieces(const Call& call, const Packed<A>& map, bool backward, const Run& run) {
  const Adjacency& graph = backward ? call.transpose : call.graph;
  const Pieces pieces = pieces_of(call, graph);
  for (int64_t b = 0; b < call.batch; ++b)
    over_items(call.threads, pieces.count, [&](int64_t piece, int) {
      Kind<A, Call> tiles(call, map, backward, b);
      run(tiles, b * pieces.count + piece, pieces.start(piece), pieces.start(piece + 1));
    });
  return pieces.count * call.batch;
}

// Sums of as many numbers as each piece has, in the order of the pieces.
template <class A>
void add_pieces(Numbers<A>& totals, size_t numbers) {
  for (size_t start = numbers; start < totals.size(); start += numbers)
    for (size_t n = 0; n < numbers; ++n) totals[n] += totals[start + n];
}

}  // namespace edgewise::EDGEWISE_ISA
