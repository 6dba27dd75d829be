// Exchanges and messages over sockets: a head and bytes for each, in the order of calls.
#include "comm/socket_group.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "comm/collectives.h"

namespace nereid::comm {
namespace {

struct Head {  // plain data of one program, on hosts of one byte order
  enum class Kind : uint32_t { kExchange = 0x6e'65'78'31, kMessage = 0x6e'6d'73'31 };
  Kind kind = Kind::kExchange;
  uint32_t unused = 0;
  uint64_t bytes = 0;  // behind the head
  Call call;           // kExchange
};

// Bytes that are on their way to or from a rank: a head, then data.
class Transfer {
 public:
  Transfer(std::byte* data, size_t bytes, Head head) : head_(head), data_(data), bytes_(bytes) {}

  bool is_done() const { return at_ == sizeof(Head) + bytes_; }
  bool has_head() const { return at_ >= sizeof(Head); }
  Head& head() { return head_; }
  // How many bytes follow the head.
  void set_bytes(size_t bytes) { bytes_ = bytes; }
  void add(size_t bytes) { at_ += bytes; }
  // The parts that are left. A received head comes alone: it has the number of bytes behind it.
  size_t left(iovec (&parts)[2]) {
    size_t count = 0;
    if (!has_head())
      parts[count++] = {.iov_base = reinterpret_cast<std::byte*>(&head_) + at_,
                        .iov_len = sizeof(Head) - at_};
    const size_t begin = at_ - std::min(at_, sizeof(Head));
    if (begin < bytes_) parts[count++] = {.iov_base = data_ + begin, .iov_len = bytes_ - begin};
    return count;
  }

 private:
  Head head_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0, at_ = 0;
};

class SocketLink final : public Link {
 public:
  SocketLink(int rank, std::vector<Descriptor> peers)
      : rank_(rank),
        peers_(std::move(peers)),
        staging_(new std::byte[(peers_.size() + 1) * kStagingBytes]),
        out_(peers_.size()),
        in_(peers_.size()) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }

  std::byte* next_staging() override { return own(phase_ + 1); }
  const std::byte* staged(int rank) const override {
    if (rank == rank_) return own(phase_);
    return buffer(rank < rank_ ? rank : rank - 1);
  }
  bool sums_whole(int64_t /*bytes*/) const override { return true; }

  Status exchange(const Call& call, size_t bytes, int /*num_threads*/) override {
    NEREID_CHECK(bytes <= kStagingBytes);
    RETURN_IF_ERROR(failure());
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      const Head head{.bytes = bytes, .call = call};
      out_[index(r)].emplace(next_staging(), bytes, head);
      in_[index(r)].emplace(const_cast<std::byte*>(staged(r)), 0, Head{});
    }
    const auto check = [&](int r, const Head& head) -> Status {
      if (head.kind != Head::Kind::kExchange)
        return invalid_argument("rank {} calls {}, rank {} sends a message", rank_, text_of(call),
                                r);
      if (head.call != call)
        return invalid_argument("rank {} calls {}, rank {} makes another call", rank_,
                                text_of(call), r);
      if (head.bytes <= kStagingBytes) return ok();
      return data_loss("rank {} sends {} bytes at once", r, head.bytes);
    };
    RETURN_IF_ERROR(move_all(check));
    ++phase_;
    return ok();
  }

  Status send(int to, const void* data, size_t bytes, int /*num_threads*/) override {
    RETURN_IF_ERROR(failure());
    const Head head{.kind = Head::Kind::kMessage, .bytes = bytes, .call = {}};
    out_[index(to)].emplace(static_cast<std::byte*>(const_cast<void*>(data)), bytes, head);
    return move_all([](int, const Head&) { return ok(); });
  }

  Status recv(int from, void* data, size_t bytes, int /*num_threads*/) override {
    RETURN_IF_ERROR(failure());
    in_[index(from)].emplace(static_cast<std::byte*>(data), 0, Head{});
    return move_all([&](int r, const Head& head) -> Status {
      if (head.kind != Head::Kind::kMessage)
        return invalid_argument("rank {} waits for a message, rank {} makes another call", rank_,
                                r);
      if (head.bytes == bytes) return ok();
      return invalid_argument("rank {} sends {} bytes, rank {} wants {}", r, head.bytes, rank_,
                              bytes);
    });
  }

  // The other ranks read the end of their sockets.
  void fail(const Status& reason) override {
    NEREID_CHECK(!reason.ok());
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.ok()) return;
      failure_ = reason;
    }
    for (const Descriptor& peer : peers_)
      if (peer) ::shutdown(peer.get(), SHUT_RDWR);
  }

  Status failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_.ok() ? ok() : Status(failure_.code(), failure_.message());
  }

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }
  // Two buffers of this rank lie behind those of the others.
  std::byte* buffer(int number) const { return staging_.get() + index(number) * kStagingBytes; }
  std::byte* own(uint64_t phase) const { return buffer(size() - 1 + static_cast<int>(phase % 2)); }

  // Sends and receives until all transfers are done. `check(rank, head)`: of what a rank sends.
  template <class Check>
  Status move_all(const Check& check) {
    while (true) {
      bool has_moved = false, is_done = true;
      for (int r = 0; r < size(); ++r) {
        for (auto* const transfer : {&out_[index(r)], &in_[index(r)]}) {
          if (!*transfer) continue;
          const auto moved = move_one(r, **transfer, transfer == &out_[index(r)], check);
          if (!moved.ok()) fail(moved.status());
          if (!moved.ok()) return failure();
          has_moved = has_moved || *moved;
          if ((*transfer)->is_done())
            transfer->reset();
          else
            is_done = false;
        }
      }
      if (is_done) return ok();
      if (!has_moved) wait();
    }
  }

  // Moves the bytes that can go without waiting; false: there are none.
  template <class Check>
  StatusOr<bool> move_one(int r, Transfer& transfer, bool is_out, const Check& check) {
    iovec parts[2];
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = transfer.left(parts);
    const int socket = peers_[index(r)].get();
    const ssize_t moved = is_out ? ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
                                 : ::recvmsg(socket, &message, MSG_DONTWAIT);
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    const bool is_closed = moved == 0 ? !is_out : errno == EPIPE || errno == ECONNRESET;
    if (moved <= 0 && is_closed)
      return unavailable("rank {}: rank {} has closed its connection", rank_, r);
    if (moved < 0)
      return unavailable("rank {}: the connection to rank {}: {}", rank_, r, std::strerror(errno));
    const bool had_head = transfer.has_head();
    transfer.add(static_cast<size_t>(moved));
    if (!is_out && !had_head && transfer.has_head()) {
      RETURN_IF_ERROR(check(r, transfer.head()));
      transfer.set_bytes(transfer.head().bytes);
    }
    return true;
  }

  void wait() const {
    pollfd ends[kMaxHostRanks];
    for (size_t r = 0; r < peers_.size(); ++r) {
      const auto events = (in_[r] ? POLLIN : 0) | (out_[r] ? POLLOUT : 0);
      ends[r] = {.fd = events != 0 ? peers_[r].get() : -1,
                 .events = static_cast<int16_t>(events),
                 .revents = 0};
    }
    ::poll(ends, peers_.size(), -1);
  }

  const int rank_;
  const std::vector<Descriptor> peers_;
  const std::unique_ptr<std::byte[]> staging_;     // unwritten pages take no memory
  std::vector<std::optional<Transfer>> out_, in_;  // under way, by rank
  uint64_t phase_ = 0;                             // that this rank has ended
  mutable std::mutex mutex_;
  Status failure_;  // guarded by mutex_
};

}  // namespace

StatusOr<std::unique_ptr<Communicator>> attach_socket_group(int rank,
                                                            std::vector<Descriptor> peers) {
  const auto size = static_cast<int>(peers.size());
  if (size < 1 || size > kMaxHostRanks || rank < 0 || rank >= size)
    return invalid_argument("rank: {} of {} is not in [0, {})", rank, size,
                            std::min(size, kMaxHostRanks));
  for (int r = 0; r < size; ++r)
    if (bool(peers[static_cast<size_t>(r)]) == (r == rank))
      return invalid_argument("peers: rank {} of {}: a socket for each other rank is expected", r,
                              size);
  return make_communicator(std::make_unique<SocketLink>(rank, std::move(peers)));
}

}  // namespace nereid::comm
