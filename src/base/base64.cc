#include "base/base64.h"

#include <absl/strings/escaping.h>

#include <algorithm>

namespace nereid {

StatusOr<std::string> decode_base64(std::string_view text) {
  std::string bytes;
  const absl::string_view source(text.data(), text.size());
  if (!absl::Base64Unescape(source, &bytes) && !absl::WebSafeBase64Unescape(source, &bytes))
    return invalid_argument("{} bytes of text are not base64", text.size());
  return bytes;
}

bool is_standard_base64(std::string_view text) {
  if (text.size() % 4 != 0) return false;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  return std::ranges::all_of(text, [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/';
  });
}

}  // namespace nereid
