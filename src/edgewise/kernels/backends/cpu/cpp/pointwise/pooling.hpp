// What is made of the rows of each graph of a batch, which lie one after the other: sums, means or largest numbers.
#pragma once

#include <algorithm>

#include "parallel.hpp"
#include "pointwise/table.hpp"
#include "simd.hpp"

namespace edgewise::EDGEWISE_ISA {

// Calls visit(graph, first row, last row, c, lanes) for the vectors of columns of every graph.
template <class A, class Visit>
void over_pools(const Pooling& call, const Visit& visit) {
  over_items(call.threads, call.graphs, [&](int64_t g, int) {
    for (int64_t c = 0; c < call.columns; c += lanes<A>)
      visit(g, call.offsets[g], call.offsets[g + 1], c, int(std::min<int64_t>(lanes<A>, call.columns - c)));
  });
}

template <class A>
void pool(const Pooling& call) {
  const int64_t C = call.columns;
  over_pools<A>(call, [&](int64_t g, int64_t first, int64_t last, int64_t c, int some) {
    const A* x = (const A*)call.x + c;
    Vector<A> total{};
    if (call.reduce == MOST && last > first) total = load_some(x + first * C, some);
    for (int64_t n = first; n < last; ++n) {
      const Vector<A> row = load_some(x + n * C, some);
      if (call.reduce == MOST) total = (row > total) | (row != row) ? row : total;
      else total += row;
    }
    if (call.reduce == AVERAGE && last > first) total *= A(1) / A(last - first);
    store_some((A*)call.y + g * C + c, some, total);
  });
}

// The gradient to a largest number is shared equally by those that are as large.
template <class A>
void pool_gradient(const Pooling& call) {
  const int64_t C = call.columns;
  over_pools<A>(call, [&](int64_t g, int64_t first, int64_t last, int64_t c, int some) {
    Vector<A> dy = load_some((const A*)call.dy + g * C + c, some);
    A* dx = (A*)call.dx + c;
    if (call.reduce != MOST) {
      if (call.reduce == AVERAGE && last > first) dy *= A(1) / A(last - first);
      for (int64_t n = first; n < last; ++n) store_some(dx + n * C, some, dy);
      return;
    }
    const A* x = (const A*)call.x + c;
    const Vector<A> best = load_some((const A*)call.y + g * C + c, some), one = all(A(1));
    Vector<A> count{};
    for (int64_t n = first; n < last; ++n) count += load_some(x + n * C, some) == best ? one : Vector<A>{};
    dy = dy / (count > 0 ? count : one);
    for (int64_t n = first; n < last; ++n) store_some<A>(dx + n * C, some, load_some(x + n * C, some) == best ? dy : Vector<A>{});
  });
}

}  // namespace edgewise::EDGEWISE_ISA
