// A perceptron with batch normalisation after its first map, of rows or of their sums over a graph: passes over pieces of rows,
// in which what lies between sum and maps stays in a core's own cache. Pieces do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "edges/product.hpp"
#include "matrix_products.hpp"
#include "memory.hpp"
#include "network/table.hpp"
#include "parallel.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class A>
class NormalisedPerceptron {
  static constexpr int W = lanes<A>;
  static constexpr int64_t TILE = 64, PIECE = 512;  // rows at once between two maps; that a thread takes, with sums of its own

  // Numbers for each channel, in whole vectors.
  struct Channels {
    std::unique_ptr<A[], Freed> room;
    explicit Channels(int64_t count) : room(scratch<A>(size_t(count))) { std::fill_n(room.get(), count, A(0)); }
    A* data() const { return room.get(); }
  };

  const Perceptron& call;
  const int64_t D, K, C, Dp, Kp, Cp, pieces;
  Channels scale, shift;
  A *const z, *const mean, *const inverse;

  static int64_t padded(int64_t count) { return (count + W - 1) / W * W; }

  // Every row of a matrix [rows, columns] as whole vectors, the rest zeros; or its transpose.
  static Channels panel(const void* given, int64_t rows, int64_t columns, bool transposed) {
    const A* from = (const A*)given;
    const int64_t width = padded(transposed ? rows : columns);
    Channels to(width * (transposed ? columns : rows));
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t n = 0; n < columns; ++n) to.data()[transposed ? n * width + m : m * width + n] = from[m * columns + n];
    return to;
  }

  static Channels row(const void* given, int64_t count) {
    return given ? panel(given, 1, count, false) : Channels(padded(count));
  }

  // Rows of `columns` numbers, in place where they are whole vectors already; else by way of `room`.
  static A* tile_of(A* out, A* room, int64_t columns) { return columns % W ? room : out; }
  static void finish(const A* tile, A* out, int64_t rows, int64_t columns) {
    if (tile != out)
      for (int64_t m = 0; m < rows; ++m) std::copy_n(tile + m * padded(columns), columns, out + m * columns);
  }
  static const A* whole_rows(const A* x, A* room, int64_t rows, int64_t columns) {
    if (columns % W == 0) return x;
    std::fill_n(room, rows * padded(columns), A(0));
    for (int64_t m = 0; m < rows; ++m) std::copy_n(x + m * columns, columns, room + m * padded(columns));
    return room;
  }

  // sums [M, columns] += xᵀ y for rows x [rows, M] and y [rows, columns].
  static void add_across(const A* x, int64_t M, const A* y, int64_t rows, A* sums, int64_t columns, int64_t stride) {
    int64_t c = 0;
    for (; c + 2 * W <= columns; c += 2 * W)
      multiply<A, 2, Start::AFTER, true>(x, stride, M, y + c, columns, rows, sums + c, columns);
    if (c < columns) multiply<A, 1, Start::AFTER, true>(x, stride, M, y + c, columns, rows, sums + c, columns);
  }

  // Calls tile(first row, rows, piece) for the tiles of each piece.
  template <class Tile>
  void over_tiles(const Tile& tile) const {
    over_items(call.threads, pieces, [&](int64_t piece, int) {
      const int64_t last = std::min(call.rows, (piece + 1) * PIECE);
      for (int64_t first = piece * PIECE; first < last; first += TILE) tile(first, std::min(TILE, last - first), piece);
    });
  }

  // What normalises some channels, held in registers over rows.
  struct Normal {
    const A* z;
    const int64_t stride;
    const Vector<A> mean, inverse, scale, shift;

    EDGEWISE_INLINE Vector<A> centred(int64_t m) const { return (load(z + m * stride) - mean) * inverse; }
    EDGEWISE_INLINE Vector<A> of(Vector<A> u) const { return u * scale + shift; }
  };
  EDGEWISE_INLINE Normal normal(int64_t c) const {
    return {z + c, Kp, load(mean + c), load(inverse + c), load(scale.data() + c), load(shift.data() + c)};
  }
  static EDGEWISE_INLINE Vector<A> rectified(Vector<A> n) { return n < 0 ? Vector<A>{} : n; }  // NaN stays one

  template <class Of>
  static std::vector<double> total(const Channels& parts, int64_t pieces, int64_t stride, int64_t count, const Of& of) {
    std::vector<double> sums(size_t(count), 0.0);
    for (int64_t piece = 0; piece < pieces; ++piece)
      for (int64_t n = 0; n < count; ++n) sums[size_t(n)] += of(piece, n, double(parts.data()[piece * stride + n]));
    return sums;
  }
  static std::vector<double> total(const Channels& parts, int64_t pieces, int64_t stride, int64_t count) {
    return total(parts, pieces, stride, count, [](int64_t, int64_t, double value) { return value; });
  }

  // own x_i + Σ_j x_j along the graph.
  Product summing(const void* x, void* y) const {
    Product sum;
    sum.threads = call.threads, sum.channels = call.inputs, sum.own = call.own, sum.graph = call.graph;
    sum.x = {const_cast<void*>(x), 0, call.inputs}, sum.y = {y, 0, call.inputs};
    return sum;
  }

  // The sums of pieces [rows, padded columns] into [rows, columns].
  static void put_total(const Channels& parts, int64_t pieces, int64_t rows, int64_t columns, void* out) {
    if (!out) return;
    const int64_t width = padded(columns);
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t c = 0; c < columns; ++c) {
        A sum = 0;
        for (int64_t piece = 0; piece < pieces; ++piece) sum += parts.data()[(piece * rows + m) * width + c];
        ((A*)out)[m * columns + c] = sum;
      }
  }

 public:
  explicit NormalisedPerceptron(const Perceptron& call)
      : call(call), D(call.inputs), K(call.hidden), C(call.outputs), Dp(padded(D)), Kp(padded(K)), Cp(padded(C)),
        pieces((call.rows + PIECE - 1) / PIECE), scale(row(call.scale, K)), shift(row(call.shift, K)),
        z((A*)call.z), mean((A*)call.mean), inverse((A*)call.inverse) {}

  void forward() {
    const Channels up = panel(call.up, K, D, true), bias = row(call.up_bias, K), sums(pieces * Kp), squares(pieces * Kp);
    const Product summed = summing(call.x, call.s);
    const Summing<A> neighbours(summed);
    const A* const read = (const A*)(call.s ? call.s : call.x);
    over_items(call.threads, pieces, [&](int64_t piece, int) {
      const int64_t first = piece * PIECE, rows = std::min(PIECE, call.rows - first);
      A *own = z + first * Kp, *sum = sums.data() + piece * Kp, *square = squares.data() + piece * Kp;
      for (int64_t tile = first; tile < first + rows; tile += TILE) {
        const int64_t last = std::min(tile + TILE, first + rows);
        if (call.s) neighbours.run_rows(0, tile, last);
        add_product<A>(read + tile * D, D, last - tile, up.data(), Kp, D, z + tile * Kp, Kp, bias.data());
        for (int64_t c = 0; c < Kp; c += W) {
          Vector<A> total = load(sum + c);
          for (int64_t m = tile; m < last; ++m) total += load(z + m * Kp + c);
          store<A>(sum + c, total);
        }
      }
      for (int64_t c = 0; c < Kp; c += W) {  // around the mean of the piece, so that no large numbers cancel
        const Vector<A> centre = load(sum + c) / A(rows);
        Vector<A> apart{};
        for (int64_t m = 0; m < rows; ++m) {
          const Vector<A> u = load(own + m * Kp + c) - centre;
          apart += u * u;
        }
        store(square + c, apart);
      }
    });
    const auto rows_of = [&](int64_t piece) { return double(std::min(PIECE, call.rows - piece * PIECE)); };
    const std::vector<double> sum = total(sums, pieces, Kp, Kp), within = total(squares, pieces, Kp, Kp);
    const std::vector<double> between = total(sums, pieces, Kp, Kp, [&](int64_t piece, int64_t c, double value) {
      const double apart = value / rows_of(piece) - sum[size_t(c)] / double(call.rows);
      return rows_of(piece) * apart * apart;
    });
    for (int64_t c = 0; c < Kp; ++c) {
      const double centre = sum[size_t(c)] / double(call.rows), squared = within[size_t(c)] + between[size_t(c)];
      mean[c] = A(centre), inverse[c] = A(1 / std::sqrt(squared / double(call.rows) + call.eps));
      if (c < K && call.running_mean) {
        A &m = ((A*)call.running_mean)[c], &v = ((A*)call.running_variance)[c];
        m = A(m + call.momentum * (centre - m)), v = A(v + call.momentum * (squared / double(call.rows - 1) - v));
      }
    }
    const Channels down = panel(call.down, C, K, true), last = row(call.down_bias, C);
    over_tiles([&](int64_t first, int64_t rows, int64_t) {
      thread_local Numbers<A> h, room;
      h.resize(size_t(TILE * Kp)), room.resize(size_t(TILE * Cp));
      for (int64_t c = 0; c < Kp; c += W) {
        const Normal n = normal(c);
        for (int64_t m = 0; m < rows; ++m) store<A>(&h[size_t(m * Kp + c)], rectified(n.of(n.centred(first + m))));
      }
      A *y = (A*)call.y + first * C, *tile = tile_of(y, room.data(), C);
      add_product<A>(h.data(), Kp, rows, down.data(), Cp, K, tile, Cp, last.data());
      finish(tile, y, rows, C);
    });
  }

  void backward() {
    const auto room_of_g = scratch<A>(size_t(call.rows * Kp));
    A* const g = room_of_g.get();
    const Channels ddown(pieces * C * Kp), ddown_bias(pieces * Cp), dscale(pieces * Kp), dshift(pieces * Kp);
    const Channels down = panel(call.down, C, K, false), none(Kp);
    over_tiles([&](int64_t first, int64_t rows, int64_t piece) {
      thread_local Numbers<A> h;
      h.resize(size_t(TILE * Kp));
      const A* dy = (const A*)call.dy + first * C;
      A *own = g + first * Kp, *by_scale = dscale.data() + piece * Kp, *by_shift = dshift.data() + piece * Kp;
      add_product<A>(dy, C, rows, down.data(), Kp, C, own, Kp, none.data());
      for (int64_t c = 0; c < Kp; c += W) {
        const Normal norm = normal(c);
        Vector<A> scaled{}, shifted{};
        for (int64_t m = 0; m < rows; ++m) {
          const Vector<A> u = norm.centred(first + m), n = norm.of(u);
          const Vector<A> slope = n > 0 ? load(own + m * Kp + c) : Vector<A>{};
          store<A>(&h[size_t(m * Kp + c)], rectified(n));
          store(own + m * Kp + c, slope);
          shifted += slope, scaled += slope * u;
        }
        store<A>(by_scale + c, load(by_scale + c) + scaled), store<A>(by_shift + c, load(by_shift + c) + shifted);
      }
      if (call.ddown) add_across(dy, C, h.data(), rows, ddown.data() + piece * C * Kp, Kp, C);
      if (call.ddown_bias)
        for (int64_t m = 0; m < rows; ++m)
          for (int64_t c = 0; c < C; ++c) ddown_bias.data()[piece * Cp + c] += dy[m * C + c];
    });
    put_total(ddown, pieces, C, K, call.ddown), put_total(ddown_bias, pieces, 1, C, call.ddown_bias);
    put_total(dscale, pieces, 1, K, call.dscale), put_total(dshift, pieces, 1, K, call.dshift);
    A* const ds = (A*)(call.s ? call.s : call.dx);  // to what the first map reads
    if (!ds && !call.dup && !call.dup_bias) return;

    Channels of_scale(Kp), of_shift(Kp);
    const std::vector<double> by_scale = total(dscale, pieces, Kp, Kp), by_shift = total(dshift, pieces, Kp, Kp);
    for (int64_t c = 0; c < Kp; ++c) {
      of_scale.data()[c] = A(by_scale[size_t(c)] / double(call.rows));
      of_shift.data()[c] = A(by_shift[size_t(c)] / double(call.rows));
    }
    const Channels dup(pieces * K * Dp), dup_bias(pieces * Kp), up = panel(call.up, K, D, false), nothing(Dp);
    over_tiles([&](int64_t first, int64_t rows, int64_t piece) {
      thread_local Numbers<A> room, whole;
      room.resize(size_t(TILE * Dp)), whole.resize(size_t(TILE * Dp));
      A *dz = g + first * Kp, *by_bias = dup_bias.data() + piece * Kp;
      for (int64_t c = 0; c < Kp; c += W) {
        const Normal norm = normal(c);
        const Vector<A> factor = norm.scale * norm.inverse;
        const Vector<A> scaled = load(of_scale.data() + c), shifted = load(of_shift.data() + c);
        Vector<A> sum{};
        for (int64_t m = 0; m < rows; ++m) {
          const Vector<A> one = factor * (load(dz + m * Kp + c) - shifted - norm.centred(first + m) * scaled);
          store(dz + m * Kp + c, one);
          sum += one;
        }
        store<A>(by_bias + c, load(by_bias + c) + sum);
      }
      if (call.dup) {
        const A* x = whole_rows((const A*)call.x + first * D, whole.data(), rows, D);
        add_across(dz, K, x, rows, dup.data() + piece * K * Dp, Dp, Kp);
      }
      if (ds) {
        A *own = ds + first * D, *tile = tile_of(own, room.data(), D);
        add_product<A>(dz, Kp, rows, up.data(), Dp, K, tile, Dp, nothing.data());
        finish(tile, own, rows, D);
      }
    });
    if (call.s && call.dx) product<A>(summing(call.s, call.dx));
    put_total(dup, pieces, K, D, call.dup), put_total(dup_bias, pieces, 1, K, call.dup_bias);
  }
};

template <class A>
void perceptron(const Perceptron& call) {
  NormalisedPerceptron<A>(call).forward();
}

template <class A>
void perceptron_gradient(const Perceptron& call) {
  NormalisedPerceptron<A>(call).backward();
}

}  // namespace edgewise::EDGEWISE_ISA
