// Counter-based random numbers (Philox4x32-10, Salmon et al. 2011, "Parallel random numbers: as
// easy as 1, 2, 3"). A draw is a pure function of (seed, position, lane): no stored state, so batch
// and slot never change a sample.
#pragma once

#include <array>
#include <cstdint>

namespace nereid {

// One Philox4x32-10 block: 128 random bits for a 64-bit key and a 128-bit counter.
constexpr std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low,
                                         uint64_t counter_high = 0) {
  std::array<uint32_t, 4> c = {
      static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
      static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Uniform float in [0, 1) with 24 random bits, for the token at `position` of a request with
// `seed`. Draws of one token differ in `lane`.
constexpr float uniform(uint64_t seed, uint64_t position, uint64_t lane = 0) {
  return static_cast<float>(philox(seed, position, lane)[0] >> 8) * 0x1.0p-24f;
}

}  // namespace nereid
