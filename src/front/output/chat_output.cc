// The phases of an answer; see chat_output.h.
#include "front/output/chat_output.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/blanks.h"

namespace nereid::front {

bool ends_with_mark(std::string_view text, std::string_view mark) {
  const size_t end = text.find_last_not_of(kBlanks);
  return end != std::string_view::npos && text.substr(0, end + 1).ends_with(mark);
}

ChatOutput::ChatOutput(const ReasoningFormat* reasoning, const ToolFormat* tool_format,
                       const json::array* tools, std::string_view prompt_end, GrammarAnswer guided)
    : reasoning_(reasoning), known_tools_(tools) {
  const bool is_guided = guided.to != GrammarAnswer::To::kNothing;
  const bool is_harmony =
      (reasoning && reasoning->is_harmony()) || (tool_format && tool_format->markers.empty());
  if (is_harmony && !is_guided) {
    harmony_.emplace();
    return;
  }
  if (guided.to == GrammarAnswer::To::kCalls)
    forced_.emplace(std::move(guided.tool));
  else if (tool_format && !tool_format->markers.empty())
    tools_.emplace(*tool_format, tools);
  // A grammar constrains the text behind the reasoning; its JSON is in no tool format.
  if (tools_ && !is_guided) tool_format_ = tool_format;
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

// Moves pending_[0, limit), trailing blanks excluded, to the reasoning.
void ChatOutput::say_reasoning(size_t limit, OutputPart& out) {
  const size_t last = std::string_view(pending_).substr(0, limit).find_last_not_of(kBlanks);
  const size_t say = last == std::string_view::npos ? 0 : last + 1;
  out.reasoning += pending_.substr(0, say);
  reasoned_ |= say > 0;
  pending_.erase(0, say);
  num_without_calls_ -= std::min(say, num_without_calls_);
}

bool ChatOutput::read_early_calls(End end, OutputPart& out) {
  const std::string_view text = std::string_view(pending_).substr(early_at_);
  const EarlyCalls::State state = early_->read(text, end.final, end.is_cut);
  if (state == EarlyCalls::State::kMore) return false;
  if (state == EarlyCalls::State::kText) {
    num_without_calls_ = early_at_ + early_->num_text();
  } else {
    OutputPart& part = early_->part();
    out.text += part.text;
    std::ranges::move(part.calls, std::back_inserter(out.calls));
    tools_ = std::move(early_->parser());
    pending_.erase(0, early_at_ + early_->num_read());
    phase_ = Phase::kContent;
    may_close_late_ = true;
  }
  early_.reset();
  return true;
}

bool ChatOutput::reason(End end, OutputPart& out) {
  for (;;) {
    if (early_ && !read_early_calls(end, out)) return false;
    if (phase_ == Phase::kContent) return true;
    if (!reasoned_) {
      const size_t begin = std::min(pending_.find_first_not_of(kBlanks), pending_.size());
      pending_.erase(0, begin);
      num_without_calls_ -= std::min(begin, num_without_calls_);
    }
    const size_t close = pending_.find(reasoning_->close);
    const FoundMark mark =
        tool_format_ ? find_call_mark(*tool_format_, pending_, num_without_calls_) : FoundMark();
    if (!mark.marker || mark.at > close) return end_reasoning(close, end.final, out);
    const size_t size = pending_.size();
    say_reasoning(mark.at, out);
    early_at_ = mark.at - (size - pending_.size());
    early_.emplace(*tool_format_, *mark.marker, known_tools_, reasoning_->close);
  }
}

// `close`: position of the closing marker, npos without one.
bool ChatOutput::end_reasoning(size_t close, bool final, OutputPart& out) {
  const bool ends = close != std::string::npos;
  size_t held = partial_mark(pending_, reasoning_->close);
  if (tool_format_) held = std::max(held, partial_call_mark(*tool_format_, pending_));
  const size_t size = pending_.size();
  // Blanks before the closing marker are dropped.
  say_reasoning(ends ? close : size - (final ? 0 : held), out);
  const size_t said = size - pending_.size();
  if (ends || final) pending_.erase(0, ends ? close + reasoning_->close.size() - said : size);
  if (!ends) return false;
  phase_ = Phase::kContent;
  skip_blanks_ = true;
  return true;
}

// Removes a late closing marker at the front of the content `text`, with the blanks around it.
void ChatOutput::drop_late_close(bool final, std::string& text) {
  text.insert(0, std::exchange(late_, {}));
  if (may_close_late_) {
    const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
    const std::string_view mark = reasoning_->close;
    const std::string_view rest = std::string_view(text).substr(begin);
    if (!final && mark.starts_with(rest) && rest.size() < mark.size()) {
      late_ = std::exchange(text, {});
      return;
    }
    may_close_late_ = false;
    skip_late_blanks_ = rest.starts_with(mark);
    if (skip_late_blanks_) text.erase(0, begin + mark.size());
  }
  if (!skip_late_blanks_) return;
  const size_t begin = text.find_first_not_of(kBlanks);
  text.erase(0, std::min(begin, text.size()));
  skip_late_blanks_ = begin == std::string::npos;
}

void ChatOutput::content(End end, OutputPart& out) {
  if (skip_blanks_) {
    const size_t begin = pending_.find_first_not_of(kBlanks);
    pending_.erase(0, std::min(begin, pending_.size()));
    skip_blanks_ = begin == std::string::npos;
  }
  if (forced_) {
    forced_->push(pending_, end.final, out);
  } else if (tools_) {
    const size_t size = out.text.size();
    tools_->push(pending_, end.final, out, end.is_cut);
    if (may_close_late_ || skip_late_blanks_) {
      std::string text = out.text.substr(size);
      out.text.resize(size);
      drop_late_close(end.final, text);
      out.text += text;
    }
  } else {
    out.text += pending_;
  }
  pending_.clear();
}

OutputPart ChatOutput::push(std::string_view piece, bool final, bool is_cut) {
  OutputPart out;
  if (harmony_) {
    harmony_->push(piece, final, out, is_cut);
    return out;
  }
  const End end = {final, is_cut};
  pending_ += piece;
  if (phase_ == Phase::kStart && !start(final)) return out;
  if (phase_ == Phase::kReasoning && !reason(end, out)) return out;
  content(end, out);
  return out;
}

}  // namespace nereid::front
