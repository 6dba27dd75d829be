// A named range in the timeline of NVIDIA's profilers (NVTX); costs next to nothing without one.
#pragma once

#include <nvtx3/nvToolsExt.h>

namespace nereid {

class CudaRange {
 public:
  explicit CudaRange(const char* name) { nvtxRangePushA(name); }
  ~CudaRange() { nvtxRangePop(); }
  CudaRange(const CudaRange&) = delete;
  CudaRange& operator=(const CudaRange&) = delete;
};

}  // namespace nereid
