// What is made of features of edges: products with their receivers' vectors, weights, and activations of what both ends and
// the edge add up to. Arguments, and what every instruction-set build offers.
#pragma once

#include "arrays.hpp"
#include "network/table.hpp"

namespace edgewise {

// Between vectors of receivers u [batch, I, heads, channels], numbers of edges w [batch, E, heads] and vectors of edges
// x [batch or 1, E, vectors, channels], where vectors is the number of heads, or 1: all heads share one. Products also take
// vectors of senders, rows of x that the graph's index names; else only its offsets are read.
struct Vectors {
  int threads = 1;
  int64_t batch = 1;
  int heads = 1, vectors = 1, channels = 1;
  Adjacency graph;
  const void *u = nullptr, *w = nullptr, *x = nullptr;
  int64_t x_batch_stride = 0, x_row_stride = 0;
  void* out = nullptr;

  int64_t work() const { return int64_t(heads) * channels; }  // for each edge, in multiplications
};

// Of s [batch, E, heads], receiver by receiver: p = softmax(s); or from p and dp the gradient ds.
struct Softmax {
  int threads = 1;
  int64_t batch = 1;
  int heads = 1;
  Adjacency graph;
  const void *s = nullptr, *dp = nullptr;
  void* out = nullptr;
};

// s_ij = LeakyReLU(a_i + b_j + x_ij) of every head; or from ds those to x [batch, E, heads], which is what each edge adds to the
// one to b, and to a. a [batch, I, heads], b [batch, senders, heads], x [batch or 1, E, heads] or null.
struct Ends {
  int threads = 1;
  int64_t batch = 1, senders = 0;
  int heads = 1;
  double slope = 0;
  Adjacency graph;
  const void *a = nullptr, *b = nullptr, *x = nullptr, *ds = nullptr;
  int64_t x_batch_stride = 0;
  void *out = nullptr, *da = nullptr;

  int64_t work() const { return heads; }
};

// z_ij = a_i + b_j + W e_ij, of `width` numbers; e is W e itself where there are no inputs. Null is what is not there, or
// not computed.
struct Terms {
  int threads = 1;
  int64_t batch = 1;
  int width = 1, inputs = 0;
  Adjacency graph, transpose;
  Matrix a, b;
  const void *e = nullptr, *weight = nullptr;  // [batch or 1, E, inputs or width], [width, inputs]
  int64_t e_batch_stride = 0;
  void *da = nullptr, *db = nullptr;           // [batch, I or J, width]
  void *de = nullptr, *dweight = nullptr;      // [batch, E, inputs or width], [width, inputs]
  bool one = false;                            // a is one row for all receivers, and da its gradient [width]
  uint64_t* signs = nullptr;                   // [batch, E, width / 64 and more]: a bit for each z that is positive

  int64_t work() const { return int64_t(width) * (inputs / 4 + 8); }
};

// t_i = Σ_j σ(z_ij), and y_i = Σ_j σ(z_ij) ∘ x_j. Of the sum of a ReLU alone all gradients follow from the signs.
struct Activations : Terms {
  int kind = RELU;  // σ
  Matrix x;
  void *t = nullptr, *y = nullptr;  // [batch, I, width]
  const void *dt = nullptr, *dy = nullptr;
  void* dx = nullptr;
};

// s_ij = r · LeakyReLU(z_ij) of every head.
struct Scores : Terms {
  int heads = 1;
  double slope = 0;
  const void* readout = nullptr;  // r [width]
  void* s = nullptr;              // [batch, E, heads]
  const void* ds = nullptr;
  void* dreadout = nullptr;
};

// y_i = Σ_j p_ij (v_j + V x_ij), p = softmax(scale q_i · (k_j + K x_ij) + bias), of heads of rows q, k [batch, I or J, heads *
// channels], v, y [batch, J or I, heads * values] and features x [batch or 1, E, inputs]. Null is what is not there, or not computed.
struct FeaturedAttention {
  int threads = 1;
  int64_t batch = 1;
  int heads = 1, channels = 1, values = 1, inputs = 1;
  double scale = 1, dropout = 0;
  uint64_t seed = 0;
  Adjacency graph, transpose;  // transpose.edge[t]: which edge of `graph` it is
  Matrix q, k, v, y, dy, dq, dk, dv;
  const void *x = nullptr, *bias = nullptr;  // [batch or 1, E, heads]
  int64_t x_batch_stride = 0, bias_batch_stride = 0;
  const void *key_weight = nullptr, *value_weight = nullptr;  // K [heads, channels, inputs], V [heads, values, inputs]
  void* p = nullptr;                                          // [batch, E, heads], before dropout
  void *dx = nullptr, *dbias = nullptr;                       // of every member of the batch
  void *dkey_weight = nullptr, *dvalue_weight = nullptr;

  int64_t work() const { return int64_t(heads) * (channels + values + inputs + 16); }
};

struct FeaturesTable {  // none for bfloat16
  void (*edge_dots[DTYPES])(const Vectors&);    // out [batch, E, heads] = u_i · x_ij
  void (*edge_sums[DTYPES])(const Vectors&);    // out [batch, I, heads, channels] = Σ_j w_ij x_ij
  void (*edge_spread[DTYPES])(const Vectors&);  // out [batch, E, vectors, channels] = w_ij u_i, summed over heads that share
  void (*edge_softmax[DTYPES])(const Softmax&);
  void (*edge_ends[DTYPES])(const Ends&);
  void (*edge_activations[DTYPES])(const Activations&);
  void (*edge_activations_gradient[DTYPES])(const Activations&);
  void (*edge_scores[DTYPES])(const Scores&);
  void (*edge_scores_gradient[DTYPES])(const Scores&);
  void (*attend_features[DTYPES])(const FeaturedAttention&);
  void (*attend_features_gradient[DTYPES])(const FeaturedAttention&);
};

}  // namespace edgewise
