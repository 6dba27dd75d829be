// Arrivals, rings, waits and failures of a group in a shared segment.
#include "comm/group_state.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/copy_bytes.h"
#include "base/round_up.h"

namespace nereid::comm {
namespace {

constexpr uint64_t kMagic = 0x31'6b'6e'61'72'65'72'6e;  // raised with every change of the layout
constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr int kSlices = 8;  // looks at the clock within a time limit
constexpr size_t kMaxText = 1500;

// All rings together take up to 256 MiB of address space.
constexpr size_t ring_bytes_of(int num_ranks) {
  const auto pairs = static_cast<size_t>(num_ranks) * static_cast<size_t>(num_ranks);
  return std::clamp(std::bit_floor((size_t{256} << 20) / pairs), size_t{64} << 10, size_t{4} << 20);
}

void futex_wait(const std::atomic<uint32_t>& word, uint32_t value, Duration limit) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count();
  const timespec time{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void futex_wake(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);
static_assert(std::is_trivially_copyable_v<Call>);

}  // namespace

struct GroupState::Header {
  uint64_t magic = 0;
  int32_t size = 0;
  Duration::rep time_limit = 0;
  alignas(kLine) std::atomic<uint64_t> attached;  // bit by rank
  alignas(kLine) std::atomic<uint64_t> sleeping;  // bit by rank
  enum class Failure : uint32_t { kNone, kBeingWritten, kWritten };
  alignas(kLine) std::atomic<Failure> failure;
  int32_t code;
  uint32_t text_bytes;
  char text[kMaxText];
};

struct GroupState::Rank {
  alignas(kLine) std::atomic<uint64_t> arrived;  // phases
  Call calls[2];                                 // of phase p in p % 2, as the staging buffers
  alignas(kLine) std::atomic<uint32_t> woken;    // the word that the rank sleeps on
};

// Bytes moved since the start; each side writes its own count.
struct GroupState::Ring {
  alignas(kLine) std::atomic<uint64_t> written;
  alignas(kLine) std::atomic<uint64_t> read;
};

// Segment: header, ranks, rings, then pages: two staging buffers per rank, data of the rings.
size_t GroupState::segment_bytes(int num_ranks) {
  const auto n = static_cast<size_t>(num_ranks);
  return round_up(sizeof(Header) + n * sizeof(Rank) + n * n * sizeof(Ring), kPage) +
         2 * n * kStagingBytes + n * n * ring_bytes_of(num_ranks);
}

void GroupState::init(SharedMemory& memory, int num_ranks, Duration time_limit) {
  auto* const header = new (memory.data()) Header();
  header->magic = kMagic;
  header->size = num_ranks;
  header->time_limit = time_limit.count();
}

Status GroupState::check(const SharedMemory& memory) {
  const auto is_group = [&] {
    const Header& h = header(memory);
    return h.magic == kMagic && h.size >= 1 && h.size <= kMaxHostRanks &&
           memory.size() == segment_bytes(h.size);
  };
  if (memory.size() >= sizeof(Header) && is_group()) return ok();
  return data_loss("{} bytes of shared memory are not a group of ranks of this program",
                   memory.size());
}

StatusOr<std::unique_ptr<GroupState>> GroupState::attach(std::shared_ptr<SharedMemory> memory,
                                                         int rank) {
  RETURN_IF_ERROR(check(*memory));
  Header& h = header(*memory);
  if (rank < 0 || rank >= h.size)
    return invalid_argument("rank: {} is not in [0, {})", rank, h.size);
  const uint64_t bit = uint64_t{1} << rank;
  if ((h.attached.fetch_or(bit) & bit) != 0)
    return invalid_argument("rank: {} of {} is attached already", rank, h.size);
  return std::unique_ptr<GroupState>(new GroupState(std::move(memory), rank));
}

GroupState::GroupState(std::shared_ptr<SharedMemory> memory, int rank)
    : memory_(std::move(memory)),
      rank_(rank),
      size_(header().size),
      ring_bytes_(ring_bytes_of(size_)) {}

GroupState::Header& GroupState::header(const SharedMemory& memory) {
  return *reinterpret_cast<Header*>(memory.data());
}

GroupState::Rank& GroupState::rank_state(const SharedMemory& memory, int rank) {
  return reinterpret_cast<Rank*>(memory.data() + sizeof(Header))[rank];
}

GroupState::Ring& GroupState::ring(int from, int to) const {
  auto* const rings = reinterpret_cast<Ring*>(memory_->data() + sizeof(Header) +
                                              static_cast<size_t>(size_) * sizeof(Rank));
  return rings[from * size_ + to];
}

std::byte* GroupState::staging(int rank, uint64_t phase) const {
  const auto n = static_cast<size_t>(size_);
  const size_t first = round_up(sizeof(Header) + n * sizeof(Rank) + n * n * sizeof(Ring), kPage);
  return memory_->data() + first + (2 * static_cast<size_t>(rank) + phase % 2) * kStagingBytes;
}

std::byte* GroupState::ring_data(int from, int to) const {
  return staging(size_, 0) + static_cast<size_t>(from * size_ + to) * ring_bytes_;
}

bool GroupState::failed() const {
  return header().failure.load(std::memory_order_seq_cst) != Header::Failure::kNone;
}

void GroupState::fail(const SharedMemory& memory, const Status& reason) {
  NEREID_CHECK(!reason.ok());
  Header& h = header(memory);
  auto none = Header::Failure::kNone;
  if (!h.failure.compare_exchange_strong(none, Header::Failure::kBeingWritten)) return;
  const std::string_view text = message(reason);
  h.code = static_cast<int32_t>(reason.code());
  h.text_bytes = static_cast<uint32_t>(std::min(text.size(), kMaxText));
  copy_bytes(h.text, text.data(), h.text_bytes);
  h.failure.store(Header::Failure::kWritten, std::memory_order_seq_cst);
  wake_sleepers(memory);
}

Status GroupState::fail_all(const SharedMemory& memory, const Status& reason) {
  RETURN_IF_ERROR(check(memory));
  fail(memory, reason);
  return ok();
}

Status GroupState::failure() const {
  const Header& h = header();
  if (!failed()) return ok();
  // A process may end while it writes the reason.
  constexpr int kMaxLooks = 10'000;
  for (int look = 0; h.failure.load(std::memory_order_acquire) != Header::Failure::kWritten;
       ++look) {
    if (look == kMaxLooks) return unavailable("the group of ranks has ended");
    std::this_thread::yield();
  }
  return {static_cast<absl::StatusCode>(h.code),
          absl::string_view(h.text, std::min<size_t>(h.text_bytes, kMaxText))};
}

void GroupState::wake(const SharedMemory& memory, int rank) {
  std::atomic<uint32_t>& word = rank_state(memory, rank).woken;
  word.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(word);
}

// Sequentially consistent with `sleeping`, as wake_if_asleep(): either this thread sees the
// sleeper, or the sleeper sees what was stored before.
void GroupState::wake_sleepers(const SharedMemory& memory) {
  uint64_t ranks = header(memory).sleeping.load(std::memory_order_seq_cst);
  for (; ranks != 0; ranks &= ranks - 1) wake(memory, std::countr_zero(ranks));
}

void GroupState::wake_if_asleep(int rank) const {
  if ((header().sleeping.load(std::memory_order_seq_cst) >> rank & 1) != 0) wake(*memory_, rank);
}

template <class Done, class What>
Status GroupState::wait(const Done& done, int missing, const What& what, int num_threads) {
  if (spin_until(spin_rounds(size_ * num_threads), [&] { return done() || failed(); }))
    return done() ? ok() : failure();
  Header& h = header();
  const uint64_t bit = uint64_t{1} << rank_;
  const Duration limit(h.time_limit), slice = std::max(limit / kSlices, Duration(1));
  std::atomic<uint32_t>& word = rank_state(rank_).woken;
  h.sleeping.fetch_or(bit, std::memory_order_seq_cst);
  Duration idle{};
  Time last = now();
  while (true) {
    const uint32_t seen = word.load(std::memory_order_seq_cst);
    if (done() || failed()) break;
    if (idle >= limit) {
      fail(deadline_exceeded("rank {} waits in {}: rank {} did not come within {:.3f} s", rank_,
                             what(), missing, seconds(limit)));
      break;
    }
    futex_wait(word, seen, slice);
    // A suspended process finds a long time behind it.
    const Time at = now();
    idle += std::min(at - last, slice);
    last = at;
  }
  h.sleeping.fetch_and(~bit, std::memory_order_seq_cst);
  return done() ? ok() : failure();
}

bool GroupState::sums_whole(int64_t bytes) const {
  constexpr int64_t kBytes = 256 << 10;  // over the square of the number of other ranks
  const int64_t others = size_ - 1;
  return bytes * others * others <= kBytes;
}

Status GroupState::exchange(const Call& call, size_t /*bytes*/, int num_threads) {
  if (failed()) [[unlikely]]
    return failure();
  const uint64_t phase = phase_ + 1;
  Rank& own = rank_state(rank_);
  own.calls[phase % 2] = call;
  own.arrived.store(phase, std::memory_order_seq_cst);
  wake_sleepers(*memory_);
  for (int i = 1; i < size_; ++i) {
    const int other = (rank_ + i) % size_;
    const Rank& theirs = rank_state(other);
    const auto is_here = [&] { return theirs.arrived.load(std::memory_order_seq_cst) >= phase; };
    if (!is_here())
      RETURN_IF_ERROR(wait(
          is_here, other, [&] { return text_of(call); }, num_threads));
    if (theirs.calls[phase % 2] != call) [[unlikely]] {
      fail(invalid_argument("rank {} calls {}, rank {} calls {}", rank_, text_of(call), other,
                            text_of(theirs.calls[phase % 2])));
      return failure();
    }
  }
  phase_ = phase;
  return ok();
}

Status GroupState::write(int to, const std::byte* data, size_t bytes, int num_threads) {
  Ring& r = ring(rank_, to);
  std::byte* const cells = ring_data(rank_, to);
  uint64_t written = r.written.load(std::memory_order_relaxed);
  while (bytes > 0) {
    const auto room = [&] {
      return ring_bytes_ - (written - r.read.load(std::memory_order_seq_cst));
    };
    if (room() == 0)
      RETURN_IF_ERROR(wait([&] { return room() > 0; }, to,
                           [&] { return fmt::format("send to rank {}", to); }, num_threads));
    const size_t at = written % ring_bytes_;
    const size_t n = std::min({bytes, static_cast<size_t>(room()), ring_bytes_ - at});
    copy_bytes(cells + at, data, n);
    data += n;
    bytes -= n;
    written += n;
    r.written.store(written, std::memory_order_seq_cst);
    wake_if_asleep(to);
  }
  return ok();
}

Status GroupState::read(int from, std::byte* data, size_t bytes, int num_threads) {
  Ring& r = ring(from, rank_);
  const std::byte* const cells = ring_data(from, rank_);
  uint64_t read = r.read.load(std::memory_order_relaxed);
  while (bytes > 0) {
    const auto there = [&] { return r.written.load(std::memory_order_seq_cst) - read; };
    if (there() == 0)
      RETURN_IF_ERROR(wait([&] { return there() > 0; }, from,
                           [&] { return fmt::format("recv from rank {}", from); }, num_threads));
    const size_t at = read % ring_bytes_;
    const size_t n = std::min({bytes, static_cast<size_t>(there()), ring_bytes_ - at});
    copy_bytes(data, cells + at, n);
    data += n;
    bytes -= n;
    read += n;
    r.read.store(read, std::memory_order_seq_cst);
    wake_if_asleep(from);
  }
  return ok();
}

Status GroupState::send(int to, const void* data, size_t bytes, int num_threads) {
  RETURN_IF_ERROR(failure());
  const uint64_t size = bytes;
  RETURN_IF_ERROR(write(to, reinterpret_cast<const std::byte*>(&size), sizeof(size), num_threads));
  return write(to, static_cast<const std::byte*>(data), bytes, num_threads);
}

Status GroupState::recv(int from, void* data, size_t bytes, int num_threads) {
  RETURN_IF_ERROR(failure());
  uint64_t size = 0;
  RETURN_IF_ERROR(read(from, reinterpret_cast<std::byte*>(&size), sizeof(size), num_threads));
  if (size != bytes) {
    fail(invalid_argument("rank {} sends {} bytes, rank {} wants {}", from, size, rank_, bytes));
    return failure();
  }
  return read(from, static_cast<std::byte*>(data), bytes, num_threads);
}

}  // namespace nereid::comm
