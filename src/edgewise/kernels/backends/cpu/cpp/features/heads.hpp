// Rows of several heads, each by a matrix of its own, in the order that rows have: no head is moved next to its like.
#pragma once

#include <vector>

#include "features/table.hpp"
#include "matrix_products.hpp"
#include "memory.hpp"
#include "parallel.hpp"

namespace edgewise::EDGEWISE_ISA {

// Some rows at a time, the same at any number of threads.
template <class A>
struct ByHead {
  static constexpr int W = lanes<A>;
  const Heads& call;
  const int H, C, R, wide;
  const int64_t each = std::max<int64_t>(256, call.rows / 256), parts = (call.rows + each - 1) / each;

  explicit ByHead(const Heads& call)
      : call(call), H(call.heads), C(call.inputs), R(call.outputs), wide((R + W - 1) / W * W) {}

  // Calls part(n, first, count) for the rows.
  template <class Part>
  void over_rows(const Part& part) const {
    over_items(call.threads, parts, [&](int64_t n, int) { part(n, n * each, std::min(each, call.rows - n * each)); });
  }

  const A* x(int64_t row) const { return (const A*)call.x + row * H * C; }
  A* y(int64_t row) const { return (A*)call.y + row * H * R; }

  // y_h = x_h W_h.
  void product() const {
    std::vector<A> weight(size_t(H) * C * wide);  // its rows are whole vectors
    for (int64_t n = 0; n < int64_t(H) * C; ++n) std::memcpy(weight.data() + n * wide, (const A*)call.weight + n * R, R * sizeof(A));
    over_rows([&](int64_t, int64_t first, int64_t count) {
      std::vector<A> room(R % W ? size_t(count) * W : 0);
      for (int h = 0; h < H; ++h)
        for (int c = 0; c < R; c += W) {
          const bool whole = c + W <= R;
          A* const out = y(first) + h * R + c;
          multiply<A, 1, Start::ZERO, false>(x(first) + h * C, int64_t(H) * C, count, weight.data() + size_t(h) * C * wide + c, wide, C,
                                             whole ? out : room.data(), whole ? int64_t(H) * R : W);
          for (int64_t n = 0; !whole && n < count; ++n) std::memcpy(out + n * H * R, room.data() + n * W, (R - c) * sizeof(A));
        }
    });
  }

  // W_h = Σ x_hᵀ y_h over the rows.
  void gradient() const {
    const size_t numbers = size_t(H) * C * wide;
    std::vector<A> totals(numbers * parts);
    over_rows([&](int64_t part, int64_t first, int64_t count) {
      std::vector<A> room(R % W ? size_t(count) * W : 0);
      for (int h = 0; h < H; ++h)
        for (int c = 0; c < R; c += W) {
          const bool whole = c + W <= R;
          const A* const from = y(first) + h * R + c;
          for (int64_t n = 0; !whole && n < count; ++n) std::memcpy(room.data() + n * W, from + n * H * R, (R - c) * sizeof(A));
          multiply<A, 1, Start::ZERO, true>(x(first) + h * C, int64_t(H) * C, C, whole ? from : room.data(), whole ? int64_t(H) * R : W,
                                            count, totals.data() + numbers * part + size_t(h) * C * wide + c, wide);
        }
    });
    for (int64_t n = 0; n < int64_t(H) * C; ++n)
      for (int c = 0; c < R; ++c) {
        double total = 0;
        for (int64_t part = 0; part < parts; ++part) total += totals[numbers * part + n * wide + c];
        ((A*)call.weight)[n * R + c] = A(total);
      }
  }
};

template <class A>
void by_heads(const Heads& call) {
  expect_writes(call.y, call.rows * call.heads * call.outputs * sizeof(A));
  ByHead<A>(call).product();
}

template <class A>
void by_heads_gradient(const Heads& call) {
  ByHead<A>(call).gradient();
}

}  // namespace edgewise::EDGEWISE_ISA
