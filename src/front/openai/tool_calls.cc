// Streaming tool-call markup; see tool_calls.h.
#include "front/openai/tool_calls.h"

#include <algorithm>
#include <optional>

#include "base/json.h"
#include "front/http/json_text.h"

namespace nereid::front {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr std::string_view kBlanks = " \t\r\n";
// A call longer than this is text; keeps memory and parse time bounded.
constexpr size_t kMaxCallBytes = 128 << 10;

std::optional<ToolCall> parse_call(std::string_view text) {
  const StatusOr<json::value> root = parse_json(text, 100);
  const json::object* object = root.ok() ? root->if_object() : nullptr;
  const json::value* name = object ? object->if_contains("name") : nullptr;
  const json::value* arguments = object ? object->if_contains("arguments") : nullptr;
  if (name == nullptr || !name->is_string()) return std::nullopt;
  ToolCall call{std::string(std::string_view(name->get_string())), "{}"};
  if (arguments != nullptr && arguments->is_string()) {
    call.arguments = std::string_view(arguments->get_string());
  } else if (arguments != nullptr) {
    call.arguments.clear();
    append_json(call.arguments, *arguments);
  }
  return call;
}

// Length of the longest suffix of `text` that begins the opening tag.
size_t partial_tag(std::string_view text) {
  for (size_t n = std::min(text.size(), kOpen.size() - 1); n > 0; --n) {
    if (text.ends_with(kOpen.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

ToolCallParser::Out ToolCallParser::push(std::string_view piece, bool final) {
  Out out;
  pending_ += piece;
  const auto say = [&](std::string_view text) {
    blank_ += text;
    const size_t end = blank_.find_last_not_of(kBlanks);
    if (end == std::string::npos) return;
    out.text += blank_.substr(0, end + 1);
    blank_.erase(0, end + 1);
  };
  for (;;) {
    const size_t open = pending_.find(kOpen);
    if (open == std::string::npos) {
      const size_t keep = final ? 0 : partial_tag(pending_);
      say(std::string_view(pending_).substr(0, pending_.size() - keep));
      pending_.erase(0, pending_.size() - keep);
      break;
    }
    say(std::string_view(pending_).substr(0, open));
    pending_.erase(0, open);
    const size_t close = pending_.find(kClose);
    if (close == std::string::npos) {
      if (!final && pending_.size() <= kMaxCallBytes) break;
      say(pending_);
      pending_.clear();
      break;
    }
    const std::string_view body =
        std::string_view(pending_).substr(kOpen.size(), close - kOpen.size());
    if (auto call = parse_call(body)) {
      out.calls.push_back(*std::move(call));
      ++num_calls_;
      blank_.clear();
    } else {
      say(std::string_view(pending_).substr(0, close + kClose.size()));
    }
    pending_.erase(0, close + kClose.size());
  }
  if (final && num_calls_ == 0) {
    out.text += blank_;
    blank_.clear();
  }
  return out;
}

}  // namespace nereid::front
