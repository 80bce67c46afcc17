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

// One piece of the rows of the graph, or of its transpose: tiles of their edges.
template <class A, class Call>
struct Tiles {
  static constexpr int W = lanes<A>, SOME = 24;  // edges of a tile
  const Call& call;
  const Packed<A>& map;
  const Adjacency& graph;
  const bool backward;  // by sender
  const int64_t b;
  const int D, R, wide;
  std::vector<A> room;
  A *z, *inputs, *more;  // [SOME, wide], [SOME, wide inputs], [2, SOME, wide]
  int64_t own[SOME], first = 0;
  int count = 0;

  Tiles(const Call& call, const Packed<A>& map, bool backward, int64_t b)
      : call(call), map(map), graph(backward ? call.transpose : call.graph), backward(backward), b(b), D(call.width),
        R(call.inputs), wide(map.wide_outputs), room(size_t(SOME) * (3 * wide + map.wide_inputs) + 2 * W) {
    z = room.data() + W - reinterpret_cast<uintptr_t>(room.data()) / sizeof(A) % W;
    inputs = z + SOME * wide, more = inputs + SOME * map.wide_inputs;
  }

  const A* row(const Matrix& x, int64_t n) const { return (const A*)x.data + b * x.batch_stride + n * x.row_stride; }
  int64_t other(int64_t e) const { return graph.index[first + e]; }
  int64_t receiver(int64_t e) const { return backward ? other(e) : own[e]; }
  int64_t sender(int64_t e) const { return backward ? own[e] : other(e); }
  int64_t number(int64_t e) const { return graph.edge ? int64_t(graph.edge[first + e]) : first + e; }
  int64_t ahead(int64_t e) const { return std::min(first + e + AHEAD, graph.edges - 1); }
  const A* features(int64_t number) const { return (const A*)call.e + b * call.e_batch_stride + number * (R ? R : D); }

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

  void read_inputs() {
    for (int e = 0; R && e < count; ++e) {
      const A* given = features(number(e));
      for (int c = 0; c < map.wide_inputs; c += W) store(inputs + e * map.wide_inputs + c, load_part(given + c, R - c));
    }
  }

  // z of a tile.
  void add_up() {
    for (int e = 0; e < count; ++e) {  // all at once, so that pages are looked up at the same time
      const int64_t n = graph.index[ahead(e)];
      const Matrix& there = backward ? call.a : call.b;
      if (there.data) prefetch(row(there, n), D * sizeof(A));
      if (backward && call.e) prefetch(features(graph.edge[ahead(e)]), (R ? R : D) * sizeof(A));
    }
    read_inputs();
    for (int e = 0; e < count; ++e) {
      const A *a = call.a.data ? row(call.a, receiver(e)) : nullptr, *to = call.b.data ? row(call.b, sender(e)) : nullptr;
      const A* given = call.e && !R ? features(number(e)) : nullptr;
      for (int c = 0; c < wide; c += W) {
        Vector<A> sum{};
        if (a) sum += load_part(a + c, D - c);
        if (to) sum += load_part(to + c, D - c);
        if (given) sum += load_part(given + c, D - c);
        store(z + e * wide + c, sum);
      }
    }
    int c = 0;
    const auto product = [&](auto vectors) {
      constexpr int N = decltype(vectors)::value;
      for (; c + N * W <= wide; c += N * W)
        multiply<A, N, Start::ADD, false>(inputs, map.wide_inputs, count, map.forward.data() + c, wide, R, z + c, wide);
    };
    if (R) product(std::integral_constant<int, 4>{}), product(std::integral_constant<int, 1>{});
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

  // total [D, wide inputs] += dzᵀ e, of a tile.
  void learn(const A* dz, A* total) const {
    for (int c = 0; c < map.wide_inputs; c += W)
      multiply<A, 1, Start::AFTER, true>(dz, wide, D, inputs + c, map.wide_inputs, count, total + c, map.wide_inputs);
  }

  // The gradients to what a tile's edges gave.
  void write_edges(const A* dz) {
    const int width = R ? R : D, apart = R ? map.wide_inputs : wide;
    for (int c = 0; R && c < apart; c += W)
      multiply<A, 1, Start::ZERO, false>(dz, wide, count, map.back.data() + c, apart, D, inputs + c, apart);
    const A* from = R ? inputs : dz;
    for (int e = 0; e < count; ++e)
      std::memcpy((A*)call.de + (b * call.graph.edges + first + e) * width, from + e * apart, width * sizeof(A));
  }
};

// Calls run(tiles, n, from, to) for every piece n of the rows, of every member of the batch; returns how many there are.
template <class A, template <class, class> class Kind, class Call, class Run>
int64_t over_pieces(const Call& call, const Packed<A>& map, bool backward, const Run& run) {
  const Adjacency& graph = backward ? call.transpose : call.graph;
  const Pieces pieces(graph.offsets, graph.rows);
  for (int64_t b = 0; b < call.batch; ++b)
    over_items(call.threads, pieces.count, [&](int64_t piece, int) {
      Kind<A, Call> tiles(call, map, backward, b);
      run(tiles, b * pieces.count + piece, pieces.start(piece), pieces.start(piece + 1));
    });
  return pieces.count * call.batch;
}

// Sums of as many numbers as each piece has, in the order of the pieces.
template <class A>
void add_pieces(std::vector<A>& totals, size_t numbers) {
  for (size_t start = numbers; start < totals.size(); start += numbers)
    for (size_t n = 0; n < numbers; ++n) totals[n] += totals[start + n];
}

inline int64_t pieces_of(const Adjacency& graph, int64_t batch) { return Pieces(graph.offsets, graph.rows).count * batch; }

}  // namespace edgewise::EDGEWISE_ISA
