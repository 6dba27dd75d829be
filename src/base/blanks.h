// White space around texts: spaces, tabs and line ends.
#pragma once

#include <string_view>

namespace nereid {

inline constexpr std::string_view kBlanks = " \t\r\n";

// `text` without leading and trailing blanks.
inline std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace nereid
