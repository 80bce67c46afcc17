// Arrays of NumPy: what `numpy.savez` writes, which is a zip of .npy files that are not compressed.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

// Asks for pages of 2 MB, as NumPy does for its own arrays: kernels that gather rows from all over find them sooner.
inline void in_large_pages(void* data, size_t bytes) {
#if defined(__linux__)
  constexpr uintptr_t page = uintptr_t(1) << 21;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + page - 1) & ~(page - 1);
  const uintptr_t last = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(page - 1);
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

inline uint64_t number(const std::string& file, size_t at, int bytes) {  // little-endian
  uint64_t value = 0;
  for (int n = 0; n < bytes; ++n) value |= uint64_t(uint8_t(file.at(at + n))) << 8 * n;
  return value;
}

// An array from the text of a .npy file.
inline torch::Tensor array_of(const std::string& npy) {
  static const std::map<std::string, torch::Dtype> DTYPES = {
      {"<f4", torch::kFloat}, {"<f8", torch::kDouble}, {"<i8", torch::kLong}, {"<i4", torch::kInt}, {"|b1", torch::kBool}};
  const int width = npy.at(6) == 1 ? 2 : 4;
  const size_t begin = 8 + width, length = number(npy, 8, width);
  const std::string header = npy.substr(begin, length);  // {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
  const size_t type = header.find("'descr': '") + 10, open = header.find("'shape': (") + 10;
  const auto dtype = DTYPES.find(header.substr(type, header.find('\'', type) - type));
  if (dtype == DTYPES.end() || header.find("'fortran_order': False") == std::string::npos)
    throw std::runtime_error("an array is of another type or order: " + header);
  std::vector<int64_t> shape;
  for (size_t at = open; header[at] != ')';) {
    size_t read = 0;
    shape.push_back(std::stoll(header.substr(at), &read));
    at = header.find_first_not_of(", ", at + read);
  }
  torch::Tensor array = torch::empty(shape, dtype->second);
  in_large_pages(array.data_ptr(), array.nbytes());
  if (begin + length + array.nbytes() > npy.size()) throw std::runtime_error("an array is cut off");
  std::memcpy(array.data_ptr(), npy.data() + begin + length, array.nbytes());
  return array;
}

// The arrays of a .npz file by name.
inline std::map<std::string, torch::Tensor> read_npz(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  const size_t end = file.rfind("PK\5\6");  // of the zip's own list of its files
  if (end == std::string::npos) throw std::runtime_error(path + " is no .npz file");
  std::map<std::string, torch::Tensor> arrays;
  size_t entry = number(file, end + 16, 4);
  for (uint64_t n = number(file, end + 10, 2); n > 0; --n) {
    if (number(file, entry + 10, 2) != 0) throw std::runtime_error(path + " is compressed: write it by numpy.savez");
    const uint64_t size = number(file, entry + 24, 4), local = number(file, entry + 42, 4);
    const std::string name = file.substr(entry + 46, number(file, entry + 28, 2));
    const size_t begin = local + 30 + number(file, local + 26, 2) + number(file, local + 28, 2);
    arrays[name.substr(0, name.rfind(".npy"))] = array_of(file.substr(begin, size));
    entry += 46 + number(file, entry + 28, 2) + number(file, entry + 30, 2) + number(file, entry + 32, 2);
  }
  return arrays;
}
