// Tensor products summed over neighbours: senders' features of several types, scaled for each edge and channel, times harmonics.
// A product of each harmonic with each row is summed in registers, and coefficients meet the sums: nothing has a number for
// each edge, row and channel.
#pragma once

#include <algorithm>
#include <cstring>

#include "memory.hpp"
#include "network/packed.hpp"
#include "parallel.hpp"
#include "rows.hpp"
#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class A>
struct Coupling {
  static constexpr int W = lanes<A>, SOME = 32;  // edges of a receiver at a time: what they read stays in the nearest cache
  static constexpr int MOST_ROWS = 16, MOST_HARMONICS = 49;
  const Coupled& call;
  const int C;
  Numbers<A> room;  // [sums, 2 vectors]

  explicit Coupling(const Coupled& call) : call(call), C(call.channels), room(size_t(call.sums) * 2 * W) {}

  const A* h(int64_t j) const { return (const A*)call.h + j * call.rows * C; }
  const A* weight(int64_t e, const CouplingPath& path) const {
    return (const A*)call.weight + (e * call.weights + path.weight) * C;
  }
  // Of a path: Y_0 is 1, whatever is given.
  const A* harmonics(int64_t e, const CouplingPath& path) const {
    static constexpr A one = 1;
    return path.J ? (const A*)call.harmonics + e * call.harmonic + path.J * path.J : &one;
  }
  const A* coefficients(const CouplingPath& path) const { return (const A*)call.coefficients + path.coefficients; }
  template <class Number>
  Number* output(Number* rows, int64_t i, const CouplingPath& path, int r) const {
    return rows + (i * call.outputs + path.out + r * path.apart) * C;
  }
  A* sums_gradient(int64_t i, const CouplingPath& path) const { return (A*)call.dsums + (i * call.sums + path.sums) * C; }

  // Calls part(path) for every path.
  template <class Part>
  EDGEWISE_INLINE void over_paths(const Part& part) const {
    for (int n = 0; n < call.paths; ++n) part(call.path[n]);
  }

  // Calls part(c, vectors) for runs of one or two vectors that cover the channels.
  template <class Part>
  EDGEWISE_INLINE void over_channels(const Part& part) const {
    by_vectors<A, 2, 1>(whole<A>(C), [&](int64_t c, auto vectors) EDGEWISE_INLINE_LAMBDA { part(int(c), vectors); });
  }

  template <int N>
  EDGEWISE_INLINE void read(const A* from, int c, Vector<A>* x) const {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) x[n] = load_part(from + c + n * W, C - c - n * W);
  }
  template <int N>
  EDGEWISE_INLINE void write(A* to, int c, const Vector<A>* x) const {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) store_some<A>(to + c + n * W, std::min(W, C - c - n * W), x[n]);
  }

  // Adds Y_m R ∘ h_q of some edges of a receiver to sums [harmonic m of M, row q, N vectors].
  template <int M, int N>
  void add_products(const CouplingPath& path, int64_t first, int64_t last, int c, A* sums) const {
    const int rows = 2 * path.k + 1;
    for (int q = 0; q < rows; ++q) {
      Vector<A> total[M][N];
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m)
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) total[m][n] = load(sums + ((m * rows + q) * N + n) * W);
      for (int64_t e = first; e < last; ++e) {
        const A* const Y = harmonics(e, path);
        Vector<A> R[N], x[N];
        read<N>(weight(e, path), c, R), read<N>(h(call.graph.index[e]) + (path.k * path.k + q) * C, c, x);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
          const Vector<A> z = R[n] * x[n];
#pragma GCC unroll 16
          for (int m = 0; m < M; ++m) total[m][n] += all(Y[m]) * z;
        }
      }
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m)
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) store(sums + ((m * rows + q) * N + n) * W, total[m][n]);
    }
  }

  template <int N>
  void add_products_of(const CouplingPath& path, int64_t first, int64_t last, int c, A* sums) const {
    switch (path.J) {
      case 0: return add_products<1, N>(path, first, last, c, sums);
      case 1: return add_products<3, N>(path, first, last, c, sums);
      case 2: return add_products<5, N>(path, first, last, c, sums);
      case 3: return add_products<7, N>(path, first, last, c, sums);
      case 4: return add_products<9, N>(path, first, last, c, sums);
      case 5: return add_products<11, N>(path, first, last, c, sums);
      default: return add_products<13, N>(path, first, last, c, sums);
    }
  }

  // Senders of a later receiver.
  void prefetch_senders(int64_t i) const {
    if (i + 1 >= call.graph.rows) return;
    for (int64_t e = call.graph.offsets[i + 1]; e < std::min(call.graph.offsets[i + 2], call.graph.offsets[i + 1] + SOME); ++e)
      prefetch(h(call.graph.index[e]), size_t(call.rows) * C * sizeof(A));
  }

  void forward(int64_t i) {
    prefetch_senders(i);
    const int64_t first = call.graph.offsets[i], last = call.graph.offsets[i + 1];
    over_channels([&](int c, auto vectors) {
      constexpr int N = decltype(vectors)::value;
      std::fill_n(room.data(), size_t(call.sums) * N * W, A(0));
      for (int64_t e = first; e < last; e += SOME)
        over_paths([&](const CouplingPath& path) {
          add_products_of<N>(path, e, std::min(e + SOME, last), c, room.data() + size_t(path.sums) * N * W);
        });
      over_paths([&](const CouplingPath& path) {
        const int count = path.products();
        const A *own = coefficients(path), *sums = room.data() + size_t(path.sums) * N * W;
        for (int r = 0; r < 2 * path.l + 1; ++r, own += count) {
          Vector<A> total[N] = {};
          for (int s = 0; s < count; ++s)
            if (own[s] != 0)  // most are
#pragma GCC unroll 2
              for (int n = 0; n < N; ++n) total[n] += all(own[s]) * load(sums + (s * N + n) * W);
          write<N>(output((A*)call.y, i, path, r), c, total);
        }
      });
    });
  }

  // The gradient to a receiver's sums.
  void to_sums(int64_t i) const {
    over_channels([&](int c, auto vectors) {
      constexpr int N = decltype(vectors)::value;
      over_paths([&](const CouplingPath& path) {
        const int count = path.products();
        for (int s = 0; s < count; ++s) {
          Vector<A> total[N] = {};
          for (int r = 0; r < 2 * path.l + 1; ++r) {
            const A own = coefficients(path)[r * count + s];
            if (own == 0) continue;
            Vector<A> dy[N];
            read<N>(output((const A*)call.dy, i, path, r), c, dy);
#pragma GCC unroll 2
            for (int n = 0; n < N; ++n) total[n] += all(own) * dy[n];
          }
          write<N>(sums_gradient(i, path) + size_t(s) * C, c, total);
        }
      });
    });
  }

  // The gradient to R ∘ h_q of an edge, from those to its receiver's sums.
  template <int N>
  EDGEWISE_INLINE void to_product(const CouplingPath& path, const A* of_sums, const A* Y, int q, int c, Vector<A>* dz) const {
    const int rows = 2 * path.k + 1;
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) dz[n] = Vector<A>{};
    for (int m = 0; m < 2 * path.J + 1; ++m) {
      Vector<A> own[N];
      read<N>(of_sums + (m * rows + q) * C, c, own);
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) dz[n] = fused<A>(all(Y[m]), own[n], dz[n]);
    }
  }

  // The gradients to a receiver's weights and, where they are wanted, harmonics; and on one thread those to senders, in the
  // order in which `to_sender` adds them.
  void to_edges(int64_t i, bool alone) const {
    prefetch_senders(i);
    for (int64_t e = call.graph.offsets[i]; e < call.graph.offsets[i + 1]; ++e) {
      const A* const from = h(call.graph.index[e]);
      Vector<A> dY[MOST_HARMONICS];
      for (int y = 0; call.dharmonics && y < call.harmonic; ++y) dY[y] = Vector<A>{};
      over_channels([&](int c, auto vectors) {
        constexpr int N = decltype(vectors)::value;
        over_paths([&](const CouplingPath& path) {
          const A *const of_sums = sums_gradient(i, path), *const Y = harmonics(e, path);
          const int rows = 2 * path.k + 1;
          Vector<A> R[N], dR[N] = {};
          read<N>(weight(e, path), c, R);
          for (int q = 0; q < rows; ++q) {
            Vector<A> x[N], dz[N];
            read<N>(from + (path.k * path.k + q) * C, c, x);
            to_product<N>(path, of_sums, Y, q, c, dz);
#pragma GCC unroll 2
            for (int n = 0; n < N; ++n) dR[n] += dz[n] * x[n];
            if (alone) {
              A* const own = (A*)call.dh + (int64_t(call.graph.index[e]) * call.rows + path.k * path.k + q) * C;
              Vector<A> total[N];
              read<N>(own, c, total);
#pragma GCC unroll 2
              for (int n = 0; n < N; ++n) total[n] = fused<A>(R[n], dz[n], total[n]);
              write<N>(own, c, total);
            }
            for (int m = 0; call.dharmonics && path.J && m < 2 * path.J + 1; ++m) {
              Vector<A> own[N];
              read<N>(of_sums + (m * rows + q) * C, c, own);
#pragma GCC unroll 2
              for (int n = 0; n < N; ++n) dY[path.J * path.J + m] += own[n] * (R[n] * x[n]);
            }
          }
          if (call.dweight) write<N>((A*)call.dweight + (e * call.weights + path.weight) * C, c, dR);
        });
      });
      for (int y = 0; call.dharmonics && y < call.harmonic; ++y)
        ((A*)call.dharmonics)[e * call.harmonic + y] = sum_across<A>(dY[y]);
    }
  }

  // The gradient to a sender.
  void to_sender(int64_t j) const {
    const Adjacency& graph = call.transpose;
    over_channels([&](int c, auto vectors) {
      constexpr int N = decltype(vectors)::value;
      Vector<A> total[MOST_ROWS][N] = {};
      for (int64_t t = graph.offsets[j]; t < graph.offsets[j + 1]; ++t) {
        const int64_t e = graph.edge[t], next = std::min(t + 2, graph.edges - 1);
        if (c == 0) {
          prefetch((const A*)call.dsums + int64_t(graph.index[next]) * call.sums * C, size_t(call.sums) * C * sizeof(A));
          prefetch((const A*)call.weight + int64_t(graph.edge[next]) * call.weights * C, size_t(call.weights) * C * sizeof(A));
        }
        over_paths([&](const CouplingPath& path) {
          Vector<A> R[N], dz[N];
          read<N>(weight(e, path), c, R);
          for (int q = 0; q < 2 * path.k + 1; ++q) {
            to_product<N>(path, sums_gradient(graph.index[t], path), harmonics(e, path), q, c, dz);
#pragma GCC unroll 2
            for (int n = 0; n < N; ++n) {
              Vector<A>& own = total[path.k * path.k + q][n];
              own = fused<A>(R[n], dz[n], own);
            }
          }
        });
      }
      for (int row = 0; row < call.rows; ++row) write<N>((A*)call.dh + (j * call.rows + row) * C, c, total[row]);
    });
  }
};

// Calls part(coupling, row) for every row of a graph.
template <class A, class Part>
void over_rows(const Coupled& call, const Adjacency& graph, const Part& part) {
  const Pieces pieces(graph.offsets, graph.rows, int64_t(call.sums) * call.channels);
  over_items(call.threads, pieces.count, [&](int64_t piece, int) {
    Coupling<A> coupling(call);
    for (int64_t row = pieces.start(piece); row < pieces.start(piece + 1); ++row) part(coupling, row);
  });
}

template <class A>
void couple(const Coupled& call) {
  over_rows<A>(call, call.graph, [](Coupling<A>& coupling, int64_t i) { coupling.forward(i); });
}

template <class A>
void couple_gradient(const Coupled& call) {
  const bool alone = call.dh && usable_threads(call.threads) == 1;
  if (alone) std::memset(call.dh, 0, size_t(call.transpose.rows) * call.rows * call.channels * sizeof(A));
  over_rows<A>(call, call.graph, [&](Coupling<A>& coupling, int64_t i) {
    coupling.to_sums(i);
    if (call.dweight || call.dharmonics || alone) coupling.to_edges(i, alone);
  });
  if (call.dh && !alone) over_rows<A>(call, call.transpose, [](Coupling<A>& coupling, int64_t j) { coupling.to_sender(j); });
}

}  // namespace edgewise::EDGEWISE_ISA
