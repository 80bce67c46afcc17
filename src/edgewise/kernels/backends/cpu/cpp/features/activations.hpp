// Sums of activations of what both ends and the edge add up to, weighted by senders or not. No tensor has a number for each
// edge and channel: the backward pass computes them again. Where there is one thread it does so once and adds to senders as it
// goes; several would meet there, so that they go by sender too, which adds the same numbers in the same order.
#pragma once

#include "features/terms.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class A, class Call>
struct Activated : Tiles<A, Call> {
  using Base = Tiles<A, Call>;
  using Base::add, Base::b, Base::call, Base::count, Base::D, Base::first, Base::graph, Base::own, Base::receiver, Base::row,
      Base::sender, Base::signs, Base::u, Base::W, Base::wide, Base::z;

  using Base::Base;

  const A* of_receiver(const void* x, int64_t i) const { return (const A*)x + (b * call.graph.rows + i) * D; }
  A* of_sender(void* x, int64_t j) const { return (A*)x + (b * call.transpose.rows + j) * D; }

  // Adds N vectors of the columns from c on of the activations of edges e .. stop - 1, all of one receiver, to t and, times x,
  // to y: sums stay in registers.
  template <int N>
  EDGEWISE_INLINE void add_values(int e, int stop, int c, A* t, A* y) const {
    Vector<A> of_t[N], of_y[N] = {};
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      of_t[n] = load_part(t + c + n * W, D - c - n * W);
      if (y) of_y[n] = load_part(y + c + n * W, D - c - n * W);
    }
    for (; e < stop; ++e) {
      const A* const x = y ? row(call.x, sender(e)) + c : nullptr;
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const Vector<A> value = load(z + e * wide + c + n * W);
        of_t[n] += value;
        if (y) of_y[n] += value * load_part(x + n * W, D - c - n * W);
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const int left = std::min(D - c - n * W, W);
      store_some<A>(t + c + n * W, left, of_t[n]);
      if (y) store_some<A>(y + c + n * W, left, of_y[n]);
    }
  }

  // Adds z of a tile's edges to their receivers' rows, or to one row for all.
  void add_rows(A* rows, A* one) const {
    for (int e = 0, stop; e < count; e = stop) {
      for (stop = one ? count : e + 1; stop < count && own[stop] == own[e];) ++stop;
      this->over_columns([&](int c, auto vectors) EDGEWISE_INLINE_LAMBDA {
        constexpr int N = decltype(vectors)::value;
        A* const out = (one ? one : rows + own[e] * D) + c;
        Vector<A> total[N];
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) total[n] = load_part(out + n * W, D - c - n * W);
        for (int at = e; at < stop; ++at)
#pragma GCC unroll 4
          for (int n = 0; n < N; ++n) total[n] += load(z + at * wide + c + n * W);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) store_some<A>(out + n * W, std::min(D - c - n * W, W), total[n]);
      });
    }
  }

  void forward(int64_t from, int64_t to) {
    A *const t = this->cleared(call.t, from, to), *const y = this->cleared(call.y, from, to);
    this->over_tiles(from, to, [&] {
      const auto ask = [&](int e, size_t bytes) { prefetch(row(call.x, graph.index[this->ahead(e)]), bytes); };
      for (int e = 0; y && e < count; ++e) ask(e, 1);
      this->add_up();
      activate_tile<A>(call.kind, size_t(count) * wide, z, z, nullptr);
      for (int e = 0, stop; e < count; e = stop) {
        for (stop = e; stop < count && own[stop] == own[e]; ++stop)
          if (y) ask(stop, D * sizeof(A));
        A *const of_t = t + own[e] * D, *const of_y = y ? y + own[e] * D : nullptr;
        this->over_columns([=](int c, auto vectors) EDGEWISE_INLINE_LAMBDA {
          add_values<decltype(vectors)::value>(e, stop, c, of_t, of_y);
        });
      }
      for (int e = 0; call.signs && e < count; ++e) {
        const A* const sum = z + e * wide;
        for (int start = 0; start < D; start += 64) {
          uint64_t bits = 0;
          for (int c = start; c < std::min(wide, start + 64); c += W) bits |= bits_of<A>(load(sum + c) > 0) << (c - start);
          signs(first + e)[start / 64] = bits;
        }
      }
    });
  }

  // Prefetches what a later edge reads and writes of its other end, beside the terms.
  EDGEWISE_INLINE void prefetch_others(int e, bool to_senders, size_t bytes) const {
    const int64_t n = graph.index[this->ahead(e)];
    const auto ask = [&](const A* there) { prefetch(there, bytes); };
    if (this->backward && call.dt) ask(of_receiver(call.dt, n));
    if (this->backward && call.dy) ask(of_receiver(call.dy, n));
    if (this->backward || !to_senders) return;
    if (call.x.data) ask(row(call.x, n));
    if (call.db) ask(of_sender(call.db, n));
    if (call.dx) ask(of_sender(call.dx, n));
  }

  // What one edge reads for its gradients, and where they are added; null is what is not there. `left` columns follow.
  struct Ends {
    const A *dt, *dy, *x;
    A *db, *dx;
    int left;

    static A* from(const A* p, int c) { return p ? (A*)p + c : nullptr; }
    Ends at(int c) const { return {from(dt, c), from(dy, c), from(x, c), from(db, c), from(dx, c), left - c}; }
  };

  // N vectors of dz instead of the slopes at z, or by the signs of z; of activations at u.
  template <int N>
  static EDGEWISE_INLINE void of_columns(A* z, const A* u, const Ends& ends, const uint64_t* word, int c) {
    Vector<A> dz[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const int at = n * W, left = ends.left - at;
      dz[n] = load_part(ends.dt + at, left);
      if (word) {
        dz[n] = by_bits<A>(word[(c + at) / 64] >> ((c + at) % 64), dz[n], Vector<A>{});
        continue;
      }
      if (ends.dy) {
        const Vector<A> dy = load_part(ends.dy + at, left);
        dz[n] += dy * load_part(ends.x + at, left);
        if (ends.dx) add(ends.dx + at, 0, left, dy * load(u + at));
      }
      dz[n] *= load(z + at);
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      store(z + n * W, dz[n]);
      if (ends.db) add(ends.db + n * W, 0, ends.left - n * W, dz[n]);
    }
  }

  // B vectors of columns of the gradient to one sender, from column c on, by signs.
  template <int B>
  EDGEWISE_INLINE void sum_by_signs(int64_t j, int c, A* db) const {
    Vector<A> total[B] = {};
    for (int64_t t = graph.offsets[j]; t < graph.offsets[j + 1]; ++t) {
      const uint64_t bits = signs(graph.edge[t])[c / 64] >> (c % 64);
      const A* const dt = of_receiver(call.dt, graph.index[t]) + c;
#pragma GCC unroll 4
      for (int k = 0; k < B; ++k) total[k] += by_bits<A>(bits >> (k * W), load_part(dt + k * W, D - c - k * W), Vector<A>{});
    }
    for (int k = 0; k < B; ++k) store_some<A>(db + c + k * W, std::min(W, D - c - k * W), total[k]);
  }

  void senders_by_signs(int64_t from, int64_t to) const {
    A* const db = (A*)call.db + b * graph.rows * D;
    for (int64_t j = from; j < to; ++j) {
      for (int64_t t = graph.offsets[j]; t < graph.offsets[j + 1]; ++t) {
        const int64_t ahead = std::min(t + AHEAD, graph.edges - 1);
        prefetch(of_receiver(call.dt, graph.index[ahead]), D * sizeof(A)), prefetch(signs(graph.edge[ahead]), 1);
      }
      this->over_columns([&](int c, auto vectors) EDGEWISE_INLINE_LAMBDA {
        sum_by_signs<decltype(vectors)::value>(j, c, db + j * D);
      });
    }
  }

  // The gradients to senders, or those to receivers, edges and, added to `total`, the map and the one row of all receivers; or
  // all of them.
  void gradient(int64_t from, int64_t to, bool to_senders, A* total) {
    A* const shared = !this->backward && call.one && call.da ? total + (call.dweight ? this->R * wide : 0) : nullptr;
    A* const da = this->backward || call.one ? nullptr : this->cleared(call.da, from, to);
    if (this->backward) this->cleared(call.db, from, to), this->cleared(call.dx, from, to);
    void *const db = to_senders ? call.db : nullptr, *const dx = to_senders ? call.dx : nullptr;
    this->over_tiles(from, to, [&] {
      for (int e = 0; e < count; ++e) prefetch_others(e, to_senders, 1);
      if (call.signs) this->read_inputs();
      else this->add_up(), activate_tile<A>(call.kind, size_t(count) * wide, z, dx ? u : nullptr, z);
      for (int e = 0; e < count; ++e) {
        prefetch_others(e, to_senders, D * sizeof(A));
        Ends ends{of_receiver(call.dt, receiver(e)), nullptr, nullptr, nullptr, nullptr, D};
        if (call.dy) ends.dy = of_receiver(call.dy, receiver(e)), ends.x = row(call.x, sender(e));
        if (db) ends.db = of_sender(db, sender(e));
        if (dx) ends.dx = of_sender(dx, sender(e));
        const uint64_t* const word = call.signs ? signs(first + e) : nullptr;
        this->over_columns([=, dz = z + e * wide, value = u + e * wide](int c, auto vectors) EDGEWISE_INLINE_LAMBDA {
          of_columns<decltype(vectors)::value>(dz + c, value + c, ends.at(c), word, c);
        });
      }
      if (this->backward) return;
      if (da || shared) add_rows(da, shared);
      if (call.dweight) this->learn(z, total);
      if (call.de) this->write_edges(z);
    });
  }
};

template <class A>
void run_activations(const Activations& call, bool learning) {
  const Packed<A> map = packed<A>(call);
  const auto over = [&](bool backward, const auto& run) { over_pieces<A, Activated>(call, map, backward, run); };
  if (!learning) return over(false, [](auto& tiles, int64_t, int64_t from, int64_t to) { tiles.forward(from, to); });
  const bool alone = usable_threads(call.threads) == 1 && !call.signs, to_senders = call.db || call.dx;
  if (to_senders && !alone)
    over(true, [&](auto& tiles, int64_t, int64_t from, int64_t to) {
      call.signs ? tiles.senders_by_signs(from, to) : tiles.gradient(from, to, true, nullptr);
    });
  const size_t bytes = call.batch * call.transpose.rows * call.width * sizeof(A);
  for (void* there : {call.db, call.dx}) expect_writes(there, bytes);
  for (void* there : {call.db, call.dx})
    if (alone && there) std::memset(there, 0, bytes);
  const bool by_receiver = call.da || call.de || call.dweight || (alone && to_senders);
  if (!by_receiver) return;
  const size_t of_map = call.dweight ? size_t(call.inputs) * map.wide_outputs : 0, numbers = of_map + (call.one ? map.wide_outputs : 0);
  const int64_t pieces = pieces_of(call, call.graph).count * call.batch;
  Numbers<A> totals(numbers * pieces);  // each piece its own
  over(false, [&](auto& tiles, int64_t piece, int64_t from, int64_t to) {
    tiles.gradient(from, to, alone && to_senders, totals.data() + numbers * piece);
  });
  add_pieces(totals, numbers);
  if (call.one && call.da) std::copy_n(totals.begin() + of_map, call.width, (A*)call.da);
  for (int d = 0; call.dweight && d < call.width; ++d)
    for (int n = 0; n < call.inputs; ++n) ((A*)call.dweight)[size_t(d) * call.inputs + n] = totals[size_t(n) * map.wide_outputs + d];
}

template <class A>
void activations(const Activations& call) {
  run_activations<A>(call, false);
}

template <class A>
void activations_gradient(const Activations& call) {
  run_activations<A>(call, true);
}

}  // namespace edgewise::EDGEWISE_ISA
