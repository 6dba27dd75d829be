// Searching text in time that grows with the sum of both lengths, whatever the texts hold: that of
// std::string_view::find() and rfind() grows with their product.
#pragma once

#include <cstddef>
#include <string_view>

namespace nereid {

// The first place of `part` in `text` from `from` on; npos without one.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
// The last place.
size_t rfind_text(std::string_view text, std::string_view part);

}  // namespace nereid
