// Attention on ranges: its arguments, and what every instruction-set build offers.
#pragma once

#include "table.hpp"

namespace edgewise {

// y_i = Σ_j softmax_j(scale · q_i·k_j) v_j over starts[i, r] <= j < stops[i, r]: ascending, disjoint intervals.
struct Tiling {
  int threads = 1;
  int64_t batch = 1;
  int heads = 1, channels = 1, values = 1;
  double scale = 1;
  int64_t receivers = 0, senders = 0, ranges = 1;
  const int64_t *starts = nullptr, *stops = nullptr;  // [receivers, ranges]
  Matrix q, k, v, y, dy, dq, dk, dv;
  void* lse = nullptr;  // [batch, heads, receivers]: the log-sum-exp, in the base that the kernels use
};

struct TilesTable {
  const char* name;
  int64_t (*pairs)(const Tiling&);  // inside the tiles, those included which are masked
  void (*attend[DTYPES])(const Tiling&);
  void (*attend_gradient[DTYPES])(const Tiling&);
};

}  // namespace edgewise
