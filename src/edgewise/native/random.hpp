// Random numbers by counter: a draw is a hash of (seed, hop, node, draw), the same on any number of threads.
#pragma once

#include <cstdint>

namespace edgewise {

constexpr uint64_t STEP = 0x9E3779B97F4A7C15;  // splitmix64 (Steele, Lea & Flood, 2014)

inline uint64_t hash(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// The random numbers of one receiver in one hop.
struct Random {
  uint64_t state;
  Random(uint64_t hop_seed, int64_t node) : state(hash(hop_seed + STEP * uint64_t(node + 1))) {}
  uint64_t word(int64_t draw) const { return hash(state + STEP * uint64_t(draw + 1)); }
  int64_t below(int64_t bound, int64_t draw) const {
    return int64_t((unsigned __int128)(word(draw)) * uint64_t(bound) >> 64);
  }
};

}  // namespace edgewise
