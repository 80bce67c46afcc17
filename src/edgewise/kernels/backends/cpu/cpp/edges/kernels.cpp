// Products on edges, dropout, and the table of all that is done on edges, for one instruction set: compiled once for each,
// under its own namespace. Attention is compiled beside it, in attend_*.cpp: by far the most of what there is to compile.
#include "dropout.hpp"
#include "edges/product.hpp"
#include "edges/table.hpp"

namespace edgewise::EDGEWISE_ISA {

template <class S>
void attend(const Attention& call);
template <class S>
void attend_gradient(const Attention& call);

[[gnu::visibility("default")]] extern const EdgesTable edges_table;
const EdgesTable edges_table = {
    {product<float>, product<double>, product<bfloat16>},
    {product_gradient<float>, product_gradient<double>, product_gradient<bfloat16>},
    {extreme_share<float>, extreme_share<double>, extreme_share<bfloat16>},
    {extreme_gradient<float>, extreme_gradient<double>, extreme_gradient<bfloat16>},
    {extreme_weight_gradient<float>, extreme_weight_gradient<double>, extreme_weight_gradient<bfloat16>},
    {attend<float>, attend<double>, attend<bfloat16>},
    {attend_gradient<float>, attend_gradient<double>, attend_gradient<bfloat16>},
    {drop<float>, drop<double>, drop<bfloat16>},
};

}  // namespace edgewise::EDGEWISE_ISA
