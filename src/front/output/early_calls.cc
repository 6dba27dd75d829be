// Calls in unclosed reasoning; see early_calls.h.
#include "front/output/early_calls.h"

#include <algorithm>

#include "front/output/tool_schema.h"

namespace nereid::front {

// Ignores the first `num_known` calls.
bool EarlyCalls::has_unknown_call(size_t num_known) const {
  return std::any_of(part_.calls.begin() + static_cast<ptrdiff_t>(num_known), part_.calls.end(),
                     [&](const ToolCall& call) { return !may_be_tool(tools_, call.name); });
}

// Byte by byte, so that the division into pieces has no effect.
EarlyCalls::State EarlyCalls::read(std::string_view text, bool final, bool is_cut) {
  while (num_read_ < text.size()) {
    const size_t num_known = part_.calls.size();
    parser_.push(text.substr(num_read_++, 1), false, part_);
    if (part_.calls.size() > num_known) {
      if (has_unknown_call(num_known)) return State::kText;
      calls_end_ = num_read_;
      if (is_control_) return State::kCalls;
    }
    is_closed_ = !is_control_ && text.substr(0, num_read_).ends_with(close_);
    if (is_closed_ || !part_.text.empty()) return State::kText;
  }
  if (!final) return State::kMore;
  const size_t num_known = part_.calls.size();
  parser_.push("", true, part_, is_cut);
  const bool may_be_quoted = is_cut && !is_control_;
  const bool is_text = may_be_quoted || part_.calls.empty() || has_unknown_call(num_known);
  return is_text ? State::kText : State::kCalls;
}

size_t EarlyCalls::num_text() const {
  if (is_closed_) return num_read_;
  const size_t end = part_.calls.empty() ? part_.text.size() : calls_end_;
  return std::clamp<size_t>(end, 1, num_read_);
}

}  // namespace nereid::front
