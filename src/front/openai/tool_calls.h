// Finds <tool_call>{"name": .., "arguments": ..}</tool_call> in generated text as it streams.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nereid::front {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text
};

// The Hermes / Qwen format. Markup that does not parse comes out as text; the whitespace around
// calls is dropped. One object per sequence.
class ToolCallParser {
 public:
  struct Out {
    std::string text;             // content that is safe to send
    std::vector<ToolCall> calls;  // complete calls, in order
  };

  // `final` releases everything held back.
  Out push(std::string_view piece, bool final);
  size_t num_calls() const { return num_calls_; }

 private:
  std::string pending_;  // text from a possible or certain opening tag on
  std::string blank_;    // whitespace that a call may follow
  size_t num_calls_ = 0;
};

}  // namespace nereid::front
