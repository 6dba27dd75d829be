#include "base/nearest.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace nereid {
namespace {

constexpr size_t kMaxName = 256;  // longer names are no misspelling, and the cost is quadratic

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view name, const std::set<std::string>& candidates) {
  if (name.size() > kMaxName) return "";
  const std::string wanted = lower(name);
  std::string best;
  size_t best_distance = std::max<size_t>(1, name.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    if (candidate.size() > kMaxName) continue;
    const size_t distance = edit_distance(wanted, lower(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::set<std::string>& candidates) {
  const std::string best = nearest_name(name, candidates);
  return best.empty() ? "" : fmt::format(" Did you mean '{}'?", best);
}

}  // namespace nereid
