// The nearest of a set of names, for error messages about an unknown one.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace nereid {

// Least number of single-character insertions, deletions and replacements from `a` to `b`.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest edit distance to `name`, case ignored, if that is at most max(1,
// name.size() / 3); else "".
std::string nearest_name(std::string_view name, const std::set<std::string>& candidates);

// " Did you mean 'x'?", or "" when no candidate is close.
std::string did_you_mean(std::string_view name, const std::set<std::string>& candidates);

}  // namespace nereid
