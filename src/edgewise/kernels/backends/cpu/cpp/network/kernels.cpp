// Networks on edges for one instruction set: compiled once for each, under its own namespace.
#include "network/combined.hpp"
#include "network/coupled.hpp"
#include "network/passes.hpp"
#include "network/perceptron.hpp"

namespace edgewise::EDGEWISE_ISA {

[[gnu::visibility("default")]] extern const NetworkTable network_table;
const NetworkTable network_table = {
    {network<float>, network<double>, nullptr},
    {network_gradient<float>, network_gradient<double>, nullptr},
    {perceptron<float>, perceptron<double>, nullptr},
    {perceptron_gradient<float>, perceptron_gradient<double>, nullptr},
    {combine<float>, combine<double>, nullptr},
    {combine_gradient<float>, combine_gradient<double>, nullptr},
    {couple<float>, couple<double>, nullptr},
    {couple_gradient<float>, couple_gradient<double>, nullptr},
    {lanes<float>, lanes<double>, 0},
};

}  // namespace edgewise::EDGEWISE_ISA
