// Scores r · LeakyReLU(z) of what both ends and the edge add up to. A bit for each z is kept, its sign: by γ = ds LeakyReLU'(z)
// all gradients follow from it without z, for those to both ends are r ∘ Σ γ, that to W is r ∘ Σ γ eᵀ, and that to r is
// Σ γ z = Σ_i a_i ∘ Σ_j γ + Σ_j b_j ∘ Σ_i γ + W ∘ Σ γ eᵀ.
#pragma once

#include "features/terms.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class A, class Call>
struct Scoring : Tiles<A, Call> {
  using Base = Tiles<A, Call>;
  using Base::b, Base::call, Base::count, Base::D, Base::first, Base::graph, Base::number, Base::own, Base::signs, Base::W, Base::wide, Base::z;
  const int H = call.heads, C = D / H;
  const A slope = A(call.slope), *const r = (const A*)call.readout;

  using Base::Base;

  A* scores(const void* s, int64_t number) const { return (A*)s + (b * call.graph.edges + number) * H; }

  void forward(int64_t from, int64_t to) {
    this->over_tiles(from, to, [&] {
      this->add_up();
      for (int e = 0; e < count; ++e) {
        uint64_t* word = signs(first + e);
        for (int start = 0; start < wide; start += 64) {
          uint64_t bits = 0;
          for (int c = start; c < std::min(wide, start + 64); c += W) {
            const Vector<A> x = load(z + e * wide + c);
            bits |= bits_of<A>(x > 0) << (c - start);
            store(z + e * wide + c, x > 0 ? x : x * slope);
          }
          word[start / 64] = bits;
        }
      }
      dots_of_heads<A>(count, H, scores(call.s, first), Operand<A>{r, C, {z, wide}, C, C});
    });
  }

  // The number of each column's head.
  EDGEWISE_INLINE Vector<A> of_heads(const A* ds, int c) const {
    if (C % W == 0) return all(ds[c / C]);
    Vector<A> x{};
    for (int n = 0; n < W && c + n < D; ++n) x[n] = ds[(c + n) / C];
    return x;
  }

  EDGEWISE_INLINE Vector<A> gamma(const A* ds, const uint64_t* word, int c) const {
    const Vector<A> x = of_heads(ds, c);
    return by_bits<A>(word[c / 64] >> (c % 64), x, x * slope);
  }

  // From Σ γ, which lies where this end's gradient belongs: that gradient, and what Σ γ adds to the one to r.
  void finish(const Matrix& ends, A* dend, int64_t from, int64_t to, double* dr) const {
    for (int64_t n = from; n < to; ++n) {
      if (graph.offsets[n] == graph.offsets[n + 1]) continue;  // 0 times its numbers may be NaN
      const A* x = this->row(ends, n);
      A* mine = dend + n * D;
      for (int c = 0; c < D; ++c) dr[c] += double(x[c]) * mine[c], mine[c] *= r[c];
    }
  }

  // B vectors of columns of Σ γ of one sender, from column c on.
  template <int B>
  EDGEWISE_INLINE void sum(int64_t j, int c, A* out) const {
    Vector<A> total[B] = {};
    for (int64_t t = graph.offsets[j]; t < graph.offsets[j + 1]; ++t) {
      const int64_t n = graph.edge[t];
#pragma GCC unroll 4
      for (int k = 0; k < B; ++k) total[k] += gamma(scores(call.ds, n), signs(n), c + k * W);
    }
    for (int k = 0; k < B; ++k) store_some<A>(out + c + k * W, std::min(W, D - c - k * W), total[k]);
  }

  void by_sender(int64_t from, int64_t to, A* dend, double* dr) {
    for (int64_t j = from; j < to; ++j) {
      for (int64_t t = graph.offsets[j]; t < graph.offsets[j + 1]; ++t) {
        const int64_t n = graph.edge[std::min(t + AHEAD, graph.edges - 1)];
        prefetch(scores(call.ds, n), 1), prefetch(signs(n), 1);
      }
      this->over_columns([&](int c, auto vectors) { sum<decltype(vectors)::value>(j, c, dend + j * D); });
    }
    finish(call.b, dend, from, to, dr);
  }

  void by_receiver(int64_t from, int64_t to, A* dend, A* total, double* dr) {
    std::fill(dend + from * D, dend + to * D, A(0));
    this->over_tiles(from, to, [&] {
      if (call.dweight) this->read_inputs();
      for (int e = 0; e < count; ++e) {
        const A *given = call.e && !this->R ? this->features(first + e) : nullptr, *ds = scores(call.ds, first + e);
        for (int c = 0; c < wide; c += W) {
          const Vector<A> x = gamma(ds, signs(first + e), c);
          store(z + e * wide + c, x);
          this->add(dend + own[e] * D, c, D, x);
        }
        for (int c = 0; given && c < D; ++c) dr[c] += double(given[c]) * z[e * wide + c];
      }
      if (call.dweight) this->learn(z, total);
      if (!call.de) return;
      for (int e = 0; e < count; ++e)
        for (int c = 0; c < wide; c += W) store(z + e * wide + c, load(z + e * wide + c) * load_part(r + c, D - c));
      this->write_edges(z);
    });
    finish(call.a, dend, from, to, dr);
  }
};

template <class A>
void scores(const Scores& call) {
  const Packed<A> map = packed<A>(call);
  expect_writes(call.s, call.batch * call.graph.edges * call.heads * sizeof(A));
  over_pieces<A, Scoring>(call, map, false, [](auto& tiles, int64_t, int64_t from, int64_t to) { tiles.forward(from, to); });
}

// All of da, db and dreadout are written; de and dweight where they are not null.
template <class A>
void scores_gradient(const Scores& call) {
  const Packed<A> map = packed<A>(call);
  const int D = call.width, R = call.inputs;
  Numbers<double> by_sender(D * pieces_of(call, call.transpose).count * call.batch), by_receiver(D * pieces_of(call, call.graph).count * call.batch);
  over_pieces<A, Scoring>(call, map, true, [&](auto& tiles, int64_t piece, int64_t from, int64_t to) {
    tiles.by_sender(from, to, (A*)call.db + tiles.b * call.transpose.rows * D, by_sender.data() + D * piece);
  });
  const size_t numbers = call.dweight ? size_t(R) * map.wide_outputs : 0;
  Numbers<A> totals(numbers * pieces_of(call, call.graph).count * call.batch);
  over_pieces<A, Scoring>(call, map, false, [&](auto& tiles, int64_t piece, int64_t from, int64_t to) {
    A* const da = (A*)call.da + tiles.b * call.graph.rows * D;
    tiles.by_receiver(from, to, da, totals.data() + numbers * piece, by_receiver.data() + D * piece);
  });
  add_pieces(totals, numbers), add_pieces(by_sender, D), add_pieces(by_receiver, D);
  const A *r = (const A*)call.readout, *weight = (const A*)call.weight;
  for (int d = 0; d < D; ++d) {
    double total = by_sender[d] + by_receiver[d];
    for (int n = 0; call.dweight && n < R; ++n) {
      const A sum = totals[size_t(n) * map.wide_outputs + d];
      total += double(weight[size_t(d) * R + n]) * sum;
      ((A*)call.dweight)[size_t(d) * R + n] = r[d] * sum;
    }
    ((A*)call.dreadout)[d] = A(total);
  }
}

}  // namespace edgewise::EDGEWISE_ISA
