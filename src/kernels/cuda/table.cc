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
  const Scratch scratch = {cuda.workspace(), kCudaWorkspaceBytes, cuda.counters(),
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
