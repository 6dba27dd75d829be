// Tool calls that a request requires, constrained to JSON by a grammar. Internal to front/output.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "front/output/tool_call.h"

namespace nereid::front {

// Streams calls: a call begins with its name, and parts of its arguments follow. One
// object per sequence.
class ForcedCalls {
 public:
  // The text is the arguments of this tool; "": an array of {"name", "parameters"} in that order.
  explicit ForcedCalls(std::string tool)
      : tool_(std::move(tool)), phase_(tool_.empty() ? Phase::kBetween : Phase::kNamed) {}

  // A truncated text: the last call has the arguments so far, and a call without a name is dropped.
  // Text of another form is content.
  void push(std::string_view piece, bool final, OutputPart& out);

  // In an array; a call without a name does not count.
  bool has_open_call() const { return phase_ == Phase::kArguments; }

 private:
  enum class Phase {
    kNamed,    // all of the text is arguments
    kBetween,  // before the array's first call, or behind a call
    kHead,     // a call, up to its arguments
    kArguments,
    kCallEnd,
    kEnd,
    kText,
  };

  // These return false when more text is needed.
  bool step(bool final, OutputPart& out);
  bool read_between();
  bool read_head(bool final, OutputPart& out);
  bool read_arguments(OutputPart& out);
  // Continues behind `c` if it is next, else the rest is text.
  bool take(char c, Phase next);

  const std::string tool_;
  Phase phase_;
  std::string pending_;
  bool has_begun_ = false;  // of the array; for kNamed of the call
  // Nesting inside arguments.
  size_t depth_ = 0;
  bool in_string_ = false, is_escaped_ = false;
};

}  // namespace nereid::front
