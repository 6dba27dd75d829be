// The GPUs that the CUDA driver shows this process, by their UUIDs. The driver is opened at run
// time: neither it nor its headers are needed. It reads CUDA_VISIBLE_DEVICES itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid {

// A GPU, or a MIG slice of one.
struct Gpu {
  std::string uuid;       // "GPU-xxxxxxxx-xxxx-..." or "MIG-xxxxxxxx-xxxx-..."
  std::string name;       // "NVIDIA H200"
  double capability = 0;  // compute capability, such as 8.6; 0: unknown
};

// In CUDA's order: number i is cuda:i. Empty: no driver, or no GPU.
std::vector<Gpu> visible_gpus(const std::string& driver = "libcuda.so.1");

// The UUID of "cuda:N"; "": another device, or no such GPU.
std::string gpu_uuid(std::string_view device);

// Whether `name` has the form of a UUID: it begins with "GPU-" or "MIG-".
bool is_gpu_uuid(std::string_view name);

// The number of the GPU whose UUID is `uuid` or begins with it. NotFound lists the GPUs;
// InvalidArgument: several begin with it.
StatusOr<int32_t> find_gpu(std::span<const Gpu> gpus, std::string_view uuid);

}  // namespace nereid
