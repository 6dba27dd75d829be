// The CPU as a Device: host memory, a thread pool, streams with a thread each.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "tensor/device.h"

namespace nereid {

inline constexpr int kMaxCpuThreads = 1024;

struct CpuOptions {
  int num_threads = 0;  // 0 = one per physical core this process may use
  std::string isa;      // "" = best | generic | avx2 | avx512 | avx512_bf16 | amx
};

// InvalidArgument: a thread count outside [0, kMaxCpuThreads], or an instruction set that the
// processor lacks. Device memory is zeroed. Stream::native() is the device's ThreadPool*, shared by
// its streams; kernels run on the stream's thread as pool thread 0. The device must outlive its
// streams and buffers.
StatusOr<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options);

}  // namespace nereid
