// NCCL, opened at run time: one communicator for each GPU of this process.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace nereid::kernels::cuda {

class Nccl {
 public:
  // Unavailable without the library, or with its reason; two ranks of one GPU are refused. The
  // library's use of multicast is switched off unless NCCL_NVLS_ENABLE is set.
  static StatusOr<std::unique_ptr<Nccl>> create(std::span<const int> devices);
  ~Nccl();

  // out = sum over ranks, in NCCL's order. Called by the rank's thread, its device being current.
  Status all_reduce(int rank, const void* in, void* out, int64_t count, DType type,
                    cudaStream_t stream);
  // Ends work under way on all ranks; thread-safe.
  void abort();

  std::string version() const;

 private:
  struct Rank {
    std::mutex mutex;
    void* handle = nullptr;  // ncclComm_t; null: ended
  };
  explicit Nccl(size_t size) : ranks_(size) {}
  void end(bool abort);

  std::vector<Rank> ranks_;
};

}  // namespace nereid::kernels::cuda
