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
  Adjacency graph, transpose;  // transpose.edge[t]: which edge of `graph` it is; read for db alone
  LinearMap map[MOST];
  const void *a = nullptr, *b = nullptr, *x = nullptr, *s = nullptr;  // [I, ·], [J, ·], [E, ·], [E]
  void *y = nullptr, *r = nullptr;
  const void *dy = nullptr, *dr = nullptr;
  void *da = nullptr, *db = nullptr, *dx = nullptr, *ds = nullptr;  // db is added to
};

// A path of a tensor product: by harmonics J, rows k² to (k + 1)² - 1 of a sender reach the rows out + r apart of the result.
// Its products of harmonics and rows are numbers `sums` and the following of all; its coefficients, of each r for each product,
// begin where it says.
struct CouplingPath {
  int32_t k, J, l, weight, out, apart, sums, coefficients;

  int products() const { return (2 * J + 1) * (2 * k + 1); }
};

// y_i,(out + r apart) = Σ_m,q C_r,m,q Σ_j Y_ij,(J² + m) R_ij,weight ∘ h_j,(k² + q) for every path and r = 0 .. 2 l, of h [J, rows,
// channels], R [E, weights, channels], Y [E, harmonic] and y [I, outputs, channels]. dsums [I, sums, channels] is room for the
// gradient to the sums over j. Null is what is not there, or not computed.
struct Coupled {
  int threads = 1, channels = 0, rows = 0, weights = 0, harmonic = 0, outputs = 0, sums = 0, paths = 0;
  Adjacency graph, transpose;
  const CouplingPath* path = nullptr;
  const void *coefficients = nullptr, *h = nullptr, *weight = nullptr, *harmonics = nullptr;
  void* y = nullptr;
  const void* dy = nullptr;
  void *dsums = nullptr, *dh = nullptr, *dweight = nullptr, *dharmonics = nullptr;
};

struct NetworkTable {
  void (*network[DTYPES])(const Network&);  // none for bfloat16
  void (*network_gradient[DTYPES])(const Network&);
  void (*couple[DTYPES])(const Coupled&);
  void (*couple_gradient[DTYPES])(const Coupled&);
};

}  // namespace edgewise
