// Attention on ranges: its arguments, and what every instruction-set build offers.
#pragma once

#include "arrays.hpp"

namespace edgewise {

// y_i = Σ_j softmax_j(scale · q_i·k_j + b_ij) v_j over starts[i, r] <= j < stops[i, r]: ascending, disjoint intervals.
// With an order, number n among receivers and among senders is row order[n].
struct Tiling {
  int threads = 1;
  int64_t batch = 1;
  int heads = 1, channels = 1, values = 1;
  double scale = 1, dropout = 0;
  uint64_t seed = 0;
  int64_t receivers = 0, senders = 0, ranges = 1;
  const int64_t *starts = nullptr, *stops = nullptr;  // [receivers, ranges]
  const int64_t* order = nullptr;
  // b_ij = bias[b, h, places[i, r] + j], of `pairs` for each head. Its gradient [parts, H, pairs] is summed over each of
  // the parts, of about the same size, that the batch is cut in.
  const int64_t* places = nullptr;  // [receivers, ranges]
  int64_t pairs = 0, bias_batch_stride = 0, parts = 1;
  const void* bias = nullptr;
  void* dbias = nullptr;
  Matrix q, k, v, y, dy, dq, dk, dv;
  void* lse = nullptr;  // [batch, heads, receivers]: the log-sum-exp, in the base that the kernels use
};

struct TilesTable {
  int64_t (*pairs)(const Tiling&);  // inside the tiles, those included which are masked
  void (*attend_tiles[DTYPES])(const Tiling&);
  void (*attend_tiles_gradient[DTYPES])(const Tiling&);
};

}  // namespace edgewise
