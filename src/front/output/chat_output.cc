// The phases of an answer; see chat_output.h.
#include "front/output/chat_output.h"

#include <algorithm>

#include "base/blanks.h"

namespace nereid::front {

bool ends_with_mark(std::string_view text, std::string_view mark) {
  const size_t end = text.find_last_not_of(kBlanks);
  return end != std::string_view::npos && text.substr(0, end + 1).ends_with(mark);
}

ChatOutput::ChatOutput(const ReasoningFormat* reasoning, const ToolFormat* tool_format,
                       const json::array* tools, std::string_view prompt_end, bool is_guided)
    : reasoning_(reasoning) {
  const bool is_harmony =
      (reasoning && reasoning->is_harmony()) || (tool_format && tool_format->markers.empty());
  if (is_harmony && !is_guided) {
    harmony_.emplace();
    return;
  }
  if (tool_format && !tool_format->markers.empty()) tools_.emplace(*tool_format, tools);
  if (!reasoning) return;
  if (ends_with_mark(prompt_end, reasoning->close)) return;
  phase_ = ends_with_mark(prompt_end, reasoning->open) ? Phase::kReasoning : Phase::kStart;
}

bool ChatOutput::start(bool final) {
  const size_t begin = pending_.find_first_not_of(kBlanks);
  if (begin == std::string::npos && !final) return false;
  const std::string_view text =
      begin == std::string::npos ? std::string_view() : std::string_view(pending_).substr(begin);
  if (text.starts_with(reasoning_->open)) {
    pending_.erase(0, begin + reasoning_->open.size());
    phase_ = Phase::kReasoning;
    return true;
  }
  if (!final && reasoning_->open.starts_with(text)) return false;
  phase_ = reasoning_->always ? Phase::kReasoning : Phase::kContent;
  return true;
}

bool ChatOutput::reason(bool final, OutputPart& out) {
  if (!reasoned_) {
    const size_t begin = std::min(pending_.find_first_not_of(kBlanks), pending_.size());
    pending_.erase(0, begin);
  }
  const size_t close = pending_.find(reasoning_->close);
  const bool ends = close != std::string::npos;
  const size_t limit =
      ends ? close : pending_.size() - (final ? 0 : partial_mark(pending_, reasoning_->close));
  // Blanks in front of the close belong to neither.
  const size_t last = std::string_view(pending_).substr(0, limit).find_last_not_of(kBlanks);
  const size_t say = last == std::string_view::npos ? 0 : last + 1;
  out.reasoning += pending_.substr(0, say);
  reasoned_ |= say > 0;
  pending_.erase(0, ends ? close + reasoning_->close.size() : final ? pending_.size() : say);
  if (!ends) return false;
  phase_ = Phase::kContent;
  skip_blanks_ = true;
  return true;
}

void ChatOutput::content(bool final, OutputPart& out) {
  if (skip_blanks_) {
    const size_t begin = pending_.find_first_not_of(kBlanks);
    pending_.erase(0, std::min(begin, pending_.size()));
    skip_blanks_ = begin == std::string::npos;
  }
  if (tools_)
    tools_->push(pending_, final, out);
  else
    out.text += pending_;
  pending_.clear();
}

OutputPart ChatOutput::push(std::string_view piece, bool final) {
  OutputPart out;
  if (harmony_) {
    harmony_->push(piece, final, out);
    return out;
  }
  pending_ += piece;
  if (phase_ == Phase::kStart && !start(final)) return out;
  if (phase_ == Phase::kReasoning && !reason(final, out)) return out;
  content(final, out);
  return out;
}

}  // namespace nereid::front
