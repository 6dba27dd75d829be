#include "base/base64.h"

#include <absl/strings/escaping.h>

namespace nereid {

StatusOr<std::string> decode_base64(std::string_view text) {
  std::string bytes;
  const absl::string_view source(text.data(), text.size());
  if (!absl::Base64Unescape(source, &bytes) && !absl::WebSafeBase64Unescape(source, &bytes))
    return invalid_argument("{} bytes of text are not base64", text.size());
  return bytes;
}

}  // namespace nereid
