// See gpu_hang_kernels.h.
#include "kernels/cuda/gpu_hang_kernels.h"

namespace nereid::kernels::testing_only {
namespace {

__global__ void spin(const volatile int* stop) {
  while (!*stop) continue;
}
__global__ void do_nothing() {}

}  // namespace

void launch_spin(cudaStream_t stream, const int* stop) { spin<<<1, 1, 0, stream>>>(stop); }
void launch_nothing(cudaStream_t stream) { do_nothing<<<1, 1, 0, stream>>>(); }

}  // namespace nereid::kernels::testing_only
