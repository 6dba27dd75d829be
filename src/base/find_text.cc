#include "base/find_text.h"

#include <cstdint>
#include <cstring>
#include <vector>

namespace nereid {

// memmem() of the C libraries is a two-way search, linear for all inputs.
size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // The data of an empty text may be null.
  if (text.size() - from < part.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

// Knuth-Morris-Pratt from the end: `reach` is the failure function of the reversed `part`.
size_t rfind_text(std::string_view text, std::string_view part) {
  constexpr size_t kShort = 32;  // parts up to this length are compared as a whole at each position
  if (part.size() <= kShort || part.size() > text.size()) return text.rfind(part);
  const auto at = [part](size_t i) { return part[part.size() - 1 - i]; };
  std::vector<size_t> reach(part.size());
  size_t held = 0;
  const auto advance = [&](char c) {
    while (held > 0 && (held == part.size() || at(held) != c)) held = reach[held - 1];
    if (at(held) == c) ++held;
  };
  for (size_t i = 1; i < part.size(); ++i) {
    advance(at(i));
    reach[i] = held;
  }
  held = 0;
  for (size_t i = text.size(); i > 0; --i) {
    advance(text[i - 1]);
    if (held == part.size()) return i - 1;
  }
  return std::string_view::npos;
}

}  // namespace nereid
