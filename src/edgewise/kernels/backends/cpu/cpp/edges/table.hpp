// Products and attention on edges: their arguments, and what every instruction-set build offers.
#pragma once

#include "arrays.hpp"

namespace edgewise {

enum Reduction { SUM = 0, MEAN = 1, MAX = 2, MIN = 3 };

// y_i = ⊕_j w_ij x_j; weights [batch or 1, E, weight_heads] or null.
struct Product {
  int threads = 1, reduce = SUM;
  int64_t batch = 1, senders = 0;
  int heads = 1, channels = 1, weight_heads = 1;
  Adjacency graph;
  const void* weight = nullptr;
  int64_t weight_batch_stride = 0;
  Matrix x, y, g;
  void* out = nullptr;  // of gradients
};

enum ScoreKind { DOT = 0, ADDITIVE = 1, GATED = 2, NONE = 3 };

struct Attention {
  int threads = 1, score = DOT;
  int64_t batch = 1, senders = 0;
  int heads = 1, channels = 1, values = 1;
  double scale = 1, slope = 0, dropout = 0;
  uint64_t seed = 0;
  Adjacency graph, transpose;  // transpose.edge[t]: which edge of `graph` it is
  const int32_t* transposed = nullptr;  // [E]: where edge e is in `transpose`
  Matrix q, k, v, y, dy, dq, dk, dv;    // dk may be dv, where k is v: then it is the sum of both gradients
  const void* a = nullptr;     // [heads, channels] of GATED
  const void* bias = nullptr;  // [batch or 1, E, heads]
  int64_t bias_batch_stride = 0;
  void* lse = nullptr;       // [batch, I, heads]: log Σ_j exp s_ij
  void* positive = nullptr;  // [batch, I, heads * (values + 1)] of ADDITIVE, over positive scores: Σ p_ij v_j, then Σ p_ij
  void* da = nullptr;        // [heads, channels]
  void* dbias = nullptr;     // [batch, E, heads]
};

struct EdgesTable {
  void (*product[DTYPES])(const Product&);
  void (*product_gradient[DTYPES])(const Product&);
  void (*extreme_share[DTYPES])(const Product&);
  void (*extreme_gradient[DTYPES])(const Product&);
  void (*extreme_weight_gradient[DTYPES])(const Product&);
  void (*attend[DTYPES])(const Attention&);
  void (*attend_gradient[DTYPES])(const Attention&);
  void (*drop[DTYPES])(int threads, uint64_t seed, double dropout, int64_t count, const void* x, void* y);
};

}  // namespace edgewise
