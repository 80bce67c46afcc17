// Attention on ranges as dense tiles: a panel of receivers in the lanes of vectors, senders one after the other.
//
// Scores lie [sender][receiver], so that the softmax of a receiver runs along its lane, and keys and values are read
// number by number from where they are. Forward: an online softmax over tiles of senders. Backward: tile of senders by
// tile of senders, from the saved log-sum-exp; dk_j and dv_j are finished with their tile, dq_i is gathered in lanes.
#pragma once

#include <atomic>
#include <initializer_list>
#include <memory>
#include <vector>

#include "dropout.hpp"
#include "parallel.hpp"
#include "tiles/plan.hpp"
#include "matrix_products.hpp"

namespace edgewise::EDGEWISE_ISA {

constexpr int PANELS = 4;                 // panels that share a copy of keys and values

// Scores are held in the base whose power is cheapest: 2 for float, e for double.
template <class A>
constexpr double TO_BASE = 1;
template <>
inline constexpr double TO_BASE<float> = 1.44269504088896340736;

// 2^x for x <= 0, about 1 unit in the last place, and exactly 0 for x <= -127; NaN stays NaN, whatever its lower bits are.
EDGEWISE_INLINE Vector<float> power(Vector<float> x) {
  // 1.5 * 2^23: adding it rounds to a whole number; 127: the bits of a sum are then those of a power's exponent.
  const Vector<float> magic = all(12582912.0f + 127), low = all(-127.0f);
  x = low > x ? low : x;
  const Vector<float> shifted = x + magic, r = x - (shifted - magic);
  Vector<float> p = r * 1.535336188319500e-4f + 1.339887440266574e-3f;
  p = p * r + 9.618437357674640e-3f;
  p = p * r + 5.550332471162809e-2f;
  p = p * r + 2.402264791363012e-1f;
  p = p * r + 6.931472028550421e-1f;
  p = p * r + 1.0f;
  return p * (Vector<float>)((Bits<float>)shifted << 23);
}
EDGEWISE_INLINE Vector<double> power(Vector<double> x) { return exponential(x); }

template <class S>
struct Tiles {
  using A = Sum<S>;
  static constexpr int W = lanes<A>;
  static constexpr A LOWEST = std::numeric_limits<A>::lowest(), INFINITE = std::numeric_limits<A>::infinity();

  struct Rows {
    const A* x;
    int64_t stride;
  };

  const Tiling& call;
  const Plan& plan;
  const int C, D, C_whole, D_whole, most;  // channels and values, the same in whole vectors, senders in a tile at most
  const Dropout dropout;
  const A keep;
  Numbers<A> room;
  std::vector<uint8_t> ready;
  A* dbias = nullptr;   // of one part of the batch
  bool adding = false;  // to what its members before have left there

  Tiles(const Tiling& call, const Plan& plan)
      : call(call), plan(plan), C(call.channels), D(call.values), C_whole((C + W - 1) / W * W),
        D_whole((D + W - 1) / W * W), most(forward_step(call)), dropout(call.dropout, call.seed),
        keep(A(1 / (1 - call.dropout))) {}

  // Senders in a tile, so that all that is read and written of it stays in the first cache; never more than `most`.
  static int forward_step(const Tiling& call) { return std::max(call.channels, call.values) <= 64 ? 64 : 32; }
  static int backward_step(const Tiling& call) { return std::max(call.channels, call.values) <= 16 ? 64 : 32; }

  A* take(A*& from, int64_t count) const {
    A* taken = from;
    from += (count + 15) / 16 * 16;
    return taken;
  }
  A* start(int64_t count) {
    if (int64_t(room.size()) < count) room.resize(count);
    return (A*)((uintptr_t(room.data()) + 63) / 64 * 64);
  }

  S* row(const Matrix& x, int64_t b, int64_t n, int64_t from) const {
    return (S*)x.data + b * x.batch_stride + (call.order ? call.order[n] : n) * x.row_stride + from;
  }
  auto rows(const Matrix& x, int64_t b, int64_t n, int64_t from) const {
    return [this, &x, b, n, from](int i) { return row(x, b, n + i, from); };
  }

  // Rows in the dtype of sums, in whole vectors: where they lie already, or copied to `room`.
  Rows read(const Matrix& x, int64_t b, int64_t n, int64_t count, int64_t from, int width, bool in_place, A* room) const {
    const int whole = (width + W - 1) / W * W;
    if constexpr (std::is_same_v<S, A>)
      if (in_place && !call.order) return {row(x, b, n, from), x.row_stride};
    for (int64_t i = 0; i < count; ++i) {
      const S* in = row(x, b, n + i, from);
      A* out = room + i * whole;
      int c = 0;
      for (; c + W <= width; c += W) store(out + c, load(in + c));
      for (; c < width; ++c) out[c] = number(in[c]);
      for (; c < whole; ++c) out[c] = 0;
    }
    return {room, whole};
  }

  // Prefetches what a small tile will read, as it is too short for the machine to see where the rows lead.
  void prefetch_tile(int64_t b, int h, PanelRange tile) const {
    const Panel &first = plan.panels[tile.first], &last = plan.panels[tile.last - 1];
    const Span& span = plan.span(tile.first, 0);
    for (int64_t i = first.row; i < last.row + last.count; ++i) {
      prefetch(row(call.q, b, i, h * C), C * sizeof(S));
      for (int d = 0; d < D; d += 64 / int(sizeof(S))) __builtin_prefetch(row(call.y, b, i, h * D + d), 1);
    }
    for (int64_t j = span.first; j < std::min(span.last, span.first + most); ++j) {
      prefetch(row(call.k, b, j, h * C), C * sizeof(S));
      prefetch(row(call.v, b, j, h * D), D * sizeof(S));
    }
  }

  // The senders among first .. last - 1 that every receiver of a panel has an edge to.
  std::pair<int64_t, int64_t> unmasked(const Panel& panel, int64_t r, int64_t first, int64_t last) const {
    const Span& span = plan.span(&panel - plan.panels.data(), r);
    const int64_t whole = std::clamp(span.inner_first, first, last);
    return {whole, std::max(whole, std::clamp(span.inner_last, first, last))};
  }

  // Scores of pairs outside the graph become -inf.
  template <int N>
  void mask(A* s, const Panel& panel, int64_t r, int64_t first, int64_t last) const {
    const auto [whole, rest] = unmasked(panel, r, first, last);
    if (whole == first && rest == last) return;
    alignas(64) A starts[N * W], stops[N * W];  // as numbers: whole ones below 2^24 are exact, others are cut to the span
    for (int i = 0; i < N * W; ++i) {
      const int64_t at = (panel.row + std::min(i, panel.count - 1)) * call.ranges + r;
      starts[i] = A(std::clamp(call.starts[at], first, last) - first);
      stops[i] = A(std::clamp(call.stops[at], first, last) - first);
    }
    for (int64_t j = first; j < last; j = j + 1 == whole ? rest : j + 1)
      for (int n = 0; n < N; ++n) {
        const Vector<A> at = all(A(j - first));
        A* of = s + (j - first) * N * W + n * W;
        const Whole<A> reached = (at >= load(starts + n * W)) & (at < load(stops + n * W));
        store(of, choose<A>(reached, load(of), all(-INFINITE)));
      }
  }

  // Adds the bias to scores, or writes the gradient of the scores where the bias lies. Pairs outside are left alone.
  template <int N, bool GRADIENT>
  void with_bias(int64_t b, int h, const Panel& panel, int64_t r, int64_t first, int64_t last, A* s) const {
    const Span& span = plan.span(&panel - plan.panels.data(), r);
    // Where all receivers have an edge, whole squares are turned at once.
    const int64_t inner = std::clamp(span.inner_first, first, last), inner_last = std::clamp(span.inner_last, inner, last);
    const int64_t rest = inner + (inner_last - inner) / W * W;
    for (int n = 0; n < N; ++n) {
      A* of[W];
      int64_t from[W], to[W];
      for (int i = 0; i < W; ++i) {
        const int lane = n * W + i;
        const int64_t at = (panel.row + std::min(lane, panel.count - 1)) * call.ranges + r;
        A* head = (GRADIENT ? dbias : (A*)call.bias + b * call.bias_batch_stride) + h * call.pairs;
        of[i] = head + call.places[at];
        from[i] = std::clamp(call.starts[at], first, last), to[i] = std::clamp(call.stops[at], from[i], last);
        if (lane >= panel.count) to[i] = GRADIENT ? from[i] : to[i];  // a lane beyond repeats the last receiver
      }
      for (int64_t j = inner; j < rest; j += W) {
        Vector<A> square[W];
        A* at = s + ((j - first) * N + n) * W;
        if constexpr (GRADIENT) {
#pragma GCC unroll 16
          for (int i = 0; i < W; ++i) square[i] = load(at + i * N * W);
          transpose<A>(square);
          for (int i = 0; i < std::min(W, panel.count - n * W); ++i)
            store(of[i] + j, adding ? load(of[i] + j) + square[i] : square[i]);
        } else {
#pragma GCC unroll 16
          for (int i = 0; i < W; ++i) square[i] = load(of[i] + j);
          transpose<A>(square);
#pragma GCC unroll 16
          for (int i = 0; i < W; ++i) store(at + i * N * W, load(at + i * N * W) + square[i] * A(TO_BASE<A>));
        }
      }
      for (int i = 0; i < W; ++i) {
        const auto one = [&](int64_t j) {
          A& at = s[((j - first) * N + n) * W + i];
          if constexpr (GRADIENT) of[i][j] = adding ? of[i][j] + at : at;
          else at += of[i][j] * A(TO_BASE<A>);
        };
        for (int64_t j = from[i]; j < std::min(to[i], inner); ++j) one(j);
        for (int64_t j = std::max(from[i], rest); j < to[i]; ++j) one(j);
      }
    }
  }

  // By what the weights of a panel's receivers for sender j are multiplied: `keep` or 0, hashed from both their numbers.
  template <int N>
  struct Survival {
    const Tiles& of;
    uint32_t key[N * W];

    Survival(const Tiles& of, int64_t b, int h, const Panel& panel) : of(of) {
      for (int i = 0; i < N * W; ++i) {
        const uint64_t row = uint64_t((b * of.call.heads + h) * of.call.receivers + panel.row + i);
        key[i] = of.dropout.hash(uint32_t(row), of.dropout.upper(row));
      }
    }
    Vector<A> operator()(int64_t j, int n) const {
      const uint32_t sender = of.dropout.first(uint32_t(j));
      if constexpr (sizeof(A) == sizeof(uint32_t)) {
        Bits<A> x;
        std::memcpy(&x, key + n * W, sizeof x);
        return choose<A>((Whole<A>)(Dropout::second(x ^ sender) >= of.dropout.threshold), all(of.keep), Vector<A>{});
      } else {
        Vector<A> factors{};
        for (int i = 0; i < W; ++i)
          if (Dropout::second(key[n * W + i] ^ sender) >= of.dropout.threshold) factors[i] = of.keep;
        return factors;
      }
    }
  };

  struct Softmax {
    A *q, *y, *top, *total;  // of a panel: [C, lanes], [D, lanes], [lanes], [lanes]
  };

  template <int N>
  void begin(int64_t b, int h, const Panel& panel, const Softmax& of) const;
  template <int N>
  void attend(int64_t b, int h, const Panel& panel, int64_t r, int64_t first, int64_t last, Rows k, Rows v,
              const Softmax& of, A* s) const;
  template <int N>
  void finish(int64_t b, int h, const Panel& panel, const Softmax& of) const;
  void forward(int64_t b, int h, PanelRange tile);

  struct Gradient {
    A *q, *dy, *dq, *lse, *delta;  // of a panel: [C, lanes], [D, lanes], [C, lanes], [lanes], [lanes]
  };

  int64_t gradient_room() const { return 2 * W * (2 * C + D + 2) + 64; }
  int64_t partial_room() const { return 2 * W * C; }

  template <int N>
  void prepare(int64_t b, int h, const Panel& panel, const Gradient& of) const;
  template <int N>
  void add_gradients(int64_t b, int h, const Panel& panel, int64_t r, int64_t first, int64_t last, Rows k, Rows v,
               const Gradient& of, A* s, A* ds, A* dk, A* dv, A* q_room, A* dy_room) const;
  void write(const A* x, int whole, int64_t count, int width, A factor, const Matrix& out, int64_t b, int64_t n,
             int64_t from) const;
  void write_dq(int64_t b, int h, const Panel& panel, const A* dq) const;
  void backward(int64_t b, int h, const Piece& piece, const std::vector<SenderTile>& tiles, A* partials);
};

// Calls run(tiles, n) for n = 0 .. count - 1, with one `Tiles` for each thread.
template <class S, class Run>
void with_tiles(const Tiling& call, const Plan& plan, int64_t count, const Run& run) {
  std::vector<std::unique_ptr<Tiles<S>>> own(std::max(1, call.threads));
  over_items(call.threads, count, [&](int64_t n, int thread) {
    if (!own[thread]) own[thread] = std::make_unique<Tiles<S>>(call, plan);
    run(*own[thread], n);
  });
}

struct Given {
  const Matrix& x;
  int64_t rows;
  int channels;
};

// Whether all numbers of some tensors are finite. Where one is not, 0 times it, of a pair in a tile that is no edge, would be NaN:
// each receiver is then taken alone, with its own senders.
template <class S>
bool are_finite(const Tiling& call, std::initializer_list<Given> tensors) {
  using A = Sum<S>;
  std::atomic<bool> finite{true};
  for (const Given& one : tensors)
    over_items(call.threads, call.batch * ((one.rows + 255) / 256), [&](int64_t item, int) {
      const int64_t first = item / call.batch * 256, last = std::min(first + 256, one.rows), width = int64_t(call.heads) * one.channels;
      Vector<A> sum{};
      for (int64_t i = first; i < last; ++i) {
        const S* const x = (const S*)one.x.data + item % call.batch * one.x.batch_stride + i * one.x.row_stride;
        for (int64_t c = 0; c < width; c += lanes<A>) {
          const Vector<A> numbers = load_part(x + c, int(std::min<int64_t>(width - c, lanes<A>)));
          sum += numbers - numbers;  // 0, or NaN
        }
      }
      if (!(sum_across<A>(sum) == 0)) finite = false;
    });
  return finite;
}

// Of tiles as the backward pass cuts them, which costs the same where a panel meets a tile's last senders alone.
inline int64_t pairs_in_tiles(const Tiling& call) {
  constexpr int64_t step = 32;
  const Plan plan(call, lanes<float>, PANELS);
  int64_t work = 0;
  for (const Group& group : plan.groups)
    for (int64_t n = group.first_panel; n < group.last_panel; ++n) {
      work += plan.work(n);
      for (int64_t r = 0; r < call.ranges; ++r) {
        const Span& span = plan.span(n, r);
        if (span.empty()) continue;
        const int64_t first = span.first - group.first_sender, last = span.last - group.first_sender;
        const int64_t cut = std::min((last + step - 1) / step * step, group.last_sender - group.first_sender);
        work += (first % step + cut - last) * plan.panels[n].vectors;
      }
    }
  return work * lanes<float>;
}

}  // namespace edgewise::EDGEWISE_ISA
