// What generated text is made of.
#pragma once

#include <string>
#include <vector>

namespace nereid::front {

struct ToolCall {
  std::string name;       // empty: a part of the call before, behind the parts that came
  std::string arguments;  // text of a JSON object, or a part of it
  std::string id = {};    // as the model wrote it; empty: it wrote none that has to be kept
};

// What a piece of text adds.
struct OutputPart {
  std::string reasoning;
  std::string text;             // content that is safe to send
  std::vector<ToolCall> calls;  // in order; complete ones, unless a guide holds them (ForcedCalls)
};

}  // namespace nereid::front
