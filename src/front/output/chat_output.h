// Splits a streamed answer into reasoning, tool calls and content.
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

// Whether `text` ends with `mark`, trailing blanks ignored.
bool ends_with_mark(std::string_view text, std::string_view mark);

// The grammar of the text behind the reasoning; `tool` as in ForcedCalls.
struct GrammarAnswer {
  enum class To { kNothing, kText, kCalls };
  To to = To::kNothing;
  std::string tool = {};
};

// One object per sequence. The result does not depend on the division of the text into pieces.
class ChatOutput {
 public:
  // Null formats: text of that kind is content. `prompt_end`: the prompt's last characters, which
  // may open or close the reasoning. `tools` (or null) must outlive this.
  ChatOutput(const ReasoningFormat* reasoning, const ToolFormat* tool_format,
             const json::array* tools, std::string_view prompt_end, GrammarAnswer guided = {});

  // `final` releases all held-back text. `is_cut`: the answer was ended by a
  // limit, not by the model.
  OutputPart push(std::string_view piece, bool final, bool is_cut = false);

  // Whether the last call of a constrained text is unfinished.
  bool has_open_call() const { return forced_ && forced_->has_open_call(); }

 private:
  enum class Phase { kStart, kReasoning, kContent };

  // The state of the text's end.
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
  const ToolFormat* tool_format_ = nullptr;  // formats of tools_
  const json::array* known_tools_;
  std::optional<ToolParser> tools_;
  std::optional<ForcedCalls> forced_;
  std::optional<HarmonyParser> harmony_;
  Phase phase_ = Phase::kContent;
  std::string pending_;
  bool reasoned_ = false;     // reasoning was already returned
  bool skip_blanks_ = false;  // at the front of the content
  // Calls inside reasoning: those that pending_ may have at early_at_, and the position up to
  // which it has none.
  std::optional<EarlyCalls> early_;
  size_t early_at_ = 0, num_without_calls_ = 0;
  // A closing marker may follow the calls that have ended the reasoning.
  bool may_close_late_ = false, skip_late_blanks_ = false;
  std::string late_;  // text that may begin with that marker
};

}  // namespace nereid::front
