// Features of edges for one instruction set: compiled once for each, under its own namespace.
#include "features/attention.hpp"
#include "features/activations.hpp"
#include "features/scores.hpp"

namespace edgewise::EDGEWISE_ISA {

[[gnu::visibility("default")]] extern const FeaturesTable features_table;
const FeaturesTable features_table = {
    {dots<float>, dots<double>, nullptr},
    {sums<float>, sums<double>, nullptr},
    {spread<float>, spread<double>, nullptr},
    {softmax<float>, softmax<double>, nullptr},
    {ends<float>, ends<double>, nullptr},
    {activations<float>, activations<double>, nullptr},
    {activations_gradient<float>, activations_gradient<double>, nullptr},
    {scores<float>, scores<double>, nullptr},
    {scores_gradient<float>, scores_gradient<double>, nullptr},
    {attention<float>, attention<double>, nullptr},
    {attention_gradient<float>, attention_gradient<double>, nullptr},
};

}  // namespace edgewise::EDGEWISE_ISA
