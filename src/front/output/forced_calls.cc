// Calls constrained to JSON by a grammar; see forced_calls.h.
#include "front/output/forced_calls.h"

#include <algorithm>
#include <optional>

#include "base/blanks.h"
#include "front/output/tool_literal.h"

namespace nereid::front {
namespace {

// The next part of the last call.
void add_arguments(std::string_view text, OutputPart& out) {
  if (text.empty()) return;
  if (out.calls.empty()) out.calls.emplace_back();
  out.calls.back().arguments += text;
}

// Reads member `key`, a string, of an object.
std::optional<std::string> string_member(LiteralReader& in, std::string_view key) {
  if (in.peek() != '"' || in.string() != key || !in.take(':') || in.peek() != '"')
    return std::nullopt;
  return in.string();
}

}  // namespace

bool ForcedCalls::take(char c, Phase next) {
  phase_ = pending_.front() == c ? next : Phase::kText;
  if (phase_ == next) pending_.erase(0, 1);
  return true;
}

bool ForcedCalls::read_between() {
  if (std::exchange(has_begun_, true))
    return pending_.front() == ']' ? take(']', Phase::kEnd) : take(',', Phase::kHead);
  return take('[', Phase::kHead);
}

// {"name": "f", "parameters": before the arguments.
bool ForcedCalls::read_head(bool final, OutputPart& out) {
  LiteralReader in(pending_);
  std::optional<std::string> name;
  if (in.take('{')) name = string_member(in, "name");
  const bool is_whole = name && !name->empty() && in.take(',') && in.peek() == '"' &&
                        in.string() == "parameters" && in.take(':') && in.peek() == '{';
  if (is_whole) {
    pending_.erase(0, in.at());
    phase_ = Phase::kArguments;
  } else if (!in.ran_out()) {
    phase_ = Phase::kText;
    return true;
  } else if (!final) {
    return false;
  } else {
    pending_.clear();
  }
  if (name && !name->empty()) out.calls.push_back({*std::move(name), ""});
  return is_whole;
}

bool ForcedCalls::read_arguments(OutputPart& out) {
  size_t at = 0;
  bool is_over = false;
  for (; at < pending_.size() && !is_over; ++at) {
    const char c = pending_[at];
    if (in_string_) {
      if (is_escaped_)
        is_escaped_ = false;
      else
        is_escaped_ = c == '\\', in_string_ = c != '"';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      is_over = --depth_ == 0;
    }
  }
  add_arguments(std::string_view(pending_).substr(0, at), out);
  pending_.erase(0, at);
  if (is_over) phase_ = Phase::kCallEnd;
  return is_over;
}

bool ForcedCalls::step(bool final, OutputPart& out) {
  switch (phase_) {
    case Phase::kNamed:
      if (!std::exchange(has_begun_, true)) out.calls.push_back({tool_, ""});
      add_arguments(pending_, out);
      pending_.clear();
      return false;
    case Phase::kText:
      out.text += std::exchange(pending_, {});
      return false;
    case Phase::kArguments:
      return read_arguments(out);
    default:
      break;
  }
  // Skips blanks between the parts.
  pending_.erase(0, std::min(pending_.find_first_not_of(kBlanks), pending_.size()));
  if (pending_.empty()) return false;
  if (phase_ == Phase::kBetween) return read_between();
  if (phase_ == Phase::kHead) return read_head(final, out);
  if (phase_ == Phase::kCallEnd) return take('}', Phase::kBetween);
  phase_ = Phase::kText;  // behind the array
  return true;
}

void ForcedCalls::push(std::string_view piece, bool final, OutputPart& out) {
  pending_ += piece;
  while (!pending_.empty() && step(final, out)) {
  }
}

}  // namespace nereid::front
