#include "graph/passes/partition/rank_share.h"

#include <algorithm>
#include <utility>

namespace nereid::graph {

Range share_of(int64_t count, const Team& team) {
  const int64_t begin = kernels::share_begin(count, team.ranks, team.rank);
  const int64_t end = kernels::share_begin(count, team.ranks, team.rank + 1);
  return {begin, std::max<int64_t>(end - begin, 1)};
}

int64_t size_of(const Ranges& ranges) {
  int64_t size = 0;
  for (const Range& range : ranges) size += range.size;
  return size;
}

Ranges ranges_of(const Division& division, const Team& team) {
  Ranges ranges;
  int64_t at = 0;
  for (const Units& units : division) {
    const Range share = share_of(units.count, team);
    ranges.push_back({at + share.begin * units.size, share.size * units.size});
    at += units.count * units.size;
  }
  return ranges;
}

bool is_divided(const Division& division) {
  return std::ranges::any_of(division, [](const Units& units) { return units.count > 1; });
}

void take_rows(const std::vector<WeightPart>& parts, int64_t width, bool is_vector, Range range,
               std::vector<WeightPart>& out) {
  int64_t at = 0;
  for (size_t i = 0, next = 0; i < parts.size(); i = next) {
    int64_t col = 0;
    do col += is_vector ? width : parts[next].width(width), ++next;
    while (col < width && next < parts.size());
    const int64_t begin = std::max(range.begin, at),
                  end = std::min(range.end(), at + parts[i].size);
    for (size_t p = i; begin < end && p < next; ++p) {
      WeightPart part = parts[p];
      if (!part.elements.empty()) {
        const auto first = part.elements.begin() + static_cast<ptrdiff_t>(begin - at);
        part.elements = std::vector<int32_t>(first, first + static_cast<ptrdiff_t>(end - begin));
      } else {
        part.total = part.tensor_rows();
        part.first += (begin - at) * part.step;
      }
      part.size = end - begin;
      out.push_back(std::move(part));
    }
    at += parts[i].size;
  }
}

std::vector<WeightPart> take_columns(const std::vector<WeightPart>& parts, int64_t k, Range range) {
  std::vector<WeightPart> out;
  int64_t at = 0;  // first column of the part
  for (const WeightPart& whole : parts) {
    const int64_t width = whole.width(k);
    const int64_t begin = std::max(range.begin, at), end = std::min(range.end(), at + width);
    if (begin < end) {
      WeightPart part = whole;
      part.total_cols = whole.tensor_cols(k);
      part.first_col += begin - at;
      part.cols = end - begin;
      out.push_back(std::move(part));
    }
    at = (at + width) % k;
  }
  return out;
}

}  // namespace nereid::graph
