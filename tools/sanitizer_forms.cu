// Ways of handing numbers from warps to warps through shared memory, each right by PTX's memory
// model, for compute-sanitizer: what it reports of them, it reports of kernels that hand over their
// data in that way, too (docs/performance/gpu-tests.md).
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o forms tools/sanitizer_forms.cu
//   compute-sanitizer --tool racecheck ./forms FORM     # 0 to 3, see Form
//   compute-sanitizer --tool synccheck ./forms FORM     # 4 and 5
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

// The writers meet at a named barrier, then one of them arrives at the mbarrier whose phase the
// readers wait for (as in attention_hopper.cu); each writer arrives there; named barriers alone, at
// which writers arrive and readers wait; the copy engine writes, once a lane of each warp that read
// the lines before has arrived (as in attention_single.cu); blocks of a cluster send each other
// numbers that the receiver's mbarrier counts (as in attention_cluster.cu), by kernels of one
// stream and of two at the same time.
enum Form { kOneArrives, kAllArrive, kNamed, kCopied, kExchanged, kExchangedAtOnce };

constexpr int kTiles = 32, kStages = 2, kLines = 128, kWriters = 128, kReaders = 256;
constexpr int kBlocks = 132;

__device__ uint32_t address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ void init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(arrivals)
               : "memory");
}
__device__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
}
__device__ void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(address(barrier)),
      "r"(parity)
      : "memory");
}
__device__ void meet(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ void arrive_named(int number) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(kWriters + kReaders) : "memory");
}

constexpr int kWritersMeet = 1, kFirstFull = 4, kFirstEmpty = 8;  // numbers of named barriers

template <Form kForm>
__global__ void __launch_bounds__(kWriters + kReaders) hand_over(int* wrong) {
  __shared__ uint64_t full[kStages], empty[kStages];
  __shared__ float lines[kStages][kLines];
  if (threadIdx.x == 0)
    for (int i = 0; i < kStages; ++i) {
      init(full + i, kForm == kOneArrives ? 1 : kWriters);
      init(empty + i, kReaders / 32);
    }
  __syncthreads();
  int writer = static_cast<int>(threadIdx.x) - kReaders;
  // Without this ptxas 13.0 takes the counter that it makes for the numbers below for the writer's,
  // in the form with named barriers, and stores outside of the lines.
  asm volatile("" : "+r"(writer));
  for (int t = 0; t < kTiles; ++t) {
    const int stage = t % kStages;
    const uint32_t parity = t / kStages % 2;
    if (writer >= 0) {
      if (kForm != kNamed) wait(empty + stage, parity ^ 1);
      if (kForm == kNamed && t >= kStages) meet(kFirstEmpty + stage, kWriters + kReaders);
      lines[stage][writer] = static_cast<float>(t * kLines + writer);
      if (kForm == kOneArrives) {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        meet(kWritersMeet, kWriters);
      }
      if (kForm == kNamed)
        arrive_named(kFirstFull + stage);
      else if (kForm == kAllArrive || writer == 0)
        arrive(full + stage);
      continue;
    }
    if (kForm == kNamed)
      meet(kFirstFull + stage, kWriters + kReaders);
    else
      wait(full + stage, parity);
    for (int j = 0; j < 4; ++j) {
      const int line = (static_cast<int>(threadIdx.x) + 37 * j) % kLines;
      if (lines[stage][line] != static_cast<float>(t * kLines + line)) atomicAdd(wrong, 1);
    }
    __syncwarp();
    if (kForm == kNamed) {
      if (t + kStages < kTiles) arrive_named(kFirstEmpty + stage);
    } else if (threadIdx.x % 32 == 0) {
      arrive(empty + stage);
    }
  }
}

__global__ void __launch_bounds__(kWriters + kReaders) copy_over(const float* numbers, int* wrong) {
  __shared__ uint64_t full[kStages], empty[kStages];
  __shared__ __align__(16) float lines[kStages][kLines];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init(full + i, 1);
      init(empty + i, kReaders / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x > kReaders) return;
  for (int t = 0; t < kTiles; ++t) {
    const int stage = t % kStages;
    const uint32_t parity = t / kStages % 2;
    if (threadIdx.x == kReaders) {
      wait(empty + stage, parity ^ 1);
      asm volatile(
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(full + stage)),
          "r"(static_cast<uint32_t>(sizeof(lines[0])))
          : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(address(lines[stage])),
          "l"(numbers + t * kLines), "r"(static_cast<uint32_t>(sizeof(lines[0]))),
          "r"(address(full + stage))
          : "memory");
      continue;
    }
    wait(full + stage, parity);
    for (int j = 0; j < 4; ++j) {
      const int line = (static_cast<int>(threadIdx.x) + 37 * j) % kLines;
      if (lines[stage][line] != static_cast<float>(t * kLines + line)) atomicAdd(wrong, 1);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty + stage);
  }
}

constexpr int kCluster = 16, kClusters = 64, kLaunches = 200;

__global__ void __launch_bounds__(kReaders) exchange(int* wrong) {
  __shared__ uint64_t barrier;
  __shared__ float2 received[kCluster];
  const unsigned rank = blockIdx.x;
  if (threadIdx.x == 0) {
    init(&barrier, 1);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&barrier)),
                 "r"(static_cast<uint32_t>(sizeof(received)))
                 : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (threadIdx.x < kCluster)
    asm volatile(
        "{\n"
        ".reg .b32 there, barrier;\n"
        "mapa.shared::cluster.u32 there, %0, %2;\n"
        "mapa.shared::cluster.u32 barrier, %1, %2;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, "
        "[barrier];\n"
        "}\n" ::"r"(address(received + rank)),
        "r"(address(&barrier)), "r"(threadIdx.x), "f"(static_cast<float>(rank)),
        "f"(static_cast<float>(threadIdx.x))
        : "memory");
  wait(&barrier, 0);
  if (threadIdx.x < kCluster) {
    const float2 got = received[threadIdx.x];
    if (got.x != static_cast<float>(threadIdx.x) || got.y != static_cast<float>(rank))
      atomicAdd(wrong, 1);
  }
}

void launch_exchanges(int num_streams, int* wrong) {
  cudaFuncSetAttribute(exchange, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) cudaStreamCreate(&stream);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = {kCluster, kClusters, 1};
  config.blockDim = kReaders;
  config.attrs = &attribute;
  config.numAttrs = 1;
  for (int i = 0; i < kLaunches; ++i) {
    config.stream = streams[i % num_streams];
    cudaLaunchKernelEx(&config, exchange, wrong);
  }
  cudaDeviceSynchronize();
}

}  // namespace

int main(int argc, char** argv) {
  const int form = argc > 1 ? std::atoi(argv[1]) : 0;
  int *wrong = nullptr, count = -1;
  cudaMalloc(&wrong, sizeof(int));
  cudaMemset(wrong, 0, sizeof(int));
  if (form >= kExchanged) {
    launch_exchanges(form == kExchanged ? 1 : 2, wrong);
  } else if (form == kCopied) {
    float* numbers = nullptr;
    cudaMallocManaged(&numbers, kTiles * kLines * sizeof(float));
    for (int i = 0; i < kTiles * kLines; ++i) numbers[i] = static_cast<float>(i);
    copy_over<<<kBlocks, kWriters + kReaders>>>(numbers, wrong);
  } else {
    const auto kernel = form == kOneArrives  ? hand_over<kOneArrives>
                        : form == kAllArrive ? hand_over<kAllArrive>
                                             : hand_over<kNamed>;
    kernel<<<kBlocks, kWriters + kReaders>>>(wrong);
  }
  const cudaError_t error = cudaMemcpy(&count, wrong, sizeof(int), cudaMemcpyDeviceToHost);
  std::printf("form %d: %d numbers read wrong, %s\n", form, count, cudaGetErrorString(error));
  return error == cudaSuccess && count == 0 ? 0 : 1;
}
