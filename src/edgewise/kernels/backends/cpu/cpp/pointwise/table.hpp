// What happens to every number of a tensor between two products of matrices: arguments, and what every build offers.
#pragma once

#include "arrays.hpp"

namespace edgewise {

enum Rectifier { OF_RELU = 0, OF_GELU = 1 };

// z [rows, columns], row by row. The gradient to σ(z), dh, is replaced by that to z; sums [columns] are its sums over all
// rows; and σ(z) is written to h once more where there is an h. Of ReLU, h itself may stand for z.
struct Activating {
  int threads = 1, kind = OF_RELU;
  int64_t rows = 0, columns = 0;
  const void* z = nullptr;
  void *h = nullptr, *dh = nullptr, *sums = nullptr;
};

enum Pool { TOTAL = 0, AVERAGE = 1, MOST = 2 };

// x [rows, columns], of which those of graph g begin at offsets[g]; y [graphs, columns], 0 for a graph without rows.
struct Pooling {
  int threads = 1, reduce = TOTAL;
  int64_t graphs = 0, columns = 0;
  const int64_t* offsets = nullptr;
  const void *x = nullptr, *dy = nullptr;
  void *y = nullptr, *dx = nullptr;
};

// Pairs of row first[p] of x [rows, columns] with row second[p] of z; out are their products, or the gradient to x.
struct Pairing {
  int threads = 1;
  int64_t pairs = 0, rows = 0, columns = 0;
  const int64_t *first = nullptr, *second = nullptr;
  const void *x = nullptr, *z = nullptr, *g = nullptr;
  void* out = nullptr;
};

struct PointwiseTable {
  void (*activate[DTYPES])(const Activating&);  // none for bfloat16
  void (*activate_gradient[DTYPES])(const Activating&);
  void (*pool[DTYPES])(const Pooling&);
  void (*pool_gradient[DTYPES])(const Pooling&);
  void (*pair_dots[DTYPES])(const Pairing&);
  void (*pair_spread[DTYPES])(const Pairing&);
  double (*dot[DTYPES])(int threads, int64_t count, const void* x, const void* y);
};

}  // namespace edgewise
