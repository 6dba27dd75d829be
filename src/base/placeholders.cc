#include "base/placeholders.h"

#include <algorithm>
#include <cstddef>

namespace nereid {
namespace {

// The length of the string or comment that begins at text[0]; 1 for any other character.
size_t skip(std::string_view text) {
  const char first = text[0];
  if (first == '#') return std::min(text.find('\n'), text.size());
  if (first != '"' && first != '\'') return 1;
  size_t end = 1;
  while (end < text.size() && text[end] != first && text[end] != '\n') {
    end += text[end] == '\\' ? 2 : 1;
  }
  return std::min(end + 1, text.size());
}

std::string_view stand_in(std::string_view name) {
  if (!name.ends_with("data_type") && !name.ends_with("datatype")) return "0";
  return name.starts_with("logits") ? "TYPE_FP32" : "TYPE_FP16";
}

}  // namespace

std::string fill_placeholders(std::string_view text, int* mandatory_line) {
  constexpr std::string_view kMandatory = "triton_max_batch_size";
  *mandatory_line = 0;
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    const size_t end = rest.starts_with("${") ? rest.find_first_of("}\n") : rest.npos;
    if (end == rest.npos || rest[end] != '}') {
      const size_t length = skip(rest);
      out.append(rest.substr(0, length));
      at += length;
      continue;
    }
    const std::string_view name = rest.substr(2, end - 2);
    if (name == kMandatory && *mandatory_line == 0) {
      *mandatory_line = 1 + static_cast<int>(std::count(
                                text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'));
    }
    out.append(stand_in(name));
    at += end + 1;
  }
  return out;
}

}  // namespace nereid
