// Runs a file of `edgewise export --to aoti` on the arrays of an .npz file, and compares its outputs with those expected.
//   ./run gat.aoti.pt2 gat.aoti.pt2.npz [TIMES]       after that TIMES more times, by the clock
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "npz.hpp"

static std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// The operators of a file exported with --native: a library beside it, which registers them with PyTorch.
static void load_operators(const std::string& package) {
  const auto library = std::filesystem::absolute(package).replace_filename("libedgewise_operators.so");
  if (std::filesystem::exists(library) && !dlopen(library.c_str(), RTLD_NOW)) throw std::runtime_error(dlerror());
}

static int run(const std::string& package, const std::string& npz, int times) {
  const c10::InferenceMode no_gradients;
  load_operators(package);
  setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 1);  // or it reads arrays of another type or size as if they were right
  torch::inductor::AOTIModelPackageLoader loader(package, "model", /*run_single_threaded=*/true);
  auto about = loader.get_metadata();  // "inputs" and "outputs": names in their order; "edgewise": everything, as JSON
  const auto arrays = read_npz(npz);
  std::vector<torch::Tensor> inputs;
  for (const std::string& name : words(about.at("inputs"))) inputs.push_back(arrays.at(name));
  const std::vector<torch::Tensor> outputs = loader.run(inputs);

  double worst = 0;
  size_t n = 0;
  for (const std::string& name : words(about.at("outputs"))) {
    const torch::Tensor y = outputs.at(n++), first = y.flatten().slice(0, 0, 5);
    std::cout << name << ' ' << y.sizes() << ' ' << first.view({1, -1}) << '\n';
    if (y.numel() == 0 || !arrays.count("expected_" + name)) continue;
    const torch::Tensor right = arrays.at("expected_" + name);
    worst = std::max(worst, ((y - right).abs() / (1 + right.abs())).max().item<double>());
  }
  std::cout << "differs by " << worst << " at most\n";
  for (; times > 0; --times) {
    const auto start = std::chrono::steady_clock::now();
    loader.run(inputs);
    std::cout << "seconds " << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << '\n';
  }
  std::ifstream status("/proc/self/status");  // of Linux
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) std::cout << "megabytes " << std::stod(line.substr(6)) / 1000 << " at most\n";
  return worst <= 1e-5 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int count, char** arguments) try {
  if (count < 3) throw std::runtime_error("usage: run MODEL.aoti.pt2 INPUTS.npz [TIMES]");
  return run(arguments[1], arguments[2], count > 3 ? std::atoi(arguments[3]) : 0);
} catch (const c10::Error& error) {
  std::cerr << "run: " << error.what_without_backtrace() << '\n';
  return EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << "run: " << error.what() << '\n';
  return EXIT_FAILURE;
}
