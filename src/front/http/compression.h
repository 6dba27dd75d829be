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

// InvalidArgument: broken data, or more than `max_bytes` come out.
StatusOr<std::string> decompress(std::string_view data, Encoding encoding, size_t max_bytes);
std::string compress(std::string_view data, Encoding encoding);

}  // namespace nereid::front
