// The CUDA rows: an op's kernel with its checks around it, and the kernels of Linear.
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

static_assert(kUnpackedBytes == kCudaUnpackedBytes);

constexpr DeviceKind kCuda = DeviceKind::kCuda;
constexpr double kTensorFlops = 7e14;
constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();  // blocks of a grid's x axis

template <class Op>
int64_t grid_rows(const Op& a) {
  return rows_of(a);
}
int64_t grid_rows(const Sample& a) { return a.problem.rows; }

template <class Op>
Status enqueue(const Op& args, Stream& stream,
               cudaError_t (*launch)(const Op&, const Scratch&, cudaStream_t)) {
  const auto& cuda = static_cast<CudaStream&>(stream);
  const DeviceInfo& device = stream.device().info();
  const Scratch scratch = {cuda.workspace(), kCudaWorkspaceBytes, cuda.unpacked(), cuda.counters(),
                           kCudaCounters,    device.num_units,    device.sm};
  const cudaError_t error = launch(args, scratch, cuda.handle());
  if (error == cudaSuccess) return ok();
  return annotate(cuda_status(error, "launch", device.index), Op::kName);
}

template <class Op>
Table<Op> table() {
  if (!row<Op>().launch) return {};
  return {{row<Op>().name, kCuda,
           [](const Op& a, const DeviceInfo&) {
             return grid_rows(a) <= kMaxRows && (!row<Op>().takes || row<Op>().takes(a));
           },
           [](const Op& a, const DeviceInfo&) { return row<Op>().cost(a); },
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
  // `can` does not look at strides and alignments.
  return absl::IsUnimplemented(status) ? run_plain_product(args, stream) : status;
}

// Few rows by our own kernel, which reads the weight at the memory's speed, others by the library.
Status run_hopper_product(const Linear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  if (takes_gemv(args)) return enqueue(args, stream, launch_gemv);
  if (takes_skinny(args, stream.device().info().sm)) return enqueue(args, stream, launch_skinny);
  return has_cublaslt() ? run_library_product(args, stream) : run_plain_product(args, stream);
}

// With the weight's rows made bf16 in parts, for the library.
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
    const cudaError_t error = launch_unpack(w, row, part.weight.n, cuda.unpacked(), cuda.handle());
    RETURN_IF_ERROR(annotate(cuda_status(error, "launch", stream.device().info().index), "linear"));
    RETURN_IF_ERROR(has_cublaslt() ? run_library_product(part, stream)
                                   : run_plain_product(part, stream));
  }
  return ok();
}

// Integers: few rows by our own kernels, which read the weight once for so many rows.
Status run_integer_product(const Linear& args, Stream& stream) {
  RETURN_IF_ERROR(validate(args));
  constexpr int64_t kMaxIntegerRows = 192;  // with more, making bf16 of the weight costs less
  const bool takes_few = takes_few_rows_of_integers(args);
  if (args.x.rows > kMaxIntegerRows) return run_unpacked_product(args, stream);
  if (takes_few && args.x.rows <= kMaxGemvRows)
    return enqueue(args, stream, launch_few_rows_of_integers);
  if (args.x.rows <= kMaxGemvRows) return run_plain_product(args, stream);
  for (int64_t row = 0; row < args.x.rows; row += kSkinnyRows) {
    Linear part = args;
    const int64_t rows = std::min(kSkinnyRows, args.x.rows - row);
    const auto skip = [&](View& v) {
      v.data =
          static_cast<std::byte*>(v.data) + row * v.stride * static_cast<int64_t>(size_of(v.dtype));
      v.rows = rows;
    };
    skip(part.x);
    skip(part.out);
    if (takes_skinny(part, stream.device().info().sm))
      RETURN_IF_ERROR(enqueue(part, stream, launch_skinny));
    else if (takes_few && args.x.rows <= kSkinnyRows)
      RETURN_IF_ERROR(enqueue(part, stream, launch_few_rows_of_integers));
    else
      return run_unpacked_product(args, stream);
  }
  return ok();
}

bool can_product(const Linear& a, const DeviceInfo&) {
  return a.out.rows <= kMaxRows && a.weight.layout == WeightLayout::kRowMajor &&
         !a.weight.format.ordered && a.weight.n <= kMaxLinearOutputs;
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

template <>
Table<Linear> table<Linear>() {
  Table<Linear> rows = {
      {"hopper", kCuda, can_hopper_product, hopper_product_cost, run_hopper_product},
      {"integer", kCuda, can_integer_product, hopper_product_cost, run_integer_product},
      {"plain", kCuda, can_product, plain_product_cost, run_plain_product}};
  // No row without the library: the rows that there are decide which engine file fits.
  if (has_cublaslt())
    rows.push_back(
        {"cublaslt", kCuda, can_library_product, library_product_cost, run_library_product});
  return rows;
}

}  // namespace

void add_kernels(Registry& registry) {
  registry.add_all([]<class Op>() { return table<Op>(); });
}

}  // namespace nereid::kernels::cuda
