// Tool calls that a request wants, which a guide holds to JSON. Internal to front/output.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "front/output/tool_call.h"

namespace nereid::front {

// Hands out calls as they are made: one begins with its name, and parts of its arguments follow as
// they are written. One object per sequence.
class ForcedCalls {
 public:
  // The text is the arguments of this tool; of none, an array of {"name", "parameters"} in that
  // order.
  explicit ForcedCalls(std::string tool)
      : tool_(std::move(tool)), phase_(tool_.empty() ? Phase::kBetween : Phase::kNamed) {}

  // Where the text ends too early, the last call has the arguments that there are, and a call
  // without a name is none. What is not of the form comes out as text.
  void push(std::string_view piece, bool final, OutputPart& out);

  // Of an array; a call without a name is none.
  bool has_open_call() const { return phase_ == Phase::kArguments; }

 private:
  enum class Phase {
    kNamed,    // all of the text is arguments
    kBetween,  // in front of the array's first call, or behind a call
    kHead,     // of a call, up to its arguments
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
  // Goes on behind `c` where that stands here, else the rest is text.
  bool take(char c, Phase next);

  const std::string tool_;
  Phase phase_;
  std::string pending_;
  bool has_begun_ = false;  // the array; of kNamed the call
  // Within arguments.
  size_t depth_ = 0;
  bool in_string_ = false, is_escaped_ = false;
};

}  // namespace nereid::front
