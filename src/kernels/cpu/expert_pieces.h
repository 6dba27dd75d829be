// Gathers rows by expert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/round_up.h"
#include "kernels/api/ops.h"
#include "kernels/api/pack.h"

namespace nereid::kernels::cpu {

// Gathered rows of one expert.
struct Group {
  int64_t expert = 0;
  int64_t line = 0;   // first row, a multiple of kPanelRows
  int64_t count = 0;  // number of rows
};

// Address of element `col` of x's row `row`.
inline const void* element_of(const View& x, int64_t row, int64_t col) {
  return static_cast<const std::byte*>(x.data) +
         (row * x.stride + col) * static_cast<int64_t>(size_of(x.dtype));
}

// Sorts the pieces of x (numbered row by row) by expert. Memory is kept between calls.
class Pieces {
 public:
  // Groups of one round of products, by expert.
  std::vector<Group> groups;
  std::vector<const void*> lines;  // rows of x; null: padding before the next group
  std::vector<float> scales;       // by line, if x has scales
  std::vector<int64_t> out_at;     // by line: index of the first element in out

  // Counting sort; pieces without an expert are last.
  void sort(const ExpertLinear& a) {
    const int64_t num = a.out.rows * a.experts.cols;
    begins_.assign(static_cast<size_t>(a.weight.experts + 2), 0);
    for (int64_t p = 0; p < num; ++p) ++begins_[static_cast<size_t>(expert(a, p) + 1)];
    for (size_t e = 1; e < begins_.size(); ++e) begins_[e] += begins_[e - 1];
    next_ = begins_;
    order_.resize(static_cast<size_t>(num));
    for (int64_t p = 0; p < num; ++p)
      order_[static_cast<size_t>(next_[static_cast<size_t>(expert(a, p))]++)] = p;
    clear();
  }
  // The expert's pieces, [begin, end) in sorted order.
  std::pair<int64_t, int64_t> range(int64_t expert) const {
    return {begins_[static_cast<size_t>(expert)], begins_[static_cast<size_t>(expert + 1)]};
  }
  // Index in out of the i-th piece in sorted order.
  int64_t out(const ExpertLinear& a, int64_t i) const {
    const int64_t p = order_[static_cast<size_t>(i)];
    return p / a.experts.cols * a.out.stride + p % a.experts.cols * a.weight.n;
  }

  // Adds `count` pieces of an expert, from sorted index `begin`, to the round.
  void add(const ExpertLinear& a, int64_t expert, int64_t begin, int64_t count) {
    const auto line = static_cast<int64_t>(lines.size());
    groups.push_back({expert, line, count});
    lines.resize(static_cast<size_t>(round_up(line + count, kPanelRows)));
    out_at.resize(lines.size());
    scales.resize(lines.size());
    const bool one = a.x.cols == a.weight.k;  // one piece of x for all pieces of a row
    for (int64_t i = 0; i < count; ++i) {
      const int64_t p = order_[static_cast<size_t>(begin + i)], row = p / a.experts.cols;
      const auto at = static_cast<size_t>(line + i);
      lines[at] = element_of(a.x, row, one ? 0 : p % a.experts.cols * a.weight.k);
      if (is_given(a.scales)) scales[at] = *a.scales.row<float>(row);
      out_at[at] = out(a, begin + i);
    }
  }
  void clear() { groups.clear(), lines.clear(), scales.clear(), out_at.clear(); }

 private:
  static int64_t expert(const ExpertLinear& a, int64_t piece) {
    const int32_t e = a.experts.row<int32_t>(piece / a.experts.cols)[piece % a.experts.cols];
    return e >= 0 && e < a.weight.experts ? e : a.weight.experts;
  }

  std::vector<int64_t> begins_, next_, order_;
};

}  // namespace nereid::kernels::cpu
