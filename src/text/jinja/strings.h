// Python's str operations on UTF-8; case mapping is in text/unicode/python.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::text::jinja {

// Strips white space, or the characters of `chars`, from the chosen sides.
std::string_view strip(std::string_view text, std::optional<std::string_view> chars, bool left,
                       bool right);
// Occurrences of `part` (not empty) in `text`, up to `limit` (all when negative).
size_t count(std::string_view text, std::string_view part, int64_t limit);
// At most `limit` replacements, all when negative.
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit);
// Splits at `separator` (not empty), at most `limit` times (no limit when negative),
// from the chosen end.
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t limit, bool from_right);
// Splits at runs of white space, without empty parts.
std::vector<std::string_view> split_space(std::string_view text, int64_t limit, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::string escape_html(std::string_view text);

}  // namespace nereid::text::jinja
