// The CUDA rows: what each kernel takes, what it costs (bytes over an H200's memory speed or flops
// over its bf16 rate, plus the launch), and its checked launcher.
#include "kernels/cuda/table.h"

#include <algorithm>
#include <limits>

#include "kernels/api/pack.h"
#include "kernels/api/validate.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/launch.h"
#include "tensor/cuda_check.h"

namespace nereid::kernels::cuda {
namespace {

constexpr double kLaunchSeconds = 3e-6;
constexpr double kBytesPerSecond = 4e12;
constexpr double kTensorFlops = 7e14;
constexpr double kPlainFlops = 1.5e13;
constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();  // blocks of a grid's x axis
constexpr int64_t kMaxPieces = 65535;                              // blocks of its y axis
constexpr int64_t kMaxVocab = int64_t{1} << 22;  // sums of 2^40 fixed-point weights in 63 bits

double seconds_for(double bytes) { return kLaunchSeconds + bytes / kBytesPerSecond; }

bool is_cuda(const DeviceInfo& device) { return device.kind == DeviceKind::kCuda; }

template <class Op>
Status run(const Op& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  const cudaError_t error = launch(args, static_cast<cudaStream_t>(stream.native()));
  if (error == cudaSuccess) return ok();
  return annotate(cuda_status(error, "launch", stream.device().info().index), Op::kName);
}

// For launches that need more than the stream.
template <class Op, class Launch>
Status run_with_scratch(const Op& args, Stream& stream, Launch launch) {
  const auto& cuda = static_cast<CudaStream&>(stream);
  const DeviceInfo& device = stream.device().info();
  const Scratch scratch = {cuda.workspace(), kCudaWorkspaceBytes, cuda.counters(),
                           kCudaCounters,    device.num_units,    device.sm};
  const cudaError_t error = launch(args, scratch, cuda.handle());
  if (error == cudaSuccess) return ok();
  return annotate(cuda_status(error, "launch", device.index), Op::kName);
}

Status run_attention(const Attention& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  for (const void* cache : {args.cache.keys, args.cache.values})
    if (reinterpret_cast<uintptr_t>(cache) % 16 != 0)
      return internal_error("attention: a cache is not 16-byte aligned");
  return run_with_scratch(args, stream, [](const auto&... a) { return launch(a...); });
}

Status run_library_product(const Linear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  const Status status = run_cublaslt(args, static_cast<CudaStream&>(stream));
  // `can` does not look at strides and alignments.
  return absl::IsUnimplemented(status) ? run<Linear>(args, stream) : status;
}

// Few rows by our own kernel, which reads the weight at the memory's speed, others by the library.
Status run_hopper_product(const Linear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  if (takes_gemv(args)) return run_with_scratch(args, stream, launch_gemv);
  if (takes_skinny(args, stream.device().info().sm))
    return run_with_scratch(args, stream, launch_skinny);
  return has_cublaslt() ? run_library_product(args, stream) : run<Linear>(args, stream);
}

template <class Op>
bool can_run(const Op& a, const DeviceInfo& d) {
  return is_cuda(d) && rows_of(a) <= kMaxRows;
}
// Seconds to move `bytes` for each element of the output.
template <class Op, int kBytes>
double cost_of(const Op& a, const DeviceInfo&) {
  return seconds_for(static_cast<double>(kBytes) * static_cast<double>(a.out.rows * a.out.cols));
}

template <class Op>
bool can_look_up(const Op& a, const DeviceInfo& d) {
  return can_run(a, d) && a.table.layout == WeightLayout::kRowMajor && a.table.format.is_float();
}

bool can_norm(const Norm& a, const DeviceInfo& d) {
  return can_run(a, d) && a.x.cols / Norm::piece_of(a) <= kMaxPieces &&
         (!is_given(a.scales) || a.x.cols <= kMaxF8NormWidth);
}
bool can_glu(const Glu& a, const DeviceInfo& d) {
  return can_run(a, d) && (!is_given(a.scales) || a.out.cols <= kMaxF8GluWidth);
}

bool can_product(const Linear& a, const DeviceInfo& d) {
  return can_run(a, d) && a.weight.layout == WeightLayout::kRowMajor && !a.weight.format.ordered &&
         a.weight.n <= kMaxLinearOutputs;
}
bool can_library_product(const Linear& a, const DeviceInfo& d) {
  return can_product(a, d) && a.weight.format.is_float();
}
bool can_hopper_product(const Linear& a, const DeviceInfo& d) {
  const bool fp8 = a.x.dtype == DType::kF8E4M3;
  return can_product(a, d) && d.sm == 90 && (fp8 || a.weight.format.is_float()) &&
         a.weight.k % (fp8 ? 16 : 8) == 0;
}
double product_cost(const Linear& a, double flops_per_second) {
  const auto tokens = static_cast<double>(a.x.rows), n = static_cast<double>(a.weight.n);
  const auto k = static_cast<double>(a.weight.k);
  const double bytes = static_cast<double>(stored_bytes(a.weight)) + 2.0 * tokens * k +
                       tokens * n * static_cast<double>(size_of(a.out.dtype));
  const double flops = 2.0 * tokens * n * k;
  return kLaunchSeconds + std::max(bytes / kBytesPerSecond, flops / flops_per_second);
}
double plain_product_cost(const Linear& a, const DeviceInfo&) {
  return 2 * product_cost(a, kPlainFlops);  // always behind the library
}
double library_product_cost(const Linear& a, const DeviceInfo&) {
  return product_cost(a, kTensorFlops);
}

double hopper_product_cost(const Linear& a, const DeviceInfo&) {
  return 0.9 * product_cost(a, kTensorFlops);
}

bool can_expert_product(const ExpertLinear& a, const DeviceInfo& d) {
  return can_run(a, d) && a.weight.layout == WeightLayout::kRowMajor;
}
double expert_product_cost(const ExpertLinear& a, const DeviceInfo&) {
  const auto pieces = static_cast<double>(a.out.rows * a.experts.cols);
  const double elements = static_cast<double>(a.weight.n) * static_cast<double>(a.weight.k);
  return seconds_for(2 * elements * std::min(pieces, static_cast<double>(a.weight.experts))) +
         2 * elements * pieces / kPlainFlops;
}
bool can_head_product(const HeadLinear& a, const DeviceInfo& d) {
  return can_run(a, d) && a.weight.layout == WeightLayout::kRowMajor;
}
double head_product_cost(const HeadLinear& a, const DeviceInfo&) {
  const double elements = static_cast<double>(a.weight.n * a.weight.k * a.weight.experts);
  return seconds_for(2 * elements) + 2 * elements * static_cast<double>(a.out.rows) / kPlainFlops;
}
double route_cost(const Route& a, const DeviceInfo&) {
  return seconds_for(4.0 * static_cast<double>(a.x.rows * a.x.cols));
}
double weighted_sum_cost(const WeightedSum& a, const DeviceInfo&) {
  return seconds_for(4.0 * static_cast<double>(a.x.rows * (a.x.cols + a.out.cols)));
}

bool can_attention(const Attention& a, const DeviceInfo& d) {
  return can_run(a, d) && a.cache.layout == KeyLayout::kLines && a.heads.num <= 65535 &&
         a.heads.dim % kHeadDimUnit == 0 &&
         a.heads.dim <= (a.heads.latent > 0 ? kMaxLatentDim : kMaxHeadDim);
}

bool can_sample(const Sample& a, const DeviceInfo& d) {
  return is_cuda(d) && a.problem.rows <= kMaxRows && a.problem.vocab <= kMaxVocab;
}
double sample_cost(const Sample& a, const DeviceInfo&) {
  return seconds_for((a.problem.all_greedy ? 8.0 : 160.0) *
                     static_cast<double>(a.problem.rows * a.problem.vocab));
}

}  // namespace

void add_kernels(Registry& registry) {
  constexpr DeviceKind kCuda = DeviceKind::kCuda;
  registry.add<Embed>({{"cuda", kCuda, can_look_up<Embed>, cost_of<Embed, 6>, run<Embed>}});
  registry.add<AddPositions>(
      {{"cuda", kCuda, can_look_up<AddPositions>, cost_of<AddPositions, 10>, run<AddPositions>}});
  registry.add<Norm>({{"cuda", kCuda, can_norm, cost_of<Norm, 14>, run<Norm>}});
  // No row without the library: the rows that there are decide which engine file fits.
  if (has_cublaslt())
    registry.add<Linear>(
        {{"cublaslt", kCuda, can_library_product, library_product_cost, run_library_product}});
  registry.add<Linear>(
      {{"hopper", kCuda, can_hopper_product, hopper_product_cost, run_hopper_product}});
  registry.add<Linear>({{"plain", kCuda, can_product, plain_product_cost, run<Linear>}});
  registry.add<Rope>({{"cuda", kCuda, can_run<Rope>, cost_of<Rope, 8>, run<Rope>}});
  registry.add<Attention>({{"cuda", kCuda, can_attention, cost_of<Attention, 8>, run_attention}});
  registry.add<Glu>({{"cuda", kCuda, can_glu, cost_of<Glu, 10>, run<Glu>}});
  registry.add<Activate>({{"cuda", kCuda, can_run<Activate>, cost_of<Activate, 6>, run<Activate>}});
  registry.add<SoftCap>({{"cuda", kCuda, can_run<SoftCap>, cost_of<SoftCap, 8>, run<SoftCap>}});
  registry.add<Add>({{"cuda", kCuda, can_run<Add>, cost_of<Add, 12>, run<Add>}});
  registry.add<Route>({{"cuda", kCuda, can_run<Route>, route_cost, run<Route>}});
  registry.add<ExpertLinear>(
      {{"plain", kCuda, can_expert_product, expert_product_cost, run<ExpertLinear>}});
  registry.add<HeadLinear>(
      {{"plain", kCuda, can_head_product, head_product_cost, run<HeadLinear>}});
  registry.add<WeightedSum>(
      {{"cuda", kCuda, can_run<WeightedSum>, weighted_sum_cost, run<WeightedSum>}});
  registry.add<Quantize>({{"cuda", kCuda, can_run<Quantize>, cost_of<Quantize, 3>, run<Quantize>}});
  registry.add<GatherRows>(
      {{"cuda", kCuda, can_run<GatherRows>, cost_of<GatherRows, 8>, run<GatherRows>}});
  registry.add<Sample>({{"cuda", kCuda, can_sample, sample_cost, run<Sample>}});
}

}  // namespace nereid::kernels::cuda
