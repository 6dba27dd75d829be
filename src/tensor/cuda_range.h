// A named NVTX range in profiler timelines; almost free without a profiler.
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
