// Formats of gRPC over HTTP/2: length-prefixed messages, time-outs, status texts.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::front {

// Prefix of every message: one byte of flags (1: compressed) and the length, big-endian.
inline constexpr size_t kGrpcPrefixBytes = 5;

// Fills in the first kGrpcPrefixBytes of `message`, which are reserved for it.
void write_grpc_prefix(std::string& message, bool compressed);

// Divides a stream of bytes into messages. Memory grows with the bytes received, not with the
// length in a prefix.
class MessageReader {
 public:
  // Consumes bytes of `data` up to the end of a message. has_message(): the message is complete.
  // ResourceExhausted: longer than `max_bytes`; Internal: bad flags.
  Status take(std::string_view& data, size_t max_bytes);

  bool has_message() const { return num_prefix_ == kGrpcPrefixBytes && body_.size() == length_; }
  bool is_empty() const { return num_prefix_ == 0; }
  size_t size() const { return body_.size(); }

  // Returns the message and empties the reader. `compressed`: its flag.
  std::string release(bool& compressed);

 private:
  unsigned char prefix_[kGrpcPrefixBytes] = {};
  size_t num_prefix_ = 0;
  size_t length_ = 0;
  std::string body_;
};

// Parses "100m": at most 8 digits and a unit of H M S m u n. nullopt when malformed.
std::optional<std::chrono::nanoseconds> parse_grpc_timeout(std::string_view text);

// A grpc-message: bytes outside of printable ASCII, and '%', as %XX. Cut to a few KiB.
std::string encode_grpc_message(std::string_view text);

}  // namespace nereid::front
