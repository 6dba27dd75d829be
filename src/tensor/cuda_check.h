// CUDA error codes as Status: every message names the call and the device.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"

namespace nereid {

// OK for cudaSuccess; else ResourceExhausted (memory), Unavailable (driver or device missing) or
// Internal, as "cuda:0: <call>: <reason>". Clears the runtime's pending error unless it is sticky
// (stays until process exit).
Status cuda_status(cudaError_t error, const char* call, int device);

}  // namespace nereid

// Returns the status of a failing CUDA runtime call from the enclosing function.
#define RETURN_IF_CUDA_ERROR(device, call) \
  RETURN_IF_ERROR(::nereid::cuda_status((call), #call, (device)))
