// Base64.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid {

// Bytes of standard or URL-safe base64, padding optional. InvalidArgument: not base64.
StatusOr<std::string> decode_base64(std::string_view text);

// Whether the text is standard base64 (RFC 4648, section 4): padded, without blanks.
bool is_standard_base64(std::string_view text);

}  // namespace nereid
