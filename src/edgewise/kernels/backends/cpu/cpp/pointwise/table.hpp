// What happens to every number of a tensor between two products of matrices: arguments, and what every build offers.
#pragma once

#include "arrays.hpp"

namespace edgewise {

// Pairs of row first[p] of x [rows, columns] with row second[p] of z; out are their products, or the gradient to x.
struct Pairing {
  int threads = 1;
  int64_t pairs = 0, rows = 0, columns = 0;
  const int64_t *first = nullptr, *second = nullptr;
  const void *x = nullptr, *z = nullptr, *g = nullptr;
  void* out = nullptr;
};

struct PointwiseTable {
  void (*pair_dots[DTYPES])(const Pairing&);
  void (*pair_spread[DTYPES])(const Pairing&);
};

}  // namespace edgewise
