// The operators of a program exported with `--native`, for processes without Python: those of edgewise.kernels, by the same
// schemas, over the same kernels. `edgewise export --to aoti --native` compiles it against PyTorch and edgewise_kernels.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "calls.hpp"

namespace {

using at::Tensor;
using Maybe = std::optional<Tensor>;

constexpr const char* SCHEMAS[] = {
    "edges_by_receiver(Tensor senders, Tensor receivers, SymInt num_receivers, SymInt num_senders,"
    " bool numbered) -> (Tensor, Tensor, Tensor)",
    "attend_by_receiver(Tensor? q, Tensor? k, Tensor v, Tensor? a, Tensor? bias, Tensor offsets, Tensor index, int score,"
    " float scale, float slope) -> Tensor",
    "sum_by_receiver(Tensor x, Tensor? weight, Tensor offsets, Tensor index, Tensor? edge, int reduce) -> Tensor",
};

int dtype_of(const Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat: return edgewise::FLOAT32;
    case at::kDouble: return edgewise::FLOAT64;
    case at::kBFloat16: return edgewise::BFLOAT16;
    default: TORCH_CHECK(false, "edgewise: the kernels compute in float32, float64 or bfloat16, not in ", x.scalar_type());
  }
}

at::ScalarType wide(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// [B, N, H, C] in that dtype whose rows' numbers lie side by side.
Tensor rows(const char* name, const Tensor& x, at::ScalarType dtype) {
  TORCH_CHECK(x.dim() == 4 && x.scalar_type() == dtype && x.is_cpu(), "edgewise: ", name, " is ", x.sizes(), " of ",
              x.scalar_type(), ", but must have four axes, of ", dtype, ", on the CPU");
  const bool side_by_side = x.stride(3) == 1 && (x.stride(2) == x.size(3) || x.size(2) == 1);
  return side_by_side ? x : x.contiguous();
}

edgewise::Matrix matrix(const Tensor& x) { return {x.data_ptr(), x.stride(0), x.stride(1)}; }

void check(bool right, const char* wanted) { TORCH_CHECK(right, "edgewise: ", wanted); }

// The edges of `edges_by_receiver`, which has checked their numbers.
edgewise::Adjacency adjacency(const Tensor& offsets, const Tensor& index, const Maybe& edge = std::nullopt) {
  check(offsets.scalar_type() == at::kLong && offsets.is_contiguous() && offsets.numel() > 0, "offsets are int64 [I + 1]");
  check(index.scalar_type() == at::kInt && index.is_contiguous(), "senders are int32 [E]");
  const int64_t* starts = offsets.const_data_ptr<int64_t>();
  check(starts[0] == 0 && starts[offsets.numel() - 1] == index.numel(), "offsets ascend from 0 to the number of edges");
  edgewise::Adjacency graph{offsets.numel() - 1, index.numel(), starts, index.const_data_ptr<int32_t>(), nullptr};
  if (edge) {
    check(edge->scalar_type() == at::kInt && edge->is_contiguous() && edge->numel() == index.numel(), "numbers are int32 [E]");
    graph.edge = edge->const_data_ptr<int32_t>();
  }
  return graph;
}

std::tuple<Tensor, Tensor, Tensor> edges_by_receiver(const Tensor& senders, const Tensor& receivers, int64_t num_receivers,
                                                     int64_t num_senders, bool numbered) {
  check(senders.dim() == 1 && receivers.sizes() == senders.sizes(), "senders and receivers are [E]");
  check(senders.scalar_type() == at::kLong && receivers.scalar_type() == at::kLong, "edges are int64");
  const Tensor from = senders.contiguous(), to = receivers.contiguous();
  const Tensor offsets = at::empty({num_receivers + 1}, to.options());
  const Tensor index = at::empty(to.sizes(), to.options().dtype(at::kInt)), order = at::empty({numbered ? to.numel() : 0}, index.options());
  const bool inside = edgewise::by_receiver({at::get_num_threads(), to.numel(), num_receivers, num_senders,
                                             to.const_data_ptr<int64_t>(), from.const_data_ptr<int64_t>(),
                                             offsets.data_ptr<int64_t>(), index.data_ptr<int32_t>(), numbered ? order.data_ptr<int32_t>() : nullptr});
  TORCH_CHECK(inside, "edgewise: edges must lead from 0, ..., ", num_senders - 1, " to 0, ..., ", num_receivers - 1);
  return {offsets, index, order};
}

Tensor sum_by_receiver(const Tensor& own, const Maybe& weight, const Tensor& offsets, const Tensor& index, const Maybe& edge,
                       int64_t reduce) {
  const int dtype = dtype_of(own);
  const Tensor x = rows("x", own, own.scalar_type());
  check(reduce >= 0 && reduce < 4, "reduce is 0, 1, 2 or 3");
  edgewise::Product call;
  call.threads = at::get_num_threads(), call.reduce = int(reduce), call.graph = adjacency(offsets, index, edge);
  call.batch = x.size(0), call.heads = int(x.size(2)), call.channels = int(x.size(3));
  const Tensor y = at::empty({x.size(0), call.graph.rows, x.size(2), x.size(3)}, x.options());
  Tensor w;
  if (weight) {
    w = weight->contiguous();
    check(w.dim() == 3 && w.scalar_type() == x.scalar_type() && w.size(1) == call.graph.edges &&
              (w.size(0) == 1 || w.size(0) == x.size(0)) && (w.size(2) == 1 || w.size(2) == x.size(2)),
          "weight is [B or 1, E, H or 1]");
    call.weight = w.data_ptr(), call.weight_heads = int(w.size(2));
    call.weight_batch_stride = w.size(0) > 1 ? w.stride(0) : 0;
  }
  call.x = matrix(x), call.y = matrix(y);
  if (y.numel() > 0) edgewise::kernels_here().product[dtype](call);
  return y;
}

Tensor attend_by_receiver(const Maybe& q, const Maybe& k, const Tensor& own, const Maybe& a, const Maybe& bias,
                          const Tensor& offsets, const Tensor& index, int64_t score, double scale, double slope) {
  check(score >= 0 && score < 4, "score is 0, 1, 2 or 3");
  const int dtype = dtype_of(own);
  const Tensor v = rows("v", own, own.scalar_type());
  edgewise::Attention call;
  call.threads = at::get_num_threads(), call.score = int(score), call.scale = scale, call.slope = slope;
  call.batch = v.size(0), call.senders = v.size(1), call.heads = int(v.size(2)), call.values = int(v.size(3));
  call.graph = adjacency(offsets, index);
  call.v = matrix(v);
  Tensor own_q, own_k, own_a, own_bias;
  if (score != edgewise::NONE) {
    check(q.has_value(), "q is missing");
    own_q = rows("q", *q, v.scalar_type()), own_k = k ? rows("k", *k, v.scalar_type()) : v;
    call.channels = int(own_q.size(3)), call.q = matrix(own_q), call.k = matrix(own_k);
    check(own_q.size(0) == v.size(0) && own_q.size(1) == call.graph.rows && own_q.size(2) == v.size(2) && own_q.size(3) > 0 &&
              (score != edgewise::ADDITIVE || own_q.size(3) == 1),
          "q is [B, I, H, C]");
    check(own_k.size(0) == v.size(0) && own_k.size(1) == v.size(1) && own_k.size(2) == v.size(2) &&
              own_k.size(3) == own_q.size(3),
          "k is [B, J, H, C]");
  }
  if (score == edgewise::GATED) {
    check(a && a->scalar_type() == wide(v) && a->numel() == v.size(2) * call.channels, "a is [H, C]");
    own_a = a->contiguous(), call.a = own_a.data_ptr();
  }
  if (bias) {
    own_bias = bias->contiguous();
    check(own_bias.dim() == 3 && own_bias.scalar_type() == wide(v) && own_bias.size(1) == call.graph.edges &&
              own_bias.size(2) == v.size(2) && (own_bias.size(0) == 1 || own_bias.size(0) == v.size(0)),
          "bias is [B or 1, E, H]");
    call.bias = own_bias.data_ptr(), call.bias_batch_stride = own_bias.size(0) > 1 ? own_bias.stride(0) : 0;
  }
  const Tensor y = at::empty({v.size(0), call.graph.rows, v.size(2), v.size(3)}, v.options());
  const Tensor lse = at::empty({v.size(0), call.graph.rows, v.size(2)}, v.options().dtype(wide(v)));
  call.y = matrix(y), call.lse = lse.data_ptr();
  if (y.numel() > 0) edgewise::kernels_here().attend[dtype](call);
  return y;
}

// Where Edgewise is imported, its operators are there.
std::optional<torch::Library> registered() {
  if (c10::Dispatcher::singleton().findSchema({"edgewise::attend_by_receiver", ""})) return std::nullopt;
  std::optional<torch::Library> library(std::in_place, torch::Library::FRAGMENT, "edgewise", std::nullopt, __FILE__, __LINE__);
  for (const char* schema : SCHEMAS) library->def(schema);
  library->impl("edges_by_receiver", c10::DispatchKey::CPU, &edges_by_receiver);
  library->impl("sum_by_receiver", c10::DispatchKey::CPU, &sum_by_receiver);
  library->impl("attend_by_receiver", c10::DispatchKey::CPU, &attend_by_receiver);
  return library;
}

const std::optional<torch::Library> operators = registered();

}  // namespace
