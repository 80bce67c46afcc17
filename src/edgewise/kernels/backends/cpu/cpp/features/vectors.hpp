// Products between vectors of edges and those of their receivers, and the softmax over a receiver's edges: streams of edges,
// in which no sender is looked up.
#pragma once

#include <vector>

#include "dots.hpp"
#include "features/table.hpp"
#include "memory.hpp"
#include "parallel.hpp"
#include "rows.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class Call>
Pieces pieces_of(const Call& call, const Adjacency& graph) {
  return Pieces(graph.offsets, graph.rows, call.work());
}

// Calls row(b, i, first, last) for every receiver.
template <class Call, class Row>
void over_receivers(const Call& call, const Row& row) {
  const Pieces pieces = pieces_of(call, call.graph);
  over_items(call.threads, pieces.count * call.batch, [&](int64_t item, int) {
    const int64_t b = item / pieces.count, piece = item % pieces.count, stop = pieces.start(piece + 1);
    for (int64_t i = pieces.start(piece); i < stop; ++i) row(b, i, call.graph.offsets[i], call.graph.offsets[i + 1]);
  });
}

template <class A>
struct Along {
  const Vectors& call;
  const int H, G, C;

  explicit Along(const Vectors& call) : call(call), H(call.heads), G(call.vectors), C(call.channels) {}

  const A* u(int64_t b, int64_t i) const { return (const A*)call.u + (b * call.graph.rows + i) * H * C; }
  const A* w(int64_t b, int64_t e) const { return (const A*)call.w + (b * call.graph.edges + e) * H; }
  const A* x(int64_t b, int64_t e) const { return (const A*)call.x + b * call.x_batch_stride + e * call.x_row_stride; }

  void dots(int64_t b, int64_t i, int64_t first, int64_t last) const {
    const Adjacency& graph = call.graph;
    EdgeRows<A> rows{x(b, graph.index ? 0 : first), call.x_row_stride};
    if (graph.index) rows.index = graph.index + first, rows.last = graph.edges - 1 - first, rows.bytes = G * C * sizeof(A);
    A* const out = (A*)call.out + (b * graph.edges + first) * H;
    dots_of_heads<A>(last - first, H, out, Operand<A>{u(b, i), C, rows, G == 1 ? 0 : C, C});
  }

  void sums(int64_t b, int64_t i, int64_t first, int64_t last) const {
    A* const out = (A*)call.out + (b * call.graph.rows + i) * H * C;
    sums_of_heads<A>({w(b, first), H}, {x(b, first), call.x_row_stride}, G == 1 ? 0 : C, last - first, H, C, out, C);
  }

  void spread(int64_t b, int64_t i, int64_t first, int64_t last) const {
    constexpr int W = lanes<A>;
    const A* own = u(b, i);
    for (int64_t e = first; e < last; ++e) {
      const A* weights = w(b, e);
      A* out = (A*)call.out + (b * call.graph.edges + e) * G * C;
      for (int g = 0; g < G; ++g)
        for (int c = 0; c < C; c += W) {
          Vector<A> total = all(weights[g]) * load_part(own + g * C + c, C - c);
          for (int h = 1; G == 1 && h < H; ++h) total += all(weights[h]) * load_part(own + h * C + c, C - c);
          store_some<A>(out + g * C + c, std::min(C - c, W), total);
        }
    }
  }
};

template <class A, int G>
struct ByHeads {
  static constexpr int W = lanes<A>;
  using Unit = Short<A, G == 3 ? 4 : G>;  // a number for each of some heads

  static Unit unit(const A* p) {
    if constexpr (G == 3) {
      return Unit{p[0], p[1], p[2], 0};
    } else {
      Unit x;
      std::memcpy(&x, p, sizeof x);
      return x;
    }
  }
  static void put_unit(A* p, Unit x) { std::memcpy(p, &x, G * sizeof(A)); }

  // p = exp(s - max s) / Σ exp(s - max s); all 0 where every s is -inf.
  static void forward(const A* s, int64_t n, int H, A* out, Numbers<A>& room) {
    const A infinity = std::numeric_limits<A>::infinity();
    room.resize(std::max(room.size(), size_t(n) * G + W));
    A* const p = room.data();
    Unit highest = Unit{} - infinity, total{};
    for (int64_t e = 0; e < n; ++e) {
      const Unit x = unit(s + e * H);
      highest = x > highest ? x : highest;
    }
    const Unit shift = highest > -infinity ? highest : Unit{};
    for (int64_t e = 0; e < n; ++e) put_unit(p + e * G, unit(s + e * H) - shift);
    for (int64_t at = n * G; at % W; ++at) p[at] = 0;
    for (int64_t at = 0; at < n * G; at += W) store(p + at, exponential(load(p + at)));
    for (int64_t e = 0; e < n; ++e) total += unit(p + e * G);
    const Unit inverse = total == Unit{} ? Unit{} : 1 / total;  // NaN stays NaN
    for (int64_t e = 0; e < n; ++e) put_unit(out + e * H, unit(p + e * G) * inverse);
  }

  static void backward(const A* p, const A* dp, int64_t n, int H, A* out) {
    Unit mean{};
    for (int64_t e = 0; e < n; ++e) mean += unit(p + e * H) * unit(dp + e * H);
    for (int64_t e = 0; e < n; ++e) put_unit(out + e * H, unit(p + e * H) * (unit(dp + e * H) - mean));
  }

  static void run(const Softmax& call) {
    const Pieces pieces(call.graph.offsets, call.graph.rows);
    const int H = call.heads;
    over_items(call.threads, pieces.count * call.batch, [&](int64_t item, int) {
      Numbers<A> room;
      const int64_t b = item / pieces.count, piece = item % pieces.count, stop = pieces.start(piece + 1);
      for (int64_t i = pieces.start(piece); i < stop; ++i) {
        const int64_t first = call.graph.offsets[i], n = call.graph.offsets[i + 1] - first;
        for (int h = 0; h < H; h += G) {
          const int64_t at = (b * call.graph.edges + first) * H + h;
          if (call.dp) backward((const A*)call.s + at, (const A*)call.dp + at, n, H, (A*)call.out + at);
          else forward((const A*)call.s + at, n, H, (A*)call.out + at, room);
        }
      }
    });
  }

  // s = LeakyReLU(a_i + b_j + x_ij), or from ds the gradients to x and to a.
  static void run(const Ends& call) {
    const Adjacency& graph = call.graph;
    const int H = call.heads;
    const A slope = A(call.slope);
    over_receivers(call, [&](int64_t b, int64_t i, int64_t first, int64_t last) {
      const A *a = (const A*)call.a + (b * graph.rows + i) * H, *to = (const A*)call.b + b * call.senders * H;
      const int64_t edges = b * graph.edges * H;
      for (int h = 0; h < H; h += G) {
        const Unit mine = unit(a + h);
        Unit total{};
        for (int64_t e = first; e < last; ++e) {
          Unit z = mine + unit(to + int64_t(graph.index[e]) * H + h);
          if (call.x) z += unit((const A*)call.x + b * call.x_batch_stride + e * H + h);
          const int64_t at = edges + e * H + h;
          const Unit value = call.ds ? unit((const A*)call.ds + at) : z, result = z > 0 ? value : value * slope;
          put_unit((A*)call.out + at, result);
          total += result;
        }
        if (call.ds) put_unit((A*)call.da + (b * graph.rows + i) * H + h, total);
      }
    });
  }
};

// Calls of(group) with the largest group of heads that divides them and fits a vector; of doubles 4 heads, or one.
template <class A, class Of>
auto for_group(int heads, const Of& of) {
  if constexpr (std::is_same_v<A, float>) {
    if (lanes<A> >= 8 && heads % 8 == 0) return of(std::integral_constant<int, lanes<A> < 8 ? lanes<A> : 8>{});
    if (heads % 3 == 0) return of(std::integral_constant<int, 3>{});
    if (heads % 4 && heads % 2 == 0) return of(std::integral_constant<int, 2>{});
  }
  if (lanes<A> >= 4 && heads % 4 == 0) return of(std::integral_constant<int, lanes<A> < 4 ? lanes<A> : 4>{});
  return of(std::integral_constant<int, 1>{});
}

template <class A, class Call>
void by_heads_of(const Call& call) {
  expect_writes(call.out, call.batch * call.graph.edges * call.heads * sizeof(A));
  for_group<A>(call.heads, [&](auto group) { ByHeads<A, group.value>::run(call); });
}

// The softmax of one receiver's n edges, and its gradient, for all heads; its loops are chosen once for a call.
template <class A>
struct RowSoftmax {
  int group;
  decltype(&ByHeads<A, 1>::forward) of_group;
  decltype(&ByHeads<A, 1>::backward) gradient_of_group;

  explicit RowSoftmax(int heads) {
    for_group<A>(heads, [&](auto size) {
      group = size.value, of_group = &ByHeads<A, size.value>::forward, gradient_of_group = &ByHeads<A, size.value>::backward;
    });
  }
  void forward(const A* s, int64_t n, int H, A* out, Numbers<A>& room) const {
    for (int h = 0; h < H; h += group) of_group(s + h, n, H, out + h, room);
  }
  void backward(const A* p, const A* dp, int64_t n, int H, A* out) const {
    for (int h = 0; h < H; h += group) gradient_of_group(p + h, dp + h, n, H, out + h);
  }
};

template <class A>
void softmax(const Softmax& call) {
  by_heads_of<A>(call);
}

template <class A>
void ends(const Ends& call) {
  by_heads_of<A>(call);
}

template <class A>
void dots(const Vectors& call) {
  const Along<A> along(call);
  expect_writes(call.out, call.batch * call.graph.edges * call.heads * sizeof(A));
  over_receivers(call, [&](int64_t b, int64_t i, int64_t first, int64_t last) { along.dots(b, i, first, last); });
}

template <class A>
void sums(const Vectors& call) {
  const Along<A> along(call);
  over_receivers(call, [&](int64_t b, int64_t i, int64_t first, int64_t last) { along.sums(b, i, first, last); });
}

template <class A>
void spread(const Vectors& call) {
  const Along<A> along(call);
  expect_writes(call.out, call.batch * call.graph.edges * call.vectors * call.channels * sizeof(A));
  over_receivers(call, [&](int64_t b, int64_t i, int64_t first, int64_t last) { along.spread(b, i, first, last); });
}

}  // namespace edgewise::EDGEWISE_ISA
