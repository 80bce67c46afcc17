// Sums over neighbours of combinations of several rows that each of them has, with weights of the edge: sender by sender, so
// that its rows are read once, from the cache for each of its edges.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "dots.hpp"
#include "network/table.hpp"
#include "parallel.hpp"
#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

// Calls part(j) for every sender. Its rows lie on as many pages as there are bases, more than a processor follows by itself:
// those of a later one are requested, and the numbers of its edges, of their gradients too.
template <class A, class Part>
void over_senders(const Combined& call, const Part& part) {
  constexpr int64_t later = 4;
  const Adjacency& graph = call.transpose;
  const Pieces pieces(graph.offsets, graph.rows);
  over_items(call.threads, pieces.count, [&](int64_t piece, int) {
    for (int64_t j = pieces.start(piece); j < pieces.start(piece + 1); ++j) {
      if (j + later < graph.rows) {
        for (const void* rows : {call.x, (const void*)call.dx})
          for (int b = 0; rows && b < call.bases; ++b)
            prefetch((const A*)rows + (j + later) * call.x_row + b * call.x_base, call.channels * sizeof(A));
        for (const void* numbers : {call.weight, (const void*)call.dweight})
          for (int64_t t = graph.offsets[j + later]; numbers && t < graph.offsets[j + later + 1]; ++t)
            prefetch((const A*)numbers + int64_t(graph.edge[t]) * call.bases, call.bases * sizeof(A));
      }
      part(j);
    }
  });
}

// m_e = Σ_b w_eb x_jb
template <class A>
void combine(const Combined& call) {
  constexpr int W = lanes<A>;
  const int B = call.bases, C = call.channels;
  over_senders<A>(call, [&](int64_t j) {
    const A* x = (const A*)call.x + j * call.x_row;
    for (int64_t t = call.transpose.offsets[j]; t < call.transpose.offsets[j + 1]; ++t) {
      const int64_t e = call.transpose.edge[t];
      const A* w = (const A*)call.weight + e * B;
      A* m = (A*)call.m + e * C;
      for (int c = 0; c < C; c += W) {
        Vector<A> total{};
        for (int b = 0; b < B; ++b) total += all(w[b]) * load_part(x + b * call.x_base + c, C - c);
        if (c + W <= C) store(m + c, total);
        else store_some(m + c, C - c, total);
      }
    }
  });
}

// From the gradient g_i to the sums of every receiver: dx_jb = Σ_e w_eb g_i and dw_eb = x_jb · g_i.
template <class A>
void combine_gradient(const Combined& call) {
  constexpr int W = lanes<A>;
  const int B = call.bases, C = call.channels;
  over_senders<A>(call, [&](int64_t j) {
    const A* x = (const A*)call.x + j * call.x_row;
    const int64_t first = call.transpose.offsets[j], last = call.transpose.offsets[j + 1];
    for (int64_t t = first; call.dweight && t < last; ++t) {
      const A* g = (const A*)call.g + int64_t(call.transpose.index[t]) * C;
      A* dw = (A*)call.dweight + int64_t(call.transpose.edge[t]) * B;
      for (int b = 0; b < B; b += W) {
        Vector<A> total[W] = {};
        for (int c = 0; c < C; c += W) {
          const Vector<A> own = load_part(g + c, C - c);
#pragma GCC unroll 16
          for (int k = 0; k < W; ++k) total[k] += own * load_part(x + std::min(b + k, B - 1) * call.x_base + c, C - c);
        }
        const Vector<A> sums = sums_across<A>(total);
        if (b + W <= B) store(dw + b, sums);
        else store_some(dw + b, B - b, sums);
      }
    }
    for (int b = 0; call.dx && b < B; ++b)
      for (int c = 0; c < C; c += W) {
        Vector<A> total{};
        for (int64_t t = first; t < last; ++t) {
          const A* g = (const A*)call.g + int64_t(call.transpose.index[t]) * C;
          total += all(((const A*)call.weight)[int64_t(call.transpose.edge[t]) * B + b]) * load_part(g + c, C - c);
        }
        A* dx = (A*)call.dx + j * call.x_row + b * call.x_base + c;
        if (c + W <= C) store(dx, total);
        else store_some(dx, C - c, total);
      }
  });
}

}  // namespace edgewise::EDGEWISE_ISA
