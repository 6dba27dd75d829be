// gzip and deflate bodies.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::front {

enum class Encoding { kIdentity, kGzip, kDeflate };

// What Accept-Encoding weighs highest among the three; kIdentity for anything else.
Encoding preferred_encoding(std::string_view accept);

// InvalidArgument: broken data. ResourceExhausted: more than `max_bytes` come out, or no memory.
StatusOr<std::string> decompress(std::string_view data, Encoding encoding, size_t max_bytes);
// `level`: zlib's, 1 (fast) to 9 (small); -1: its default.
std::string compress(std::string_view data, Encoding encoding, int level = -1);

}  // namespace nereid::front
