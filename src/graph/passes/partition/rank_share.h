// A rank's share of divided rows and columns, and of the tensor parts that a weight is made of.
#pragma once

#include <algorithm>
#include <vector>

#include "graph/ir.h"

namespace nereid::graph {

struct Range {
  int64_t begin = 0, size = 0;
  int64_t end() const { return begin + size; }
  auto operator<=>(const Range&) const = default;
};
using Ranges = std::vector<Range>;

// The number of ranks that divide a value or weight, and the index of one of them.
struct Team {
  int64_t ranks = 1, rank = 0;
};

// A rank's units. Fewer units than ranks: ranks share one.
Range share_of(int64_t count, const Team& team);
int64_t size_of(const Ranges& ranges);
// A rank's columns of a division.
Ranges ranges_of(const Division& division, const Team& team);
bool is_divided(const Division& division);

// Rows `range` of stacked parts. `width`: columns of the weight, 1 for vectors.
void take_rows(const std::vector<WeightPart>& parts, int64_t width, bool is_vector, Range range,
               std::vector<WeightPart>& out);
// Columns `range` of a matrix of k columns.
std::vector<WeightPart> take_columns(const std::vector<WeightPart>& parts, int64_t k, Range range);

}  // namespace nereid::graph
