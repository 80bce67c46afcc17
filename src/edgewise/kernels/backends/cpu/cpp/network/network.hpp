// A network on every edge, a few edges at a time: what lies between its maps never leaves the cache.
#pragma once

#include <cstring>
#include <vector>

#include "memory.hpp"
#include "network/activations.hpp"
#include "network/packed.hpp"
#include "parallel.hpp"
#include "rows.hpp"
#include "matrix_products.hpp"

namespace edgewise::EDGEWISE_ISA {

constexpr int TILE = 48;  // edges: sixes, whose activations of a usual width fit into the nearest cache

template <class A>
struct Maps {
  std::vector<Packed<A>> map;
  size_t gradients = 0;  // numbers

  explicit Maps(const Network& call) {
    for (int l = 0; l <= call.maps; ++l) {
      map.emplace_back(call.map[l]);
      gradients += map.back().gradients();
    }
  }

  // What an edge takes: products, many at a time, and activations.
  int64_t work() const {
    int64_t total = 0;
    for (const auto& one : map) total += int64_t(one.inputs) * one.outputs / 8 + 16 * one.outputs;
    return total;
  }
};

// What one piece of the edges needs: tiles of activations, and sums of gradients.
template <class A>
struct Running {
  static constexpr int W = lanes<A>;
  static constexpr int SPAN = whole<A>(std::is_same_v<A, float> ? 16 : 20);
  const Network& call;
  const Maps<A>& maps;
  const bool learning;
  const int last;  // the number of the last activation that matters
  Numbers<A> room, of_bells;  // of_bells: the gradient to the weights of bells [inputs, wide outputs]
  std::vector<A*> u, slope;   // [1 .. maps + 1], [TILE, wide]
  A *x, *z, *dz;
  A *to_senders = nullptr, *along_edges = nullptr;  // where the gradient to b is added; or written edge by edge
  int64_t receiver[TILE], first = 0;
  int nearest[TILE];  // the first bell of each edge that counts
  int count = 0;

  Running(const Network& call, const Maps<A>& maps, bool learning)
      : call(call), maps(maps), learning(learning), last(final_activation(call, learning)) {
    int widest = 0;
    size_t numbers = 0;
    for (const auto& map : maps.map) {
      widest = std::max({widest, map.wide_inputs, map.wide_outputs});
      numbers += 2 * size_t(TILE) * map.wide_outputs;
    }
    numbers += 3 * size_t(TILE) * widest;
    room.resize(numbers);
    if (learning && call.reach > 0) of_bells.resize(size_t(map(0).inputs) * map(0).wide_outputs);
    A* free = room.data();
    const auto take = [&](int width) { return std::exchange(free, free + size_t(TILE) * width); };
    u.push_back(nullptr), slope.push_back(nullptr);
    for (const auto& map : maps.map) u.push_back(take(map.wide_outputs)), slope.push_back(take(map.wide_outputs));
    x = take(widest), z = take(widest), dz = take(widest);
  }

  static int final_activation(const Network& call, bool learning) {
    return call.collected == call.maps + 1 || (learning && !call.dr) ? call.collected : call.maps;
  }

  const Packed<A>& map(int l) const { return maps.map[l]; }

  // Calls tile() for all edges of the rows, with their receivers.
  template <class Tile>
  void over_tiles(int64_t from, int64_t to, const Tile& tile) {
    const int64_t* offsets = call.graph.offsets;
    int64_t row = from;
    for (first = offsets[from]; first < offsets[to]; first += count) {
      count = int(std::min<int64_t>(TILE, offsets[to] - first));
      for (int e = 0; e < count; ++e) {
        while (offsets[row + 1] <= first + e) ++row;
        receiver[e] = row;
      }
      tile();
    }
  }

  // Rows [count, width] between memory and whole vectors.
  void read_rows(const A* from, int width, A* to, int wide) const {
    for (int e = 0; e < count; ++e) {
      std::memcpy(to + size_t(e) * wide, from + (first + e) * width, width * sizeof(A));
      std::fill(to + size_t(e) * wide + width, to + size_t(e + 1) * wide, A(0));
    }
  }

  void write_rows(const A* from, int wide, A* to, int width, const A* factors = nullptr) const {
    for (int e = 0; e < count; ++e) {
      const A *row = from + size_t(e) * wide, factor = factors ? factors[first + e] : A(1);
      A* out = to + (first + e) * width;
      int c = 0;
      for (; c + W <= width; c += W) store(out + c, load(row + c) * factor);
      for (; c < width; ++c) out[c] = row[c] * factor;
    }
  }

  // Bells of the distances, but for those that would add less than the rounding of the others: the nearest SPAN of them.
  void read_bells() {
    const int wide = map(0).wide_inputs, most = std::max(map(0).inputs - SPAN, 0);
    const A sharp = A((map(0).inputs - 1) / call.reach);
    Vector<A> lane;
    for (int n = 0; n < W; ++n) lane[n] = A(n);
    for (int e = 0; e < count; ++e) {
      const A at = ((const A*)call.x)[first + e] * sharp;
      A* row = x + size_t(e) * wide;
      for (int c = 0; c < wide; c += W) store(row + c, Vector<A>{});
      nearest[e] = int(std::min(std::max(A(0), at - A(SPAN / 2 - 1)), A(most)));
      for (int c = nearest[e]; c < nearest[e] + std::min(SPAN, wide); c += W) {
        const Vector<A> off = at - (lane + A(c)), bell = A(-0.5) * off * off, least = all(exponent_least<A>);
        store(row + c, choose<A>(off == off, exponential_within(bell > least ? bell : least), off));
      }
    }
  }

  // z += W_0 bells.
  void add_bells() {
    const Packed<A>& to = map(0);
    const int wide = to.wide_outputs, span = std::min(SPAN, to.inputs);
    for (int e = 0; e < count; ++e) {
      const A *bells = x + size_t(e) * to.wide_inputs + nearest[e], *weight = to.forward.data() + size_t(nearest[e]) * wide;
      A* row = z + size_t(e) * wide;
      by_vectors<A, 8, 4, 1>(wide, [&](int64_t c, auto vectors) EDGEWISE_INLINE_LAMBDA {
        block<A, 1, decltype(vectors)::value, Start::ADD, false>(bells, 0, weight + c, wide, span, row + c, wide, nullptr);
      });
    }
  }

  // The gradients to the distances, from those to the bells.
  void write_distance_gradients(const A* dbell) const {
    const int wide = map(0).wide_inputs;
    const A sharp = A((map(0).inputs - 1) / call.reach);
    for (int e = 0; e < count; ++e) {
      const A at = ((const A*)call.x)[first + e] * sharp;
      A total = 0;
      for (int c = 0; c < map(0).inputs; ++c) total += dbell[size_t(e) * wide + c] * x[size_t(e) * wide + c] * (A(c) - at);
      ((A*)call.dx)[first + e] = total * sharp;
    }
  }

  void begin() {
    const Packed<A>& to = map(0);
    const int width = to.outputs, wide = to.wide_outputs;
    for (int e = 0; e < count; ++e) {
      const A *a = nullptr, *b = nullptr;
      if (call.a) a = (const A*)call.a + receiver[e] * width;
      if (call.b) {
        const int64_t ahead = int64_t(call.graph.index[std::min(first + e + AHEAD, call.graph.edges - 1)]) * width;
        prefetch((const A*)call.b + ahead, width * sizeof(A));
        if (to_senders) prefetch(to_senders + ahead, width * sizeof(A));
        b = (const A*)call.b + int64_t(call.graph.index[first + e]) * width;
      }
      A* row = z + size_t(e) * wide;
      int c = 0;
      for (; c + W <= width; c += W) {
        Vector<A> sum = load(to.bias.data() + c);
        if (a) sum += load(a + c);
        if (b) sum += load(b + c);
        store(row + c, sum);
      }
      for (; c < wide; ++c) row[c] = to.bias[c] + (a && c < width ? a[c] : A(0)) + (b && c < width ? b[c] : A(0));
    }
    if (!call.x) return;
    if (call.reach > 0) {
      read_bells();
      add_bells();
      return;
    }
    read_rows((const A*)call.x, to.inputs, x, to.wide_inputs);
    multiply_rows<A, Start::ADD, false>(x, to.wide_inputs, count, to.forward.data(), wide, to.inputs, z, wide);
  }

  static void add_row(const A* from, int width, A* to) {
    int c = 0;
    for (; c + W <= width; c += W) store(to + c, load(to + c) + load(from + c));
    for (; c < width; ++c) to[c] += from[c];
  }

  // All activations, and z behind the last map unless nothing reads it.
  void forward() {
    begin();
    for (int l = 1; l <= last; ++l) {
      activate_tile<A>(call.activation, size_t(count) * map(l - 1).wide_outputs, z, u[l], learning ? slope[l] : nullptr);
      if (l > call.maps || (l == last && learning && !call.ds)) return;
      const Packed<A>& to = map(l);
      multiply_rows<A, Start::ROW, false>(u[l], map(l - 1).wide_outputs, count, to.forward.data(), to.wide_outputs, to.inputs, z,
                                          to.wide_outputs, to.bias.data());
    }
  }

  void run(int64_t from, int64_t to) {
    const int collected = call.collected, width = collected ? map(collected - 1).outputs : 0;
    A* y = (A*)call.y;
    if (y) std::fill(y + from * width, y + to * width, A(0));
    over_tiles(from, to, [&] {
      forward();
      if (y)
        for (int e = 0; e < count; ++e)
          add_row(u[collected] + size_t(e) * map(collected - 1).wide_outputs, width, y + receiver[e] * width);
      if (call.r) write_rows(z, map(call.maps).wide_outputs, (A*)call.r, map(call.maps).outputs, (const A*)call.s);
    });
  }

  // dz behind the last map, from dr; and the gradient to s.
  void from_result() {
    const Packed<A>& end = map(call.maps);
    const int width = end.outputs, wide = end.wide_outputs;
    for (int e = 0; e < count; ++e) {
      const A *dr = (const A*)call.dr + (first + e) * width, *result = z + size_t(e) * wide;
      const A factor = call.s ? ((const A*)call.s)[first + e] : A(1);
      Vector<A> total{};
      for (int c = 0; c < wide; c += W) {
        const Vector<A> gradient = c + W <= width ? load(dr + c) : load_some(dr + c, width - c);
        if (call.ds) total += gradient * load(result + c);
        store(dz + size_t(e) * wide + c, gradient * factor);
      }
      if (call.ds) ((A*)call.ds)[first + e] = sum_across<A>(total);
    }
  }

  // dz before activation l, from the gradient du behind it (null where there is none) and from dy.
  void through_activation(int l, const A* du) {
    const Packed<A>& before = map(l - 1);
    const int wide = before.wide_outputs, width = before.outputs;
    const A* dy = l == call.collected ? (const A*)call.dy : nullptr;
    for (int e = 0; e < count; ++e) {
      const size_t row = size_t(e) * wide;
      for (int c = 0; c < wide; c += W) {
        Vector<A> gradient = du ? load(du + row + c) : Vector<A>{};
        if (dy) gradient += c + W <= width ? load(dy + receiver[e] * width + c) : load_some(dy + receiver[e] * width + c, width - c);
        store(dz + row + c, gradient * load(slope[l] + row + c));
      }
    }
  }

  // The gradients to a map's weights and bias, from its inputs and dz.
  void learn(int l, const A* inputs, A* total) const {
    const Packed<A>& to = map(l);
    multiply_rows<A, Start::AFTER, true>(dz, to.wide_outputs, to.outputs, inputs, to.wide_inputs, count, total, to.wide_inputs);
    learn_bias(l, total);
  }

  void learn_bias(int l, A* total) const {
    const Packed<A>& to = map(l);
    A* shift = total + size_t(to.outputs) * to.wide_inputs;
    for (int c = 0; c < to.wide_outputs; c += W) {
      Vector<A> sum{};
      for (int e = 0; e < count; ++e) sum += load(dz + size_t(e) * to.wide_outputs + c);
      store(shift + c, load(shift + c) + sum);
    }
  }

  // The gradient to the weights of bells: of each edge, those of the bells that count.
  void learn_bells() {
    const Packed<A>& to = map(0);
    const int wide = to.wide_outputs, span = std::min(SPAN, to.inputs);
    for (int e = 0; e < count; ++e) {
      const A *bells = x + size_t(e) * to.wide_inputs + nearest[e], *own = dz + size_t(e) * wide;
      A* const rows = of_bells.data() + size_t(nearest[e]) * wide;
      by_vectors<A, 8, 4, 1>(wide, [&](int64_t c, auto vectors) EDGEWISE_INLINE_LAMBDA {
        constexpr int N = decltype(vectors)::value;
        Vector<A> gradient[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) gradient[n] = load(own + c + n * W);
        for (int k = 0; k < span; ++k) {
          const Vector<A> bell = all(bells[k]);
          A* const row = rows + size_t(k) * wide + c;
#pragma GCC unroll 8
          for (int n = 0; n < N; ++n) store(row + n * W, load(row + n * W) + bell * gradient[n]);
        }
      });
    }
  }

  // Adds what all tiles have taught about the weights of bells.
  void add_bells_learnt(A* total) const {
    const Packed<A>& to = map(0);
    for (int k = 0; k < to.inputs; ++k)
      for (int o = 0; o < to.outputs; ++o) total[size_t(o) * to.wide_inputs + k] += of_bells[size_t(k) * to.wide_outputs + o];
  }

  // du before map l, from dz behind it.
  void back(int l, A* du) const {
    const Packed<A>& to = map(l);
    multiply_rows<A, Start::ZERO, false>(dz, to.wide_outputs, count, to.back.data(), to.wide_inputs, to.outputs, du, to.wide_inputs);
  }

  // Adds the gradients to the weights to `total`, map after map.
  void gradient(int64_t from, int64_t to, A* total) {
    std::vector<A*> sums;
    for (const auto& map : maps.map) sums.push_back(std::exchange(total, total + map.gradients()));
    const int width = map(0).outputs, wide = map(0).wide_outputs;
    A* da = (A*)call.da;
    if (da) std::fill(da + from * width, da + to * width, A(0));
    over_tiles(from, to, [&] {
      forward();
      int l = last;
      if (call.dr) from_result();
      else through_activation(l--, nullptr);
      for (; l > 0; --l) {
        learn(l, u[l], sums[l]);
        back(l, z);
        through_activation(l, z);
      }
      for (int e = 0; da && e < count; ++e) add_row(dz + size_t(e) * wide, width, da + receiver[e] * width);
      for (int e = 0; to_senders && e < count; ++e)
        add_row(dz + size_t(e) * wide, width, to_senders + int64_t(call.graph.index[first + e]) * width);
      if (along_edges) write_rows(dz, wide, along_edges, width);
      if (call.reach > 0) learn_bells(), learn_bias(0, sums[0]);
      else learn(0, x, sums[0]);
      if (!call.dx) return;
      back(0, z);
      if (call.reach > 0) write_distance_gradients(z);
      else write_rows(z, map(0).wide_inputs, (A*)call.dx, map(0).inputs);
    });
    if (call.reach > 0) add_bells_learnt(sums[0]);
  }
};

}  // namespace edgewise::EDGEWISE_ISA
