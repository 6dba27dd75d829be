// OpenAI's Harmony format of messages in channels. Source:
// github.com/openai/harmony, docs/format.md.
#pragma once

#include <string>
#include <string_view>

#include "front/output/tool_call.h"

namespace nereid::front {

// The channel "analysis" is reasoning, a message to "functions.NAME" a call with the message as its
// arguments, all else content. One object per sequence; text begins behind "<|start|>assistant".
class HarmonyParser {
 public:
  // `final` and `is_cut` as in ChatOutput.
  void push(std::string_view piece, bool final, OutputPart& out, bool is_cut = false);

 private:
  void say(std::string_view text, OutputPart& out);
  void end_message(OutputPart& out, bool is_cut = false);

  std::string pending_;
  std::string header_;
  bool in_header_ = true;
  std::string call_;  // arguments so far of a message to a tool
};

}  // namespace nereid::front
