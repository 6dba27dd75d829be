// Splits what a model answers into reasoning, tool calls and content as it streams.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "front/output/early_calls.h"
#include "front/output/forced_calls.h"
#include "front/output/harmony.h"
#include "front/output/reasoning_formats.h"
#include "front/output/tool_formats.h"
#include "front/output/tool_parser.h"

namespace nereid::front {

// Whether `mark` is the last of `text`, but for blanks behind it.
bool ends_with_mark(std::string_view text, std::string_view mark);

// What a guide holds the text behind the reasoning to; `tool` as of ForcedCalls.
struct Guided {
  enum class To { kNothing, kText, kCalls };
  To to = To::kNothing;
  std::string tool = {};
};

// One object per sequence. What comes out does not depend on where the text is cut into pieces.
class ChatOutput {
 public:
  // Null formats: text of that kind is content. `prompt_end`: the prompt's last characters, which
  // may open the reasoning or close it. `tools` (or null) outlives this.
  ChatOutput(const ReasoningFormat* reasoning, const ToolFormat* tool_format,
             const json::array* tools, std::string_view prompt_end, Guided guided = {});

  // `final` releases everything held back. `is_cut`: the model did not end its answer itself.
  OutputPart push(std::string_view piece, bool final, bool is_cut = false);

  // Whether the last call of a guided text has begun and not ended.
  bool has_open_call() const { return forced_ && forced_->has_open_call(); }

 private:
  enum class Phase { kStart, kReasoning, kContent };

  // What a text comes with.
  struct End {
    bool final = false, is_cut = false;
  };

  // False: more text is needed.
  bool start(bool final);
  bool reason(End end, OutputPart& out);
  bool read_early_calls(End end, OutputPart& out);
  bool end_reasoning(size_t close, bool final, OutputPart& out);
  void content(End end, OutputPart& out);
  void say_reasoning(size_t limit, OutputPart& out);
  void drop_late_close(bool final, std::string& text);

  const ReasoningFormat* reasoning_;
  const ToolFormat* tool_format_ = nullptr;  // of tools_
  const json::array* known_tools_;
  std::optional<ToolParser> tools_;
  std::optional<ForcedCalls> forced_;
  std::optional<HarmonyParser> harmony_;
  Phase phase_ = Phase::kContent;
  std::string pending_;
  bool reasoned_ = false;     // some reasoning has been handed out
  bool skip_blanks_ = false;  // those in front of the content
  // Of calls in reasoning: those that pending_ may have at early_at_, and up to where it has none.
  std::optional<EarlyCalls> early_;
  size_t early_at_ = 0, num_without_calls_ = 0;
  // A mark that closes the reasoning may come behind calls that have ended it.
  bool may_close_late_ = false, skip_late_blanks_ = false;
  std::string late_;  // text that may begin with that mark
};

}  // namespace nereid::front
