#include "front/grpc/wire.h"

#include <algorithm>

namespace nereid::front {
namespace {

constexpr size_t kMaxReserve = size_t{1} << 20;
// Trailers must fit the header limits of clients (8 KiB in the C core).
constexpr size_t kMaxStatusText = 4096;

}  // namespace

void write_grpc_prefix(std::string& message, bool compressed) {
  const size_t length = message.size() - kGrpcPrefixBytes;
  message[0] = compressed ? 1 : 0;
  for (size_t i = 0; i < 4; ++i) message[1 + i] = static_cast<char>(length >> (24 - 8 * i));
}

Status MessageReader::take(std::string_view& data, size_t max_bytes) {
  while (num_prefix_ < kGrpcPrefixBytes) {
    if (data.empty()) return ok();
    prefix_[num_prefix_++] = static_cast<unsigned char>(data.front());
    data.remove_prefix(1);
    if (num_prefix_ < kGrpcPrefixBytes) continue;
    if (prefix_[0] > 1) return internal_error("invalid message flags {}", prefix_[0]);
    length_ = 0;
    for (size_t i = 1; i < kGrpcPrefixBytes; ++i) length_ = length_ << 8 | prefix_[i];
    if (length_ > max_bytes) {
      return resource_exhausted("Received message larger than max ({} vs. {})", length_, max_bytes);
    }
    body_.reserve(std::min(length_, kMaxReserve));
  }
  const size_t n = std::min(data.size(), length_ - body_.size());
  body_.append(data.substr(0, n));
  data.remove_prefix(n);
  return ok();
}

std::string MessageReader::release(bool& compressed) {
  compressed = prefix_[0] == 1;
  num_prefix_ = 0;
  std::string out = std::move(body_);
  body_.clear();
  return out;
}

std::optional<std::chrono::nanoseconds> parse_grpc_timeout(std::string_view text) {
  if (text.size() < 2 || text.size() > 9) return std::nullopt;
  int64_t value = 0;
  for (const char c : text.substr(0, text.size() - 1)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  switch (text.back()) {
    case 'H':  // cut to a time that no server reaches and that does not overflow in ns
      return std::chrono::hours(std::min<int64_t>(value, 24 * 365));
    case 'M':
      return std::chrono::minutes(value);
    case 'S':
      return std::chrono::seconds(value);
    case 'm':
      return std::chrono::milliseconds(value);
    case 'u':
      return std::chrono::microseconds(value);
    case 'n':
      return std::chrono::nanoseconds(value);
    default:
      return std::nullopt;
  }
}

std::string encode_grpc_message(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (out.size() >= kMaxStatusText) break;
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '%') {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

}  // namespace nereid::front
