// Sums of activations of what both ends and the edge add up to, weighted by senders or not. No tensor has a number for each
// edge and channel, in the backward pass neither: it computes them again, once by receiver and once by sender.
#pragma once

#include "features/terms.hpp"

namespace edgewise::EDGEWISE_ISA {

template <int Kind>
struct Activated {
  template <class A, class Call>
  struct By : Tiles<A, Call> {
    using Base = Tiles<A, Call>;
    using Base::add, Base::b, Base::call, Base::count, Base::D, Base::graph, Base::number, Base::own, Base::receiver, Base::row,
        Base::sender, Base::W, Base::wide, Base::z;
    A *const g = this->more, *const steep = this->more + Base::SOME * this->wide;

    using Base::Base;

    const A* of_receiver(const void* x, int64_t i) const { return (const A*)x + (b * call.graph.rows + i) * D; }

    // σ(z), and σ'(z) where a gradient follows.
    void activate_tile(bool learning) {
      for (int e = 0; e < count; ++e) {
        const int64_t n = graph.index[this->ahead(e)];
        if (!this->backward && call.x.data) prefetch(row(call.x, n), D * sizeof(A));
        if (this->backward && call.dt) prefetch(of_receiver(call.dt, n), D * sizeof(A));
        if (this->backward && call.dy) prefetch(of_receiver(call.dy, n), D * sizeof(A));
      }
      this->add_up();
      for (int at = 0; at < count * wide; at += W) {
        Vector<A> value, slope;
        activate<Kind, A>(load(z + at), Kind == RELU ? Vector<A>{} : decay<Kind, A>(load(z + at)), value, slope);
        store(g + at, value);
        if (learning) store(steep + at, slope);
      }
    }

    void forward(int64_t from, int64_t to) {
      A *t = this->cleared(call.t, from, to), *y = this->cleared(call.y, from, to);
      this->over_tiles(from, to, [&] {
        activate_tile(false);
        for (int e = 0; e < count; ++e) {
          const A *value = g + e * wide, *x = y ? row(call.x, sender(e)) : nullptr;
          for (int c = 0; c < D; c += W) {
            if (t) add(t + own[e] * D, c, D, load(value + c));
            if (y) add(y + own[e] * D, c, D, load(value + c) * load_part(x + c, D - c));
          }
        }
      });
    }

    // The gradients to this end of every edge; by receiver those to the edges and, added to `total`, to the map too.
    void gradient(int64_t from, int64_t to, A* total) {
      A* dend = this->cleared(this->backward ? call.db : call.da, from, to);
      A* dx = this->backward ? this->cleared(call.dx, from, to) : nullptr;
      this->over_tiles(from, to, [&] {
        activate_tile(true);
        for (int e = 0; e < count; ++e) {
          A* dz = z + e * wide;
          const A *value = g + e * wide, *dt = call.dt ? of_receiver(call.dt, receiver(e)) : nullptr, *x = nullptr, *dy = nullptr;
          if (call.dy) dy = of_receiver(call.dy, receiver(e)), x = row(call.x, sender(e));
          for (int c = 0; c < wide; c += W) {
            Vector<A> dg = dt ? load_part(dt + c, D - c) : Vector<A>{};
            if (dy) {
              const Vector<A> of_y = load_part(dy + c, D - c);
              dg += of_y * load_part(x + c, D - c);
              if (dx) add(dx + own[e] * D, c, D, of_y * load(value + c));
            }
            dg *= load(steep + e * wide + c);
            store(dz + c, dg);
            if (dend) add(dend + own[e] * D, c, D, dg);
          }
        }
        if (this->backward) return;
        if (call.dweight) this->learn(z, total);
        if (call.de) this->write_edges(z);
      });
    }
  };
};

template <class A, int Kind>
void gates_of(const Gates& call, bool learning) {
  const Packed<A> map = packed<A>(call);
  const auto over = [&](bool backward, const auto& run) { over_pieces<A, Activated<Kind>::template By>(call, map, backward, run); };
  if (!learning) return over(false, [](auto& tiles, int64_t, int64_t from, int64_t to) { tiles.forward(from, to); });
  if (call.db || call.dx) over(true, [](auto& tiles, int64_t, int64_t from, int64_t to) { tiles.gradient(from, to, nullptr); });
  if (!call.da && !call.de && !call.dweight) return;
  const size_t numbers = call.dweight ? size_t(call.width) * map.wide_inputs : 0;
  std::vector<A> totals(numbers * pieces_of(call.graph, call.batch));  // each piece its own
  over(false, [&](auto& tiles, int64_t piece, int64_t from, int64_t to) { tiles.gradient(from, to, totals.data() + numbers * piece); });
  add_pieces(totals, numbers);
  for (int d = 0; call.dweight && d < call.width; ++d)
    std::memcpy((A*)call.dweight + size_t(d) * call.inputs, totals.data() + size_t(d) * map.wide_inputs, call.inputs * sizeof(A));
}

template <class A>
void run_gates(const Gates& call, bool learning) {
  switch (call.kind) {
    case RELU: return gates_of<A, RELU>(call, learning);
    case SILU: return gates_of<A, SILU>(call, learning);
    case SHIFTED_SOFTPLUS: return gates_of<A, SHIFTED_SOFTPLUS>(call, learning);
    default: return gates_of<A, SIGMOID>(call, learning);
  }
}

template <class A>
void gates(const Gates& call) {
  run_gates<A>(call, false);
}

template <class A>
void gates_gradient(const Gates& call) {
  run_gates<A>(call, true);
}

}  // namespace edgewise::EDGEWISE_ISA
