// Code shared by readers of calls written as literals of JSON or Python. Internal to front/output.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "front/output/tool_readers.h"
#include "front/output/tool_schema.h"

namespace nereid::front {

// The calls at the beginning of a text.
class LiteralCalls {
 protected:
  LiteralCalls(const ToolMarker& marker, std::string_view text, const json::array* tools,
               LiteralReader::Syntax syntax)
      : marker_(marker), in_(text, syntax), tools_(tools), size_(text.size()) {}

  // `is_good`: all parts of the calls were read. In a list cut by the answer's end, the
  // complete calls are calls.
  CallsRead result(bool is_good, bool final) {
    const bool may_go_on = in_.ran_out() || may_close_;
    if (!calls_.empty() && is_good) return found_calls(in_.at(), std::move(calls_));
    if (!calls_.empty() && final && may_go_on) return found_calls(last_end_, std::move(calls_));
    return not_calls(may_go_on, final, in_.at(), size_);
  }

  void add(ToolCall call) {
    calls_.push_back(std::move(call));
    last_end_ = in_.at();
  }

  // Whether the closing marker is next.
  bool is_closed() { return sees_end(marker_.close); }
  bool sees_end(std::string_view mark) {
    in_.peek();
    if (mark.empty()) return false;
    may_close_ |= mark.starts_with(in_.rest());
    return in_.rest().starts_with(mark);
  }

  // Text that any answer may begin with is a call only for a tool of the request.
  bool may_call(std::string_view name) const {
    return !name.empty() && (!marker_.only_first || may_be_tool(tools_, name));
  }

  const ToolMarker& marker_;
  LiteralReader in_;

 private:
  const json::array* tools_;
  const size_t size_;
  std::vector<ToolCall> calls_;
  size_t last_end_ = 0;     // of the last call
  bool may_close_ = false;  // the text ends within a possible end marker
};

}  // namespace nereid::front
