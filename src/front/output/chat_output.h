// Splits what a model answers into reasoning, tool calls and content as it streams.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "front/output/harmony.h"
#include "front/output/reasoning_formats.h"
#include "front/output/tool_formats.h"
#include "front/output/tool_parser.h"

namespace nereid::front {

// Whether `mark` is the last of `text`, but for blanks behind it.
bool ends_with_mark(std::string_view text, std::string_view mark);

// One object per sequence. What comes out does not depend on where the text is cut into pieces.
class ChatOutput {
 public:
  // Null formats: text of that kind is content. `prompt_end`: the prompt's last characters, which
  // may open the reasoning or close it. `tools` (or null) outlives this. `is_guided`: a guide holds
  // what follows the reasoning.
  ChatOutput(const ReasoningFormat* reasoning, const ToolFormat* tool_format,
             const json::array* tools, std::string_view prompt_end, bool is_guided = false);

  // `final` releases everything held back.
  OutputPart push(std::string_view piece, bool final);

 private:
  enum class Phase { kStart, kReasoning, kContent };

  // False: more text is needed.
  bool start(bool final);
  bool reason(bool final, OutputPart& out);
  void content(bool final, OutputPart& out);

  const ReasoningFormat* reasoning_;
  std::optional<ToolParser> tools_;
  std::optional<HarmonyParser> harmony_;
  Phase phase_ = Phase::kContent;
  std::string pending_;
  bool reasoned_ = false;     // some reasoning has been handed out
  bool skip_blanks_ = false;  // those in front of the content
};

}  // namespace nereid::front
