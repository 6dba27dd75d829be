// Collectives over staging buffers of a link.
#include "comm/collectives.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/copy_bytes.h"
#include "comm/sums.h"
#include "tensor/thread_pool.h"

namespace nereid::comm {
namespace {

constexpr auto kPieceBytes = static_cast<int64_t>(kStagingBytes);
// Work of more bytes is divided among the threads of the rank's device, in chunks of this size.
constexpr int64_t kChunkBytes = 32 << 10;
constexpr int64_t kShareElements = 64;  // shares are multiples of it: no cache line is shared

Status check_apart(const void* in, size_t in_bytes, const void* out, size_t out_bytes) {
  const auto* const a = static_cast<const std::byte*>(in);
  const auto* const b = static_cast<const std::byte*>(out);
  if (in_bytes == 0 || out_bytes == 0 || a + in_bytes <= b || b + out_bytes <= a) return ok();
  return invalid_argument("'in' and 'out' share some memory; allowed are none, or in place");
}

// Columns [first, first + cols) of a matrix as one sequence of bytes, row after row.
struct Columns {
  std::byte* data;
  size_t row_bytes, stride_bytes;
  int64_t rows;

  size_t size() const { return row_bytes * static_cast<size_t>(rows); }
  // Calls fn(matrix, sequence - begin, bytes) for the pieces of rows in [begin, end).
  template <class F>
  void each(size_t begin, size_t end, const F& fn) const {
    for (size_t at = begin; at < end;) {
      const size_t row = at / row_bytes, column = at % row_bytes;
      const size_t n = std::min(end - at, row_bytes - column);
      fn(data + row * stride_bytes + column, at - begin, n);
      at += n;
    }
  }
};

class HostCommunicator final : public Communicator {
 public:
  explicit HostCommunicator(std::unique_ptr<Link> group) : group_(std::move(group)) {}
  ~HostCommunicator() override { abort(unavailable("rank {} has left the group", rank())); }

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  Status all_reduce(const void* in, void* out, int64_t count, DType type, Stream& stream) override {
    RETURN_IF_ERROR(check_sum("all_reduce", count, type, stream));
    const size_t bytes = static_cast<size_t>(count) * size_of(type);
    if (in != out) RETURN_IF_ERROR(or_abort(check_apart(in, bytes, out, bytes)));
    const Call call{.kind = Call::Kind::kAllReduce, .type = int32_t(type), .count = count};
    if (size() == 1 || count == 0) return copy_alone(call, in, out, bytes, stream);
    const auto element = static_cast<int64_t>(size_of(type));
    for (int64_t first = 0; first < count; first += kPieceBytes / element) {
      const int64_t n = std::min(count - first, kPieceBytes / element);
      RETURN_IF_ERROR(reduce_piece(call, static_cast<const std::byte*>(in) + first * element,
                                   static_cast<std::byte*>(out) + first * element, n, type,
                                   stream));
    }
    return ok();
  }

  Status all_gather(const void* in, void* out, int64_t count, DType type, Stream& stream) override {
    RETURN_IF_ERROR(check_count(count, stream));
    const size_t row = static_cast<size_t>(count) * size_of(type);
    const auto ranks = static_cast<size_t>(size());
    auto* const to = static_cast<std::byte*>(out);
    if (in != to + row * static_cast<size_t>(rank()))
      RETURN_IF_ERROR(or_abort(check_apart(in, row, out, row * ranks)));
    const Call call{.kind = Call::Kind::kAllGather, .type = int32_t(type), .count = count};
    return gather(
        call, {static_cast<std::byte*>(const_cast<void*>(in)), row, row, 1},
        [&](int r) {
          return Columns{to + row * static_cast<size_t>(r), row, row, 1};
        },
        stream);
  }

  Status reduce_scatter(const void* in, void* out, int64_t count, DType type,
                        Stream& stream) override {
    RETURN_IF_ERROR(check_sum("reduce_scatter", count, type, stream));
    const auto element = static_cast<int64_t>(size_of(type));
    const auto* const from = static_cast<const std::byte*>(in);
    const auto row = static_cast<size_t>(count * element), ranks = static_cast<size_t>(size());
    if (out != from + row * static_cast<size_t>(rank()))
      RETURN_IF_ERROR(or_abort(check_apart(in, row * ranks, out, row)));
    const Call call{.kind = Call::Kind::kReduceScatter, .type = int32_t(type), .count = count};
    if (size() == 1 || count == 0) return copy_alone(call, in, out, row, stream);
    const int64_t most = kPieceBytes / element / size() / kShareElements * kShareElements;
    for (int64_t first = 0; first < count; first += most) {
      const int64_t n = std::min(count - first, most);
      std::byte* const staging = group_->next_staging();
      for (int r = 0; r < size(); ++r)
        copy(staging + r * most * element, from + (r * count + first) * element, n * element,
             stream);
      const auto staged = static_cast<size_t>(((size() - 1) * most + n) * element);
      RETURN_IF_ERROR(group_->exchange(call, staged, num_threads(stream)));
      sum(rank() * most * element, static_cast<std::byte*>(out) + first * element, n, type, stream);
    }
    return ok();
  }

  Status gather_columns(const View& x, int64_t unit, const View& out, Stream& stream) override {
    RETURN_IF_ERROR(or_abort(check_stream(stream)));
    RETURN_IF_ERROR(or_abort(check_columns(x, unit, out)));
    const size_t element = size_of(out.dtype);
    const int64_t units = out.cols / unit;
    const auto begin = [&](int r) { return units * r / size() * unit; };
    const auto columns = [&](const View& v, int64_t first, int r) {
      return Columns{static_cast<std::byte*>(v.data) + static_cast<size_t>(first) * element,
                     static_cast<size_t>(begin(r + 1) - begin(r)) * element,
                     static_cast<size_t>(v.stride) * element, v.rows};
    };
    const Call call{.kind = Call::Kind::kGatherColumns,
                    .type = int32_t(out.dtype),
                    .count = out.rows,
                    .unit = unit,
                    .units = units};
    return gather(
        call, columns(x, 0, rank()), [&](int r) { return columns(out, begin(r), r); }, stream);
  }

  Status broadcast(void* data, size_t bytes, int from, Stream& stream) override {
    RETURN_IF_ERROR(or_abort(check_stream(stream)));
    if (from < 0 || from >= size())
      return or_abort(invalid_argument("from: rank {} is not in [0, {})", from, size()));
    const Call call{.kind = Call::Kind::kBroadcast,
                    .type = int32_t(DType::kU8),
                    .count = static_cast<int64_t>(bytes),
                    .root = from};
    auto* const all = static_cast<std::byte*>(data);
    const auto total = static_cast<int64_t>(bytes);
    int64_t first = 0;
    do {
      const int64_t n = std::min(total - first, kPieceBytes);
      if (rank() == from) copy(group_->next_staging(), all + first, n, stream);
      const size_t staged = rank() == from ? static_cast<size_t>(n) : 0;
      RETURN_IF_ERROR(group_->exchange(call, staged, num_threads(stream)));
      if (rank() != from) copy(all + first, group_->staged(from), n, stream);
      first += n;
    } while (first < total);
    return ok();
  }

  Status send(const void* data, size_t bytes, int to, Stream& stream) override {
    RETURN_IF_ERROR(or_abort(check_other("to", to)));
    RETURN_IF_ERROR(or_abort(check_stream(stream)));
    return group_->send(to, data, bytes, num_threads(stream));
  }
  Status recv(void* data, size_t bytes, int from, Stream& stream) override {
    RETURN_IF_ERROR(or_abort(check_other("from", from)));
    RETURN_IF_ERROR(or_abort(check_stream(stream)));
    return group_->recv(from, data, bytes, num_threads(stream));
  }

  Status barrier(Stream& stream) override {
    RETURN_IF_ERROR(or_abort(check_stream(stream)));
    return group_->exchange({}, 0, num_threads(stream));
  }

  Status failure() const override { return group_->failure(); }
  void abort(const Status& reason) override { group_->fail(reason); }

 private:
  static ThreadPool& pool_of(Stream& stream) { return *static_cast<ThreadPool*>(stream.native()); }
  static int num_threads(Stream& stream) { return pool_of(stream).num_threads(); }

  // Calls fn(begin, end) for ranges that cover [0, items), on the threads of the rank's device.
  template <class F>
  static void divide(int64_t items, int64_t item_bytes, Stream& stream, const F& fn) {
    ThreadPool& pool = pool_of(stream);
    if (items * item_bytes <= kChunkBytes || pool.num_threads() == 1) return fn(int64_t{0}, items);
    pool.parallel_for(items, kChunkBytes / item_bytes,
                      [&](int64_t begin, int64_t end, int) { fn(begin, end); });
  }

  static void copy(std::byte* to, const std::byte* from, int64_t bytes, Stream& stream) {
    divide(bytes, 1, stream, [&](int64_t begin, int64_t end) {
      copy_bytes(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
  }

  // out [count] = sum of what all ranks have staged at `offset`.
  void sum(int64_t offset, std::byte* out, int64_t count, DType type, Stream& stream) const {
    const auto element = static_cast<int64_t>(size_of(type));
    const auto ranks = static_cast<size_t>(size());
    divide(count, element, stream, [&](int64_t begin, int64_t end) {
      std::array<const std::byte*, kMaxHostRanks> parts;
      for (size_t r = 0; r < ranks; ++r)
        parts[r] = group_->staged(static_cast<int>(r)) + offset + begin * element;
      sum_parts(std::span(parts).first(ranks), end - begin, type, out + begin * element);
    });
  }

  // A sum of one rank, or of no elements; ranks compare their calls here, too.
  Status copy_alone(const Call& call, const void* in, void* out, size_t bytes, Stream& stream) {
    RETURN_IF_ERROR(group_->exchange(call, 0, num_threads(stream)));
    if (in != out) {
      const auto* const from =
          static_cast<const std::byte*>(in) +
          (call.kind == Call::Kind::kReduceScatter ? bytes * static_cast<size_t>(rank()) : 0);
      copy(static_cast<std::byte*>(out), from, static_cast<int64_t>(bytes), stream);
    }
    return ok();
  }

  Status reduce_piece(const Call& call, const std::byte* in, std::byte* out, int64_t count,
                      DType type, Stream& stream) {
    const auto element = static_cast<int64_t>(size_of(type));
    copy(group_->next_staging(), in, count * element, stream);
    const auto bytes = static_cast<size_t>(count * element);
    RETURN_IF_ERROR(group_->exchange(call, bytes, num_threads(stream)));
    if (group_->sums_whole(count * element)) {
      sum(0, out, count, type, stream);
      return ok();
    }
    const int64_t share =
        (count / size() + kShareElements) / kShareElements * kShareElements;  // of each rank
    const auto begin_of = [&](int64_t r) { return std::min(count, r * share); };
    const int64_t begin = begin_of(rank()), end = begin_of(rank() + 1);
    sum(begin * element, group_->next_staging() + begin * element, end - begin, type, stream);
    RETURN_IF_ERROR(
        group_->exchange(call, static_cast<size_t>(end * element), num_threads(stream)));
    for (int i = 0; i < size(); ++i) {
      const int r = (rank() + i) % size();  // not all ranks read the same one at a time
      const int64_t offset = begin_of(r) * element;
      copy(out + offset, group_->staged(r) + offset, begin_of(r + 1) * element - offset, stream);
    }
    return ok();
  }

  // The bytes of `mine` of every rank, to to(r) of every rank r.
  template <class To>
  Status gather(const Call& call, const Columns& mine, const To& to, Stream& stream) {
    size_t most = 0;  // of a rank
    for (int r = 0; r < size(); ++r) most = std::max(most, to(r).size());
    size_t first = 0;
    do {
      const auto pass = [&](const Columns& c, std::byte* staging, const std::byte* staged) {
        const size_t end = std::min(c.size(), first + kStagingBytes);
        if (end <= first) return;
        divide(static_cast<int64_t>(end - first), 1, stream, [&](int64_t from, int64_t until) {
          c.each(first + static_cast<size_t>(from), first + static_cast<size_t>(until),
                 [&](std::byte* x, size_t at, size_t bytes) {
                   const auto offset = static_cast<size_t>(from) + at;
                   if (staging) {
                     std::memcpy(staging + offset, x, bytes);
                   } else {
                     std::memcpy(x, staged + offset, bytes);
                   }
                 });
        });
      };
      pass(mine, group_->next_staging(), nullptr);
      const size_t staged = std::min(mine.size() - std::min(first, mine.size()), kStagingBytes);
      RETURN_IF_ERROR(group_->exchange(call, staged, num_threads(stream)));
      for (int i = 0; i < size(); ++i) {
        const int r = (rank() + i) % size();
        pass(to(r), nullptr, group_->staged(r));
      }
      first += kStagingBytes;
    } while (first < most);
    return ok();
  }

  Status check_count(int64_t count, Stream& stream) {
    RETURN_IF_ERROR(or_abort(check_stream(stream)));
    if (count >= 0) return ok();
    return or_abort(invalid_argument("count: {} is negative", count));
  }

  Status check_sum(std::string_view call, int64_t count, DType type, Stream& stream) {
    RETURN_IF_ERROR(check_count(count, stream));
    if (type == DType::kF32 || type == DType::kBF16) return ok();
    return or_abort(
        invalid_argument("{}: type '{}' is not f32 or bf16", call, nereid::name_of(type)));
  }

  Status check_columns(const View& x, int64_t unit, const View& out) const {
    if (unit < 1 || out.cols % unit != 0)
      return invalid_argument("gather_columns: unit {} does not divide the {} columns of 'out'",
                              unit, out.cols);
    const int64_t units = out.cols / unit;
    const int64_t mine = unit * (units * (rank() + 1) / size() - units * rank() / size());
    if (x.rows != out.rows || x.dtype != out.dtype || x.cols < mine)
      return invalid_argument(
          "gather_columns: x is {} [{}, {}]; for 'out' {} [{}, {}] it must be {} [{}, >= {}]",
          nereid::name_of(x.dtype), x.rows, x.cols, nereid::name_of(out.dtype), out.rows, out.cols,
          nereid::name_of(out.dtype), out.rows, mine);
    const auto span = [](const View& v, int64_t cols) {
      if (v.rows == 0 || cols == 0) return size_t{0};
      return static_cast<size_t>((v.rows - 1) * v.stride + cols) * size_of(v.dtype);
    };
    return check_apart(x.data, span(x, mine), out.data, span(out, out.cols));
  }

  Status check_other(std::string_view field, int other) const {
    if (other >= 0 && other < size() && other != rank()) return ok();
    return invalid_argument("{}: rank {} is not another one in [0, {})", field, other, size());
  }

  static Status check_stream(const Stream& stream) {
    const DeviceInfo& info = stream.device().info();
    if (info.kind == DeviceKind::kCpu) return ok();
    return unsupported("ranks on CPUs exchange host memory here, not that of {}", info.id());
  }

  // Otherwise the other ranks would wait for a call that never comes.
  Status or_abort(Status status) {
    if (!status.ok()) abort(annotate(status, fmt::format("rank {}", rank())));
    return status;
  }

  const std::unique_ptr<Link> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::unique_ptr<Link> link) {
  return std::make_unique<HostCommunicator>(std::move(link));
}

}  // namespace nereid::comm
