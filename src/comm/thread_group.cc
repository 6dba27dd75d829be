// Collectives of threads: ranks publish their memory, each computes its share over all ranks'
// memory, and all return together.
#include "comm/thread_group.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/copy_bytes.h"

namespace nereid::comm {
namespace {

constexpr int64_t kPiece = 1024;  // elements summed at a time

enum class Collective : uint8_t { kAllReduce, kAllGather, kReduceScatter, kBarrier };
constexpr std::string_view name_of(Collective what) {
  constexpr std::string_view kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "barrier"};
  return kNames[static_cast<size_t>(what)];
}

// One rank's arguments of a collective call.
struct Call {
  Collective what = Collective::kBarrier;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  int64_t count = 0;
  DType type = DType::kF32;

  bool fits(const Call& other) const {
    return what == other.what && count == other.count && type == other.type;
  }
  std::string text() const {
    return fmt::format("{} of {} {}", nereid::comm::name_of(what), count, nereid::name_of(type));
  }
};

// A message between two ranks.
struct Parcel {
  enum class State : uint8_t { kNone, kOffered, kBeingCopied, kTaken };
  State state = State::kNone;
  const void* data = nullptr;
  size_t bytes = 0;
};

Status check_apart(const void* in, size_t in_bytes, const void* out, size_t out_bytes) {
  const auto* const a = static_cast<const std::byte*>(in);
  const auto* const b = static_cast<const std::byte*>(out);
  if (in_bytes == 0 || out_bytes == 0 || a + in_bytes <= b || b + out_bytes <= a) return ok();
  return invalid_argument("'in' and 'out' share some memory; allowed are none, or in place");
}

// State shared by all ranks.
class ThreadGroup {
 public:
  ThreadGroup(int size, Duration time_limit)
      : size_(size),
        time_limit_(time_limit),
        calls_(static_cast<size_t>(size)),
        parcels_(static_cast<size_t>(size) * static_cast<size_t>(size)) {}

  int size() const { return size_; }

  // Returns when all ranks have called it; each must then call finish() after its share, which
  // reads calls(). On an error no rank starts.
  Status start(int rank, const Call& call) {
    std::unique_lock lock(mutex_);
    RETURN_IF_ERROR(failure());
    if (num_waiting_ > 0 && !call.fits(first_)) {
      fail(invalid_argument("rank {} calls {}, another one {}", rank, call.text(), first_.text()));
      return failure();
    }
    first_ = call;
    calls_[static_cast<size_t>(rank)] = call;
    if (++num_waiting_ == size_) {
      num_waiting_ = 0;
      num_working_ = size_;
      ++num_calls_;
      changed_.notify_all();
      return ok();
    }
    const int64_t number = num_calls_;
    const bool came = changed_.wait_until(lock, now() + time_limit_,
                                          [&] { return num_calls_ != number || !failure_.ok(); });
    if (num_calls_ != number) return ok();  // the others rely on this rank's memory and share
    if (!came) fail(too_late(fmt::format("rank {} waits in {}", rank, call.text())));
    return failure();
  }

  const std::vector<Call>& calls() const { return calls_; }

  // All ranks compute without waiting, so no time limit is needed; a failure ends the next call.
  void finish() {
    std::unique_lock lock(mutex_);
    if (--num_working_ == 0) return changed_.notify_all();
    changed_.wait(lock, [&] { return num_working_ == 0; });
  }

  Status send(int from, int to, const void* data, size_t bytes) {
    std::unique_lock lock(mutex_);
    RETURN_IF_ERROR(failure());
    Parcel& parcel = parcel_of(from, to);
    parcel = {Parcel::State::kOffered, data, bytes};
    changed_.notify_all();
    const bool came = changed_.wait_until(lock, now() + time_limit_, [&] {
      return parcel.state == Parcel::State::kTaken || !failure_.ok();
    });
    // The memory must stay valid while it is being copied.
    changed_.wait(lock, [&] { return parcel.state != Parcel::State::kBeingCopied; });
    const bool taken = parcel.state == Parcel::State::kTaken;
    parcel = {};
    if (taken) return ok();
    if (!came) fail(too_late(fmt::format("rank {} sends {} bytes to rank {}", from, bytes, to)));
    return failure();
  }

  Status recv(int to, int from, void* data, size_t bytes) {
    std::unique_lock lock(mutex_);
    Parcel& parcel = parcel_of(from, to);
    const bool came = changed_.wait_until(lock, now() + time_limit_, [&] {
      return parcel.state == Parcel::State::kOffered || !failure_.ok();
    });
    if (!came)
      fail(too_late(fmt::format("rank {} waits for {} bytes of rank {}", to, bytes, from)));
    RETURN_IF_ERROR(failure());
    if (parcel.bytes != bytes) {
      fail(invalid_argument("rank {} sends {} bytes, rank {} wants {}", from, parcel.bytes, to,
                            bytes));
      return failure();
    }
    parcel.state = Parcel::State::kBeingCopied;
    lock.unlock();
    copy_bytes(data, parcel.data, bytes);
    lock.lock();
    parcel.state = Parcel::State::kTaken;
    changed_.notify_all();
    return ok();
  }

  void abort(const Status& reason) {
    std::lock_guard lock(mutex_);
    fail(reason);
  }

 private:
  Parcel& parcel_of(int from, int to) { return parcels_[static_cast<size_t>(from * size_ + to)]; }

  Status too_late(std::string_view what) const {
    return deadline_exceeded("{}: nobody came within {:.3f} s", what, seconds(time_limit_));
  }

  // Requires the lock. A new Status per rank: thread checkers cannot see the reference counting of
  // a shared one.
  Status failure() const {
    return failure_.ok() ? ok() : Status(failure_.code(), failure_.message());
  }

  // Requires the lock. The first reason is kept.
  void fail(const Status& reason) {
    NEREID_CHECK(!reason.ok());
    if (failure_.ok()) failure_ = Status(reason.code(), reason.message());
    changed_.notify_all();
  }

  const int size_;
  const Duration time_limit_;
  std::mutex mutex_;  // guards the following members, except calls_ between start() and finish()
  std::condition_variable changed_;
  Status failure_;
  int64_t num_calls_ = 0;  // collective calls made by all ranks
  int num_waiting_ = 0;    // ranks waiting in start()
  int num_working_ = 0;
  Call first_;               // call of the waiting ranks
  std::vector<Call> calls_;  // by rank
  std::vector<Parcel> parcels_;
};

// Elements [begin, end) of the sum over ranks, in order of ranks, in f32; passed piecewise to
// store(first index, values, count).
template <class T, class Store>
void add_up(const std::vector<Call>& calls, int64_t begin, int64_t end, const Store& store) {
  const auto read = [](T x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else
      return to_float(x);
  };
  std::array<float, kPiece> sum;
  std::array<T, kPiece> result;
  for (int64_t first = begin; first < end; first += kPiece) {
    const int64_t n = std::min(kPiece, end - first);
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      const T* const in = reinterpret_cast<const T*>(calls[rank].in) + first;
      for (int64_t i = 0; i < n; ++i)
        sum[static_cast<size_t>(i)] =
            rank == 0 ? read(in[i]) : sum[static_cast<size_t>(i)] + read(in[i]);
    }
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, float>)
        result[static_cast<size_t>(i)] = sum[static_cast<size_t>(i)];
      else
        result[static_cast<size_t>(i)] = to_bf16(sum[static_cast<size_t>(i)]);
    }
    store(first, result.data(), n);
  }
}

// Each rank sums its share and writes it to all ranks, so in place no rank reads another's writes.
template <class T>
void all_reduce_share(const std::vector<Call>& calls, int64_t rank) {
  const auto size = static_cast<int64_t>(calls.size());
  const int64_t count = calls[0].count, share = (count + size - 1) / size;
  const int64_t begin = std::min(count, rank * share);
  add_up<T>(calls, begin, std::min(count, begin + share), [&](int64_t at, const T* x, int64_t n) {
    for (const Call& call : calls)
      std::memcpy(reinterpret_cast<T*>(call.out) + at, x, static_cast<size_t>(n) * sizeof(T));
  });
}

template <class T>
void reduce_scatter_share(const std::vector<Call>& calls, int64_t rank) {
  const Call& mine = calls[static_cast<size_t>(rank)];
  const int64_t begin = rank * mine.count;
  add_up<T>(calls, begin, begin + mine.count, [&](int64_t at, const T* x, int64_t n) {
    std::memcpy(reinterpret_cast<T*>(mine.out) + (at - begin), x,
                static_cast<size_t>(n) * sizeof(T));
  });
}

void all_gather_share(const std::vector<Call>& calls, int64_t rank) {
  const Call& mine = calls[static_cast<size_t>(rank)];
  const size_t bytes = static_cast<size_t>(mine.count) * size_of(mine.type);
  if (bytes == 0) return;
  for (size_t r = 0; r < calls.size(); ++r)
    if (calls[r].in != mine.out + r * bytes) std::memcpy(mine.out + r * bytes, calls[r].in, bytes);
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~ThreadCommunicator() override { abort(unavailable("rank {} has left the group", rank_)); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  Status all_reduce(const void* in, void* out, int64_t count, DType type, Stream& s) override {
    return run(make_call(Collective::kAllReduce, in, out, count, type), s);
  }
  Status all_gather(const void* in, void* out, int64_t count, DType type, Stream& s) override {
    return run(make_call(Collective::kAllGather, in, out, count, type), s);
  }
  Status reduce_scatter(const void* in, void* out, int64_t count, DType type, Stream& s) override {
    return run(make_call(Collective::kReduceScatter, in, out, count, type), s);
  }
  Status barrier(Stream& s) override { return run({}, s); }

  Status send(const void* data, size_t bytes, int to, Stream& stream) override {
    RETURN_IF_ERROR(or_abort(check_other("to", to)));
    RETURN_IF_ERROR(or_abort(check_stream(stream)));
    return group_->send(rank_, to, data, bytes);
  }
  Status recv(void* data, size_t bytes, int from, Stream& stream) override {
    RETURN_IF_ERROR(or_abort(check_other("from", from)));
    RETURN_IF_ERROR(or_abort(check_stream(stream)));
    return group_->recv(rank_, from, data, bytes);
  }

  void abort(const Status& reason) override { group_->abort(reason); }

 private:
  static Call make_call(Collective what, const void* in, void* out, int64_t count, DType type) {
    return {what, static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count, type};
  }

  Status run(const Call& call, Stream& stream) {
    RETURN_IF_ERROR(or_abort(check_stream(stream)));
    RETURN_IF_ERROR(or_abort(check(call)));
    RETURN_IF_ERROR(group_->start(rank_, call));
    const std::vector<Call>& calls = group_->calls();
    const bool f32 = call.type == DType::kF32;
    if (call.what == Collective::kAllReduce)
      f32 ? all_reduce_share<float>(calls, rank_) : all_reduce_share<BF16>(calls, rank_);
    if (call.what == Collective::kReduceScatter)
      f32 ? reduce_scatter_share<float>(calls, rank_) : reduce_scatter_share<BF16>(calls, rank_);
    if (call.what == Collective::kAllGather) all_gather_share(calls, rank_);
    group_->finish();
    return ok();
  }

  Status check(const Call& call) const {
    if (call.what == Collective::kBarrier) return ok();
    if (call.count < 0) return invalid_argument("count: {} is negative", call.count);
    const bool adds = call.what != Collective::kAllGather;
    if (adds && call.type != DType::kF32 && call.type != DType::kBF16)
      return invalid_argument("{}: type '{}' is not f32 or bf16", nereid::comm::name_of(call.what),
                              nereid::name_of(call.type));
    const size_t one = static_cast<size_t>(call.count) * size_of(call.type);
    const size_t all = one * static_cast<size_t>(size()), mine = one * static_cast<size_t>(rank_);
    switch (call.what) {
      case Collective::kAllReduce:
        return call.in == call.out ? ok() : check_apart(call.in, one, call.out, one);
      case Collective::kAllGather:
        return call.in == call.out + mine ? ok() : check_apart(call.in, one, call.out, all);
      default:
        return call.out == call.in + mine ? ok() : check_apart(call.in, all, call.out, one);
    }
  }

  Status check_other(std::string_view field, int other) const {
    if (other >= 0 && other < size() && other != rank_) return ok();
    return invalid_argument("{}: rank {} is not another one in [0, {})", field, other, size());
  }

  static Status check_stream(const Stream& stream) {
    const DeviceInfo& info = stream.device().info();
    if (info.kind == DeviceKind::kCpu) return ok();
    return unsupported("ranks that are threads exchange host memory, not that of {}", info.id());
  }

  // Otherwise the other ranks would wait for a call that never comes.
  Status or_abort(Status status) {
    if (!status.ok()) abort(annotate(status, fmt::format("rank {}", rank_)));
    return status;
  }

  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
};

}  // namespace

StatusOr<std::vector<std::unique_ptr<Communicator>>> make_thread_group(int num_ranks,
                                                                       Duration time_limit) {
  if (num_ranks < 1 || num_ranks > kMaxThreadRanks)
    return invalid_argument("num_ranks: {} is not in [1, {}]", num_ranks, kMaxThreadRanks);
  if (time_limit <= Duration::zero() || time_limit > kMaxTimeLimit)
    return invalid_argument("time_limit: {} s is not in (0, {}]", seconds(time_limit),
                            seconds(kMaxTimeLimit));
  const auto group = std::make_shared<ThreadGroup>(num_ranks, time_limit);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < num_ranks; ++rank)
    ranks.push_back(std::make_unique<ThreadCommunicator>(group, rank));
  return ranks;
}

}  // namespace nereid::comm
