// Networks on all edges, forward and backward: shared out among threads, and what each piece has learnt added up.
#pragma once

#include "network/network.hpp"

namespace edgewise::EDGEWISE_ISA {

// db_j += Σ of the rows of a sender's edges, in the order in which one thread would add them.
template <class A>
void add_to_senders(const Network& call, int width, const A* along_edges) {
  constexpr int W = lanes<A>;
  const Adjacency& graph = call.transpose;
  const Pieces pieces(graph.offsets, graph.rows, width);
  const auto row_of = [&](int64_t t) { return along_edges + int64_t(graph.edge[t]) * width; };
  over_items(call.threads, pieces.count, [&](int64_t piece, int) {
    for (int64_t j = pieces.start(piece); j < pieces.start(piece + 1); ++j) {
      const int64_t from = graph.offsets[j], to = graph.offsets[j + 1];
      for (int64_t t = from; t < to; ++t) prefetch(row_of(std::min(t + AHEAD, graph.edges - 1)), width * sizeof(A));
      by_vectors<A, 4, 1>(width, [&](int64_t c, auto vectors) EDGEWISE_INLINE_LAMBDA {
        constexpr int N = decltype(vectors)::value;
        A* const out = (A*)call.db + j * width + c;
        Vector<A> total[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) total[n] = load_part(out + n * W, width - c - n * W);
        for (int64_t t = from; t < to; ++t)
#pragma GCC unroll 4
          for (int n = 0; n < N; ++n) total[n] += load_part(row_of(t) + c + n * W, width - c - n * W);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) store_some<A>(out + n * W, int(std::min<int64_t>(W, width - c - n * W)), total[n]);
      });
    }
  });
}

template <class A>
void network(const Network& call) {
  const Maps<A> maps(call);
  const Pieces pieces(call.graph.offsets, call.graph.rows, maps.work());
  if (call.r) expect_writes(call.r, call.graph.edges * maps.map.back().outputs * sizeof(A));
  over_items(call.threads, pieces.count, [&](int64_t piece, int) {
    Running<A>(call, maps, false).run(pieces.start(piece), pieces.start(piece + 1));
  });
}

template <class A>
void network_gradient(const Network& call) {
  const Maps<A> maps(call);
  const Pieces pieces(call.graph.offsets, call.graph.rows, maps.work());
  const int width = maps.map[0].outputs;
  const bool alone = usable_threads(call.threads) == 1;  // several threads would meet at senders
  const auto along_edges = scratch<A>(call.db && !alone ? size_t(call.graph.edges) * width : 0);
  Numbers<A> totals(maps.gradients * pieces.count);  // each piece's own, so that any threads add in one order
  over_items(call.threads, pieces.count, [&](int64_t piece, int) {
    Running<A> running(call, maps, true);
    if (call.db) (alone ? running.to_senders : running.along_edges) = alone ? (A*)call.db : along_edges.get();
    running.gradient(pieces.start(piece), pieces.start(piece + 1), totals.data() + maps.gradients * piece);
  });
  if (call.db && !alone) add_to_senders<A>(call, width, along_edges.get());
  for (int64_t piece = 1; piece < pieces.count; ++piece)
    for (size_t n = 0; n < maps.gradients; ++n) totals[n] += totals[maps.gradients * piece + n];
  const A* total = totals.data();
  for (int l = 0; l <= call.maps; ++l) {
    const Packed<A>& map = maps.map[l];
    for (int o = 0; call.map[l].dweight && o < map.outputs; ++o)
      std::memcpy((A*)call.map[l].dweight + size_t(o) * map.inputs, total + size_t(o) * map.wide_inputs, map.inputs * sizeof(A));
    const A* shift = total + size_t(map.outputs) * map.wide_inputs;
    if (call.map[l].dbias) std::memcpy(call.map[l].dbias, shift, map.outputs * sizeof(A));
    total += map.gradients();
  }
}

}  // namespace edgewise::EDGEWISE_ISA
