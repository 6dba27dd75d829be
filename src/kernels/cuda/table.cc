// CUDA table rows: an op's kernel with its checks; ops with several kernels. Kernels named
// "invariant" are for deterministic engines: a row's bits do not depend on other rows or chunks.
#include "kernels/cuda/table.h"

#include <algorithm>
#include <limits>

#include "kernels/api/pack.h"
#include "kernels/api/validate.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/f8_weights.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/launch.h"
#include "tensor/cuda_check.h"
#include "tensor/cuda_range.h"

namespace nereid::kernels::cuda {
namespace {

static_assert(kUnpackedBytes == kCudaUnpackedBytes);

constexpr DeviceKind kCuda = DeviceKind::kCuda;
constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();  // max grid.x

template <class Op>
int64_t grid_rows(const Op& a) {
  return rows_of(a);
}
int64_t grid_rows(const Sample& a) { return a.problem.rows; }

Scratch scratch_of(CudaStream& cuda) {
  const DeviceInfo& device = cuda.device().info();
  return {cuda.workspace(), kCudaWorkspaceBytes, cuda.unpacked(), cuda.counters(),
          kCudaCounters,    device.num_units,    device.sm};
}

template <class Op>
Status enqueue(const Op& args, Stream& stream,
               cudaError_t (*launch)(const Op&, const Scratch&, cudaStream_t)) {
  auto& cuda = static_cast<CudaStream&>(stream);
  const CudaRange range(Op::kName.data());
  const cudaError_t error = launch(args, scratch_of(cuda), cuda.handle());
  if (error == cudaSuccess) return ok();
  return annotate(cuda_status(error, "launch", stream.device().info().index), Op::kName);
}

template <class Op>
Table<Op> table() {
  if (!row<Op>().launch) return {};
  return {{row<Op>().name, kCuda,
           [](const Op& a, const DeviceInfo&) {
             return grid_rows(a) <= kMaxRows && (!row<Op>().takes || row<Op>().takes(a));
           },
           rank<Op, 1>,
           [](const Op& args, Stream& stream) {
             RETURN_IF_ERROR(validate(args));
             return enqueue(args, stream, row<Op>().launch);
           }}};
}

Status run_plain_product(const Linear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  return enqueue(args, stream, launch_plain);
}

Status run_library_product(const Linear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  const Status status = run_cublaslt(args, static_cast<CudaStream&>(stream));
  // `can` does not test strides and alignments.
  return absl::IsUnimplemented(status) ? run_plain_product(args, stream) : status;
}

// Few rows: own kernel at memory bandwidth; others: the library.
Status run_hopper_product(const Linear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  const int sm = stream.device().info().sm;
  if (takes_narrow_gemv(args, sm)) return enqueue(args, stream, launch_narrow_gemv);
  // fp8: from 5 rows the second kernel is faster.
  constexpr int64_t kMaxF8GemvRows = 4;
  const bool has_many_f8_rows = args.x.dtype == DType::kF8E4M3 && args.x.rows > kMaxF8GemvRows;
  const bool is_skinny = takes_skinny(args, sm);
  if (takes_gemv(args) && !(has_many_f8_rows && is_skinny))
    return enqueue(args, stream, launch_gemv);
  if (is_skinny) return enqueue(args, stream, launch_skinny);
  return has_cublaslt() ? run_library_product(args, stream) : run_plain_product(args, stream);
}

// Converts weight rows to bf16 in parts, for the library.
Status run_unpacked_product(const Linear& args, Stream& stream) {
  auto& cuda = static_cast<CudaStream&>(stream);
  const WeightView& w = args.weight;
  constexpr int64_t kTileOutputs = 128;  // of the library's products
  int64_t rows = kUnpackedBytes / (static_cast<int64_t>(sizeof(BF16)) * w.k);
  if (rows > kTileOutputs) rows -= rows % kTileOutputs;
  for (int64_t row = 0; row < w.n; row += rows) {
    Linear part = args;
    part.weight = {cuda.unpacked(), WeightLayout::kRowMajor, std::min(rows, w.n - row), w.k};
    part.out.data = static_cast<std::byte*>(args.out.data) +
                    row * static_cast<int64_t>(size_of(args.out.dtype));
    part.out.cols = part.weight.n;
    if (is_given(args.bias)) {
      part.bias.data = args.bias.as_bf16() + row;
      part.bias.k = part.weight.n;
    }
    const auto launch = has_f8_groups(w.format) ? launch_widen : launch_unpack;
    const cudaError_t error = launch(w, row, part.weight.n, cuda.unpacked(), cuda.handle());
    RETURN_IF_ERROR(annotate(cuda_status(error, "launch", stream.device().info().index), "linear"));
    RETURN_IF_ERROR(has_cublaslt() ? run_library_product(part, stream)
                                   : run_plain_product(part, stream));
  }
  return ok();
}

// Calls f with parts of the product of <= `most` rows.
template <class F>
Status for_each_part(const Linear& args, int64_t most, F f) {
  for (int64_t row = 0; row < args.x.rows; row += most) {
    Linear part = args;
    const auto skip = [&](View& v) {
      v.data =
          static_cast<std::byte*>(v.data) + row * v.stride * static_cast<int64_t>(size_of(v.dtype));
      v.rows = std::min(most, args.x.rows - row);
    };
    skip(part.x);
    skip(part.out);
    if (is_given(part.scales)) skip(part.scales);
    RETURN_IF_ERROR(f(part));
  }
  return ok();
}

// Integers: few rows by own kernels, which read the weight once per kSkinnyRows rows.
Status run_integer_product(const Linear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  // With more rows, conversion of the weight to bf16 is cheaper.
  const int64_t max_integer_rows = args.weight.format.bits == 4 ? 256 : 192;
  const bool takes_few = takes_few_rows_of_integers(args);
  if (takes_narrow_gemv(args, stream.device().info().sm))
    return enqueue(args, stream, launch_narrow_gemv);
  if (args.x.rows > max_integer_rows) return run_unpacked_product(args, stream);
  if (takes_few && args.x.rows <= kMaxGemvRows)
    return enqueue(args, stream, launch_few_rows_of_integers);
  if (args.x.rows <= kMaxGemvRows) return run_plain_product(args, stream);
  Linear few = args;
  few.x.rows = std::min(args.x.rows, kSkinnyRows);
  if (takes_skinny(few, stream.device().info().sm))
    return for_each_part(args, kSkinnyRows,
                         [&](const Linear& part) { return enqueue(part, stream, launch_skinny); });
  if (takes_few && args.x.rows <= kSkinnyRows)
    return enqueue(args, stream, launch_few_rows_of_integers);
  return run_unpacked_product(args, stream);
}

Status run_invariant_product(const Linear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  Linear few = args;
  few.x.rows = std::min(args.x.rows, kSkinnyRows);
  if (takes_skinny(few, stream.device().info().sm))
    return for_each_part(args, kSkinnyRows, [&](const Linear& part) {
      return enqueue(part, stream, launch_invariant_skinny);
    });
  return for_each_part(args, kMaxPlainFewRows,
                       [&](const Linear& part) { return enqueue(part, stream, launch_plain); });
}

// Few rows: own kernel; others: weight converted to bf16 in parts.
Status run_grouped_product(const Linear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  const bool aligned = reinterpret_cast<uintptr_t>(args.weight.data) % sizeof(uint64_t) == 0;
  if (args.x.rows <= kMaxPlainFewRows || !aligned) return run_plain_product(args, stream);
  return run_unpacked_product(args, stream);
}

// i8 rows are multiplied on CPUs only.
template <class Op>
bool reads(const Op& a) {
  const bool takes_x =
      a.x.dtype == DType::kBF16 || (a.x.dtype == DType::kF8E4M3 && !has_f8_groups(a.weight.format));
  const bool mxfp4 = a.weight.format.scheme == Scheme::kFloat4;
  return takes_x && a.out.rows <= kMaxRows && !a.weight.format.ordered &&
         a.weight.layout == (mxfp4 ? WeightLayout::kFragments : WeightLayout::kRowMajor);
}

bool can_product(const Linear& a, const DeviceInfo&) {
  return reads(a) && a.weight.n <= kMaxLinearOutputs && a.weight.format.scheme != Scheme::kFloat4;
}
bool can_library_product(const Linear& a, const DeviceInfo& d) {
  return can_product(a, d) && a.weight.format.is_float();
}
bool can_hopper_product(const Linear& a, const DeviceInfo& d) {
  const bool fp8 = a.x.dtype == DType::kF8E4M3;
  return can_product(a, d) && d.sm == 90 && (fp8 || a.weight.format.is_float()) &&
         a.weight.k % (fp8 ? 16 : 8) == 0;
}
bool can_integer_product(const Linear& a, const DeviceInfo& d) {
  return can_product(a, d) && a.weight.format.scheme == Scheme::kInteger && a.weight.k % 8 == 0 &&
         a.weight.k * static_cast<int64_t>(sizeof(BF16)) <= kUnpackedBytes;
}
bool can_grouped_product(const Linear& a, const DeviceInfo& d) {
  return can_product(a, d) && has_f8_groups(a.weight.format) && a.weight.k % 8 == 0 &&
         a.weight.k * static_cast<int64_t>(sizeof(BF16)) <= kUnpackedBytes;
}

template <>
Table<Linear> table<Linear>() {
  Table<Linear> rows = {
      {"hopper", kCuda, can_hopper_product, rank<Linear, 1>, run_hopper_product},
      {"integer", kCuda, can_integer_product, rank<Linear, 1>, run_integer_product},
      {"grouped", kCuda, can_grouped_product, rank<Linear, 1>, run_grouped_product},
      {"plain", kCuda, can_product, rank<Linear, 3>, run_plain_product},
      {"invariant", kCuda, can_product, rank<Linear, 4>, run_invariant_product}};
  // No row without the library: an engine file must match the existing rows.
  if (has_cublaslt())
    rows.push_back({"cublaslt", kCuda, can_library_product, rank<Linear, 2>, run_library_product});
  return rows;
}

// Named as Linear's row that it replaces. bf16 and f8e4m3 weights: for int4 a fused form gained
// nothing (docs/performance/gpu-steps.md).
bool can_fuse_hopper(const FusedLinear& a, const DeviceInfo& d) {
  return d.sm == 90 && kGemvBlocksPerUnit * d.num_units <= kFusedSquares &&
         can_product(Linear{a.x, {}, a.weight, a.bias, a.out}, d) &&
         (takes_gemv(a) || takes_rounding_gemv(a));
}
Status run_fused(const FusedLinear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  // Conditions that `can` does not test.
  if (!is_aligned(args.x.data) || !is_aligned(args.weight.data) || !fits_squares(args.x_squares))
    return internal_error("fused_linear: x, weight or x_squares is not aligned to 16 bytes");
  return args.rounds ? enqueue<FusedLinear>(args, stream, launch_rounding_gemv)
                     : enqueue<FusedLinear>(args, stream, launch_gemv);
}

template <>
Table<FusedLinear> table<FusedLinear>() {
  return {{"hopper", kCuda, can_fuse_hopper, rank<FusedLinear, 1>, run_fused}};
}

Status run_plain_experts(const ExpertLinear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  return enqueue(args, stream, launch_plain_experts);
}
Status run_hopper_experts(const ExpertLinear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  const bool takes = takes_hopper_experts(args, scratch_of(static_cast<CudaStream&>(stream)));
  if (!takes && args.gated)
    return unsupported("expert_linear: {} rows of {} experts for gated units", args.out.rows,
                       args.experts.cols);
  return enqueue(args, stream, takes ? launch_hopper_experts : launch_plain_experts);
}
Status run_invariant_experts(const ExpertLinear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  // Tensor-core sums of f8e4m3 have differed in the last bit with a row's position.
  const bool takes = args.x.dtype != DType::kF8E4M3 && can_be_hopper_experts(args) &&
                     takes_hopper_experts(args, scratch_of(static_cast<CudaStream&>(stream)));
  return enqueue(args, stream, takes ? launch_invariant_experts : launch_plain_experts);
}
// Experts' group-scaled f8e4m3 is converted to bf16 when the engine is built, for the fast kernel.
bool reads_experts(const ExpertLinear& a) { return reads(a) && !has_f8_groups(a.weight.format); }
bool can_plain_experts(const ExpertLinear& a, const DeviceInfo&) {
  return reads_experts(a) && !a.gated;
}
bool can_hopper_experts(const ExpertLinear& a, const DeviceInfo& d) {
  return reads_experts(a) && d.sm == 90 && can_be_hopper_experts(a);
}

template <>
Table<ExpertLinear> table<ExpertLinear>() {
  return {{"hopper", kCuda, can_hopper_experts, rank<ExpertLinear, 1>, run_hopper_experts},
          {"plain", kCuda, can_plain_experts, rank<ExpertLinear, 2>, run_plain_experts},
          {"invariant", kCuda, can_plain_experts, rank<ExpertLinear, 3>, run_invariant_experts}};
}

template <>
Table<Attention> table<Attention>() {
  const auto can = [](const Attention& a, const DeviceInfo&) {
    return grid_rows(a) <= kMaxRows && (a.bidirectional || !a.cache.has_last) && takes_attention(a);
  };
  const auto run = [](const Attention& args, Stream& stream) -> Status {
    RETURN_IF_ERROR(validate(args));
    return enqueue(args, stream, launch_attention);
  };
  const auto can_latent = [](const Attention& a, const DeviceInfo& d) {
    return grid_rows(a) <= kMaxRows && !a.cache.has_last && takes_latent_attention(a, d.sm);
  };
  const auto run_latent = [](const Attention& args, Stream& stream) -> Status {
    RETURN_IF_ERROR(validate(args));
    return enqueue(args, stream, launch_latent_attention);
  };
  const auto run_invariant = [](const Attention& args, Stream& stream) -> Status {
    RETURN_IF_ERROR(validate(args));
    return enqueue(args, stream, launch_invariant_attention);
  };
  return {{"latent", kCuda, can_latent, rank<Attention, 1>, run_latent},
          {"cuda", kCuda, can, rank<Attention, 2>, run},
          {"invariant", kCuda, can, rank<Attention, 3>, run_invariant}};
}

}  // namespace

bool is_for_library(std::string_view kernel, const Linear& a, int sm) {
  if (kernel == "cublaslt") return true;
  return kernel == "hopper" && !takes_narrow_gemv(a, sm) && !takes_gemv(a) && !takes_skinny(a, sm);
}

void add_kernels(Registry& registry) {
  registry.add_all([]<class Op>() { return table<Op>(); });
  if (has_cublaslt()) registry.tuner = {measure_products, use_choices};
}

}  // namespace nereid::kernels::cuda
