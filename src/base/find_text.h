// Substring search in O(|text| + |part|) for all inputs; std::string_view::find() and rfind() take
// O(|text| * |part|).
#pragma once

#include <cstddef>
#include <string_view>

namespace nereid {

// The first position of `part` in `text` at or after `from`; npos without one.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
// The last position of `part` in `text`; npos without one.
size_t rfind_text(std::string_view text, std::string_view part);

}  // namespace nereid
