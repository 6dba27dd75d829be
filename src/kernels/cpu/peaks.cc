// FLOP/s probes of a device.
#include "kernels/cpu/peaks.h"

#include <cstring>

#include "kernels/cpu/raw.h"

namespace nereid::kernels::cpu {
namespace {

// Without vector kernels: four chains of scalar multiply-adds.
double scalar_flops(int64_t iterations) {
  float a[4] = {1, 2, 3, 4};
  for (int64_t i = 0; i < iterations; ++i)
    for (float& x : a) {
      x = x * 0.999f + 0.001f;
      asm volatile("" : "+m"(x));
    }
  return 8.0 * static_cast<double>(iterations);
}

float read_words(const void* data, int64_t bytes) {
  uint64_t sum = 0, word = 0;
  for (int64_t i = 0; i + 8 <= bytes; i += 8) {
    std::memcpy(&word, static_cast<const char*>(data) + i, sizeof(word));
    sum += word;
  }
  return static_cast<float>(sum);
}

}  // namespace

std::vector<FlopsProbe> flops_probes(const DeviceInfo& device) {
  std::vector<FlopsProbe> probes = {{"generic", scalar_flops}};
  if (device.has_avx2) probes.push_back({"avx2", kAvx2.peak_flops});
  if (device.has_avx512) probes.push_back({"avx512", kAvx512.peak_flops});
  if (device.has_avx512_bf16) probes.push_back({"avx512_bf16", peak_flops_avx512_bf16});
  if (device.has_amx) probes.push_back({"amx_bf16", peak_flops_amx});
  return probes;
}

void read_bytes(const DeviceInfo& device, const void* data, int64_t bytes) {
  const auto read = device.has_avx512 ? kAvx512.read_bytes
                    : device.has_avx2 ? kAvx2.read_bytes
                                      : read_words;
  volatile float keep = read(data, bytes);
  static_cast<void>(keep);
}

}  // namespace nereid::kernels::cpu
