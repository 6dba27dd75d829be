// The nearest of a set of names, for error messages about one that does not exist.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace nereid {

// Least number of single-character insertions, deletions and replacements from `a` to `b`.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest distance to `name` (case ignored), or "" when none is close: more
// than a third of its letters differ.
std::string nearest_name(std::string_view name, const std::set<std::string>& candidates);

// " Did you mean 'x'?", or "" when no candidate is close.
std::string did_you_mean(std::string_view name, const std::set<std::string>& candidates);

}  // namespace nereid
