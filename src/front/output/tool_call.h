// The parts of generated text.
#pragma once

#include <string>
#include <vector>

namespace nereid::front {

struct ToolCall {
  std::string name;       // empty: the next part of the previous call
  std::string arguments;  // text of a JSON object, or a part of it
  std::string id = {};    // as written by the model; empty: none that must be kept
};

// New parts from a piece of text.
struct OutputPart {
  std::string reasoning;
  std::string text;             // content that may be sent
  std::vector<ToolCall> calls;  // in order; complete ones, except with a grammar (ForcedCalls)
};

}  // namespace nereid::front
