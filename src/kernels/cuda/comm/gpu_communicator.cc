// A rank's endpoint: checks of its calls, then the group's launches.
#include <algorithm>

#include "kernels/cuda/comm/gpu_group.h"
#include "tensor/cuda_check.h"
#include "tensor/cuda_device.h"

namespace nereid::kernels::cuda {
namespace {

class GpuCommunicator final : public comm::Communicator {
 public:
  GpuCommunicator(std::shared_ptr<GpuGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~GpuCommunicator() override { abort(unavailable("rank {} has left the group", rank_)); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  Status all_reduce(const void* in, void* out, int64_t count, DType type, Stream& s) override {
    RETURN_IF_ERROR(ready(s));
    RETURN_IF_ERROR(or_abort(check_sum("all_reduce", count, type)));
    const int64_t bytes = bytes_of(count, type);
    if (count == 0) return ok();
    if (size() == 1) return in == out ? ok() : s.copy(out, in, static_cast<size_t>(bytes));
    return or_abort(group_->run(rank_, group_->route(bytes), in, out, count, type, handle(s)));
  }

  Status all_reduce_norm(const comm::ReducedNorm& args, Stream& s) override {
    RETURN_IF_ERROR(ready(s));
    RETURN_IF_ERROR(or_abort(check_norm(args)));
    if (args.x.rows == 0) return ok();
    const Route route = size() == 1
                            ? Route()
                            : group_->norm_route(bytes_of(args.x.rows * args.x.cols, args.x.dtype));
    return or_abort(group_->run_norm(rank_, route, args, handle(s)));
  }

  Status all_gather(const void* in, void* out, int64_t count, DType type, Stream& s) override {
    RETURN_IF_ERROR(ready(s));
    RETURN_IF_ERROR(or_abort(check_count("all_gather", count)));
    const int64_t bytes = bytes_of(count, type);
    return run_columns({in, out, 0, 0, 1, bytes, rank_ * bytes}, size() * bytes, s);
  }

  Status reduce_scatter(const void* in, void* out, int64_t count, DType type, Stream& s) override {
    RETURN_IF_ERROR(ready(s));
    RETURN_IF_ERROR(or_abort(check_sum("reduce_scatter", count, type)));
    const int64_t bytes = bytes_of(count, type);
    if (count == 0) return ok();
    if (size() == 1) return in == out ? ok() : s.copy(out, in, static_cast<size_t>(bytes));
    return launched(launch_direct_sum(group_->peers(rank_), in, out, count, type, /*scatter=*/true,
                                      group_->blocks_for(bytes), handle(s)),
                    "reduce_scatter");
  }

  Status gather_columns(const View& x, int64_t unit, const View& out, Stream& s) override {
    RETURN_IF_ERROR(ready(s));
    RETURN_IF_ERROR(or_abort(check_columns(x, unit, out)));
    const auto element = static_cast<int64_t>(size_of(out.dtype));
    const int64_t units = out.cols / unit;
    const int64_t first = units * rank_ / size(), end = units * (rank_ + 1) / size();
    return run_columns({x.data, out.data, x.stride * element, out.stride * element, out.rows,
                        (end - first) * unit * element, first * unit * element},
                       out.rows * out.cols * element, s);
  }

  Status broadcast(void* data, size_t bytes, int from, Stream& s) override {
    RETURN_IF_ERROR(ready(s));
    if (from < 0 || from >= size())
      return or_abort(invalid_argument("from: rank {} is not in [0, {})", from, size()));
    const auto all = static_cast<int64_t>(bytes);
    return run_columns({data, data, 0, 0, rank_ == from ? 1 : 0, all, 0}, all, s);
  }

  Status send(const void* data, size_t bytes, int to, Stream& s) override {
    RETURN_IF_ERROR(ready(s));
    RETURN_IF_ERROR(or_abort(check_other("to", to)));
    return launched(
        launch_send(group_->peers(rank_), data, static_cast<int64_t>(bytes), to, handle(s)),
        "send");
  }
  Status recv(void* data, size_t bytes, int from, Stream& s) override {
    RETURN_IF_ERROR(ready(s));
    RETURN_IF_ERROR(or_abort(check_other("from", from)));
    return launched(
        launch_recv(group_->peers(rank_), data, static_cast<int64_t>(bytes), from, handle(s)),
        "recv");
  }

  Status barrier(Stream& s) override {
    RETURN_IF_ERROR(ready(s));
    return run_columns({}, 1, s);
  }

  Status failure() const override { return group_->failure(); }
  void abort(const Status& reason) override { group_->abort(reason); }
  std::string text() const override { return group_->text(); }

 private:
  static cudaStream_t handle(Stream& s) { return static_cast<cudaStream_t>(s.native()); }
  static int64_t bytes_of(int64_t count, DType type) {
    return count * static_cast<int64_t>(size_of(type));
  }

  // `total`: bytes that all ranks together have in the end, the same on all.
  Status run_columns(const Columns& columns, int64_t total, Stream& s) {
    if (total == 0) return ok();
    if (size() == 1) {
      if (columns.in == columns.out) return ok();
      return s.copy_rows(columns.out, static_cast<size_t>(columns.out_stride), columns.in,
                         static_cast<size_t>(columns.in_stride), static_cast<size_t>(columns.bytes),
                         static_cast<size_t>(columns.rows));
    }
    return launched(
        launch_columns(group_->peers(rank_), columns, group_->blocks_for(total), handle(s)),
        "exchange of columns");
  }

  // Whether the group lives and the stream is of this rank's card.
  Status ready(const Stream& s) {
    RETURN_IF_ERROR(group_->failure());
    const DeviceInfo& mine = group_->device(rank_).info();
    const DeviceInfo& theirs = s.device().info();
    if (theirs.kind == mine.kind && theirs.index == mine.index) return ok();
    return or_abort(
        invalid_argument("the stream is of {}, this rank's device is {}", theirs.id(), mine.id()));
  }

  static Status check_count(std::string_view what, int64_t count) {
    if (count >= 0) return ok();
    return invalid_argument("{}: count: {} is negative", what, count);
  }
  static Status check_sum(std::string_view what, int64_t count, DType type) {
    RETURN_IF_ERROR(check_count(what, count));
    if (type == DType::kF32 || type == DType::kBF16) return ok();
    return invalid_argument("{}: type '{}' is not f32 or bf16", what, nereid::name_of(type));
  }

  static Status check_norm(const comm::ReducedNorm& a) {
    const View& x = a.x;
    if (x.dtype != DType::kBF16 && x.dtype != DType::kF32)
      return invalid_argument("all_reduce_norm: x is {}, not f32 or bf16",
                              nereid::name_of(x.dtype));
    if (x.stride != x.cols)
      return invalid_argument("all_reduce_norm: rows of x are {} numbers apart, not {}", x.stride,
                              x.cols);
    for (const View* other : {&a.sum, &a.out})
      if (other->rows != x.rows || other->cols != x.cols)
        return invalid_argument("all_reduce_norm: sum or out is [{}, {}], x is [{}, {}]",
                                other->rows, other->cols, x.rows, x.cols);
    if (a.sum.dtype != DType::kF32)
      return invalid_argument("all_reduce_norm: sum is {}, not f32", nereid::name_of(a.sum.dtype));
    if (a.out.dtype != DType::kBF16 && a.out.dtype != DType::kF32 && a.out.dtype != DType::kF8E4M3)
      return invalid_argument("all_reduce_norm: out is {}, not bf16, f32 or f8e4m3",
                              nereid::name_of(a.out.dtype));
    if ((a.out.dtype == DType::kF8E4M3) != (a.scales.data != nullptr))
      return invalid_argument("all_reduce_norm: scales are given where out is f8e4m3, there alone");
    return ok();
  }

  Status check_columns(const View& x, int64_t unit, const View& out) const {
    if (unit < 1 || out.cols % unit != 0)
      return invalid_argument("gather_columns: unit {} does not divide the {} columns of 'out'",
                              unit, out.cols);
    const int64_t units = out.cols / unit;
    const int64_t mine = unit * (units * (rank_ + 1) / size() - units * rank_ / size());
    if (x.rows == out.rows && x.dtype == out.dtype && x.cols >= mine) return ok();
    return invalid_argument(
        "gather_columns: x is {} [{}, {}]; for 'out' {} [{}, {}] it must be {} [{}, >= {}]",
        nereid::name_of(x.dtype), x.rows, x.cols, nereid::name_of(out.dtype), out.rows, out.cols,
        nereid::name_of(out.dtype), out.rows, mine);
  }

  Status check_other(std::string_view field, int other) const {
    if (other >= 0 && other < size() && other != rank_) return ok();
    return invalid_argument("{}: rank {} is not another one in [0, {})", field, other, size());
  }

  Status launched(cudaError_t error, const char* what) {
    return or_abort(cuda_status(error, what, group_->device(rank_).info().index));
  }

  // Otherwise the other ranks would wait for a call that never comes.
  Status or_abort(Status status) {
    if (!status.ok()) abort(annotate(status, fmt::format("rank {}", rank_)));
    return status;
  }

  const std::shared_ptr<GpuGroup> group_;
  const int rank_;
};

}  // namespace

Status join(std::span<Device* const> devices, const comm::GroupOptions& options,
            std::vector<std::unique_ptr<comm::Communicator>>* ranks) {
  ASSIGN_OR_RETURN(const std::shared_ptr<GpuGroup> group, GpuGroup::create(devices, options));
  ranks->clear();
  for (int rank = 0; rank < group->size(); ++rank)
    ranks->push_back(std::make_unique<GpuCommunicator>(group, rank));
  return ok();
}

}  // namespace nereid::kernels::cuda
