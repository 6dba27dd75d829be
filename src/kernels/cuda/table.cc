// The CUDA rows: what each kernel takes, what it costs (bytes over an H200's memory speed or flops
// over its bf16 rate, plus the launch), and its checked launcher.
#include "kernels/cuda/table.h"

#include <algorithm>
#include <limits>

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
constexpr int64_t kMaxVocab = int64_t{1} << 22;  // sums of 2^40 fixed-point weights in 63 bits

double seconds_for(double bytes) { return kLaunchSeconds + bytes / kBytesPerSecond; }

bool is_cuda(const DeviceInfo& device) { return device.kind == DeviceKind::kCuda; }

template <class Op>
Status run(const typename Op::Args& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  const cudaError_t error = launch(args, static_cast<cudaStream_t>(stream.native()));
  if (error == cudaSuccess) return ok();
  return annotate(cuda_status(error, "launch", stream.device().info().index), Op::kName);
}

Status run_attention(const Attention::Args& args, Stream& stream) {
  for (const void* cache : {args.k_cache, args.v_cache})
    if (reinterpret_cast<uintptr_t>(cache) % 16 != 0)
      return internal_error("attention: a cache is not 16-byte aligned");
  return run<Attention>(args, stream);
}

Status run_library_product(const Linear::Args& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  const Status status = run_cublaslt(args, static_cast<CudaStream&>(stream));
  // Strides and alignments are not part of the problem, so `can` could not know.
  return absl::IsUnimplemented(status) ? run<Linear>(args, stream) : status;
}

bool can_embed(const Embed::Problem& p, const DeviceInfo& d) {
  return is_cuda(d) && p.layout == WeightLayout::kRowMajor && p.tokens <= kMaxRows;
}
double embed_cost(const Embed::Problem& p, const DeviceInfo&) {
  return seconds_for(6.0 * static_cast<double>(p.tokens * p.hidden));
}

bool can_norm(const Norm::Problem& p, const DeviceInfo& d) {
  return is_cuda(d) && p.tokens <= kMaxRows && (p.out == DType::kF32 || p.out == DType::kBF16);
}
double norm_cost(const Norm::Problem& p, const DeviceInfo&) {
  return seconds_for((p.has_add ? 14.0 : 6.0) * static_cast<double>(p.tokens * p.hidden));
}

bool can_product(const Linear::Problem& p, const DeviceInfo& d) {
  return is_cuda(d) && p.layout == WeightLayout::kRowMajor && p.tokens <= kMaxRows &&
         p.n <= kMaxLinearOutputs && (p.out == DType::kF32 || p.out == DType::kBF16);
}
double product_cost(const Linear::Problem& p, double flops_per_second) {
  const double bytes = 2.0 * static_cast<double>(p.n * p.k + p.tokens * p.k) +
                       static_cast<double>(p.tokens * p.n) * static_cast<double>(size_of(p.out));
  const double flops = 2.0 * static_cast<double>(p.tokens * p.n) * static_cast<double>(p.k);
  return kLaunchSeconds + std::max(bytes / kBytesPerSecond, flops / flops_per_second);
}
double plain_product_cost(const Linear::Problem& p, const DeviceInfo&) {
  return 2 * product_cost(p, kPlainFlops);  // always behind the library
}
double library_product_cost(const Linear::Problem& p, const DeviceInfo&) {
  return product_cost(p, kTensorFlops);
}

bool can_rope(const Rope::Problem& p, const DeviceInfo& d) {
  return is_cuda(d) && p.tokens <= kMaxRows && p.head_dim % 2 == 0;
}
double rope_cost(const Rope::Problem& p, const DeviceInfo&) {
  return seconds_for(8.0 * static_cast<double>(p.tokens * p.head_dim) *
                     (p.num_heads + p.num_kv_heads));
}

bool can_attention(const Attention::Problem& p, const DeviceInfo& d) {
  return is_cuda(d) && p.keys == KeyLayout::kLines && p.tokens <= kMaxRows && p.num_kv_heads > 0 &&
         p.num_heads % p.num_kv_heads == 0 && p.num_heads <= 65535 &&
         p.head_dim % kHeadDimUnit == 0 && p.head_dim <= kMaxHeadDim && p.block_tokens > 0 &&
         (p.kv == DType::kBF16 || has_kv_scales(p.kv));
}
double attention_cost(const Attention::Problem& p, const DeviceInfo&) {
  return seconds_for(8.0 * static_cast<double>(p.tokens * p.head_dim) *
                     (p.num_heads + p.num_kv_heads));
}

bool can_glu(const Glu::Problem& p, const DeviceInfo& d) {
  return is_cuda(d) && p.tokens <= kMaxRows;
}
double glu_cost(const Glu::Problem& p, const DeviceInfo&) {
  return seconds_for(10.0 * static_cast<double>(p.tokens * p.width));
}

bool can_add(const Add::Problem& p, const DeviceInfo& d) {
  return is_cuda(d) && p.tokens <= kMaxRows;
}
double add_cost(const Add::Problem& p, const DeviceInfo&) {
  return seconds_for(12.0 * static_cast<double>(p.tokens * p.width));
}

bool can_gather(const GatherRows::Problem& p, const DeviceInfo& d) {
  return is_cuda(d) && p.rows <= kMaxRows;
}
double gather_cost(const GatherRows::Problem& p, const DeviceInfo&) {
  return seconds_for(8.0 * static_cast<double>(p.rows * p.width));
}

bool can_sample(const Sample::Problem& p, const DeviceInfo& d) {
  return is_cuda(d) && p.rows <= kMaxRows && p.vocab <= kMaxVocab;
}
double sample_cost(const Sample::Problem& p, const DeviceInfo&) {
  return seconds_for((p.all_greedy ? 8.0 : 160.0) * static_cast<double>(p.rows * p.vocab));
}

}  // namespace

void add_kernels(Registry& registry) {
  constexpr DeviceKind kCuda = DeviceKind::kCuda;
  registry.add<Embed>({{"cuda", kCuda, can_embed, embed_cost, run<Embed>}});
  registry.add<Norm>({{"cuda", kCuda, can_norm, norm_cost, run<Norm>}});
  // No row without the library: the rows that there are decide which engine file fits.
  if (has_cublaslt())
    registry.add<Linear>(
        {{"cublaslt", kCuda, can_product, library_product_cost, run_library_product}});
  registry.add<Linear>({{"plain", kCuda, can_product, plain_product_cost, run<Linear>}});
  registry.add<Rope>({{"cuda", kCuda, can_rope, rope_cost, run<Rope>}});
  registry.add<Attention>({{"cuda", kCuda, can_attention, attention_cost, run_attention}});
  registry.add<Glu>({{"cuda", kCuda, can_glu, glu_cost, run<Glu>}});
  registry.add<Add>({{"cuda", kCuda, can_add, add_cost, run<Add>}});
  registry.add<GatherRows>({{"cuda", kCuda, can_gather, gather_cost, run<GatherRows>}});
  registry.add<Sample>({{"cuda", kCuda, can_sample, sample_cost, run<Sample>}});
}

}  // namespace nereid::kernels::cuda
