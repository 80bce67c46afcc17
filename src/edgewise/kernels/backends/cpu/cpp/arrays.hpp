// What every kernel's arguments are made of: plain structures of pointers and sizes.
#pragma once

#include <cstdint>

namespace edgewise {

// Rows [batch, nodes, heads * channels]; strides count numbers, not bytes.
struct Matrix {
  void* data = nullptr;
  int64_t batch_stride = 0, row_stride = 0;
};

// The senders of every receiver, receiver by receiver. `edge`, if there is one, is where values of edge e lie.
struct Adjacency {
  int64_t rows = 0, edges = 0;
  const int64_t* offsets = nullptr;
  const int32_t* index = nullptr;
  const int32_t* edge = nullptr;
};

enum Dtype { FLOAT32 = 0, FLOAT64 = 1, BFLOAT16 = 2, DTYPES = 3 };

}  // namespace edgewise
