// What generated text is made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nereid::front {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text
};

// What a piece of text adds.
struct OutputPart {
  std::string reasoning;
  std::string text;             // content that is safe to send
  std::vector<ToolCall> calls;  // complete ones, in order
};

}  // namespace nereid::front
