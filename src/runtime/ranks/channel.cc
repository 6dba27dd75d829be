// Framed messages with simultaneous reading and writing.
#include "runtime/ranks/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/round_up.h"

namespace nereid::runtime {
namespace {

struct Head {
  uint64_t bytes = 0;  // behind the head
  Kind kind = Kind::kHello;
  uint32_t unused = 0;
};

constexpr size_t kAlignment = 16;  // of messages in memory: step messages are read in place
static_assert(sizeof(Head) == kAlignment);
constexpr uint64_t kMaxBytes = uint64_t{1} << 36;
constexpr size_t kReadBytes = size_t{64} << 10;

Status ended(int error) {
  return error == 0 ? unavailable("the other process has closed the channel")
                    : unavailable("the channel to the other process: {}", std::strerror(error));
}

}  // namespace

Status Channel::send(Kind kind, std::span<const std::byte> bytes) {
  Head head{.bytes = bytes.size(), .kind = kind};
  std::byte padding[kAlignment] = {};
  iovec parts[] = {
      {.iov_base = &head, .iov_len = sizeof(head)},
      {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()},
      {.iov_base = padding, .iov_len = round_up(bytes.size(), kAlignment) - bytes.size()}};
  constexpr size_t kParts = std::size(parts);
  size_t first = 0;  // part that is not wholly sent
  while (first < kParts) {
    msghdr message{};
    message.msg_iov = parts + first;
    message.msg_iovlen = kParts - first;
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return ended(errno);
    if (sent < 0) {
      pollfd either{.fd = socket_.get(), .events = POLLIN | POLLOUT, .revents = 0};
      if (::poll(&either, 1, -1) < 0 && errno != EINTR) return ended(errno);
      if ((either.revents & POLLIN) != 0) RETURN_IF_ERROR(read_some(/*may_wait=*/false));
      continue;
    }
    for (auto left = static_cast<size_t>(sent); first < kParts; ++first) {
      const size_t n = std::min(left, parts[first].iov_len);
      parts[first].iov_base = static_cast<std::byte*>(parts[first].iov_base) + n;
      parts[first].iov_len -= n;
      left -= n;
      if (parts[first].iov_len > 0) break;
    }
  }
  return ok();
}

StatusOr<Message> Channel::receive() {
  const auto there = [&] { return end_ - begin_; };
  while (there() < sizeof(Head)) RETURN_IF_ERROR(read_some(/*may_wait=*/true));
  Head head;
  std::memcpy(&head, received_.data() + begin_, sizeof(head));
  if (head.bytes > kMaxBytes || head.kind > Kind::kProfiled)
    return data_loss("a message of kind {} with {} bytes", static_cast<uint32_t>(head.kind),
                     head.bytes);
  const size_t whole = sizeof(head) + round_up(head.bytes, uint64_t{kAlignment});
  while (there() < whole) RETURN_IF_ERROR(read_some(/*may_wait=*/true));
  const Message message{head.kind, {received_.data() + begin_ + sizeof(head), head.bytes}};
  begin_ += whole;
  return message;
}

// Appends what has come, at least one byte if it `may_wait`.
Status Channel::read_some(bool may_wait) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (received_.size() - end_ < kReadBytes && begin_ > 0) {
    std::memmove(received_.data(), received_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (received_.size() - end_ < kReadBytes)
    received_.resize(std::max(2 * received_.size(), end_ + kReadBytes));
  while (true) {
    const ssize_t got = ::recv(socket_.get(), received_.data() + end_, received_.size() - end_,
                               may_wait ? 0 : MSG_DONTWAIT);
    if (got > 0) {
      end_ += static_cast<size_t>(got);
      return ok();
    }
    if (got == 0) return ended(0);
    if (errno == EINTR) continue;
    if (!may_wait && (errno == EAGAIN || errno == EWOULDBLOCK)) return ok();
    return ended(errno);
  }
}

void Channel::close() { ::shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace nereid::runtime
