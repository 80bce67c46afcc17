// A network on every edge: its arguments, and what every instruction-set build offers.
#pragma once

#include "arrays.hpp"

namespace edgewise {

enum Activation { RELU = 0, SILU = 1, SHIFTED_SOFTPLUS = 2, SIGMOID = 3 };

struct LinearMap {
  int inputs = 0, outputs = 0;
  const void *weight = nullptr, *bias = nullptr;  // [outputs, inputs], [outputs] or null
  void *dweight = nullptr, *dbias = nullptr;
};

// z_0 = a_i + b_j + W_0 x_ij + c_0,  u_l = σ(z_{l-1}),  z_l = W_l u_l + c_l for l = 1 .. maps;
// y_i = Σ_j u_collected and r_ij = s_ij z_maps. Null is what is not there, or not computed. Where there is a reach, x is a
// distance d [E] and what W_0 reads are its bells exp(-((d - k reach / (K - 1)) (K - 1) / reach)² / 2) for k = 0 .. K - 1.
struct Network {
  static constexpr int MOST = 8;
  int threads = 1, activation = RELU, maps = 0, collected = 0;
  double reach = 0;
  Adjacency graph;
  LinearMap map[MOST];
  const void *a = nullptr, *b = nullptr, *x = nullptr, *s = nullptr;  // [I, ·], [J, ·], [E, ·], [E]
  void *y = nullptr, *r = nullptr;
  const void *dy = nullptr, *dr = nullptr;
  void *da = nullptr, *dx = nullptr, *ds = nullptr;
  void* dz = nullptr;  // [E, ·] the gradient to z_0, and thus to b_j along each edge
};

struct NetworkTable {
  void (*network[DTYPES])(const Network&);  // none for bfloat16
  void (*network_gradient[DTYPES])(const Network&);
};

}  // namespace edgewise
