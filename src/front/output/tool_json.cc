// Tool calls in JSON.
#include <algorithm>
#include <string>

#include "front/output/literal_calls.h"
#include "front/output/tool_readers.h"
#include "front/output/tool_schema.h"

namespace nereid::front {
namespace {

bool is_quote(char c) { return c == '"' || c == '\''; }

bool is_key_of_call(std::string_view key) {
  constexpr std::string_view kKeys[] = {"name",      "tool_name",  "function", "type",
                                        "arguments", "parameters", "id",       "tool_call_id"};
  return std::ranges::find(kKeys, key) != std::end(kKeys);
}

// A call whose last braces are missing before the closing marker is a call too.
class JsonCalls : LiteralCalls {
 public:
  JsonCalls(const ToolMarker& marker, std::string_view text, const json::array* tools)
      : LiteralCalls(marker, text, tools, LiteralReader::Syntax::kJson) {}

  CallsRead read(bool final, bool by_name = false) {
    take_fence();
    const bool is_good = read_all(final, by_name) && end_fence(final);
    return result(is_good, final);
  }

 private:
  static constexpr std::string_view kFence = "```";

  // Skips the line that opens a code block.
  void take_fence() {
    is_fenced_ = in_.take(kFence);
    if (is_fenced_) in_.name();
  }
  // False: not certain whether the closing line of the block is next.
  bool end_fence(bool final) {
    return !is_fenced_ || in_.take(kFence) || final || !kFence.starts_with(in_.rest());
  }

  bool read_all(bool final, bool by_name) {
    const auto read_one = [&] { return by_name ? add_named_calls() : add_call(); };
    if (!in_.take('[')) return read_one();
    while (!in_.take(']')) {
      if (!read_one()) return false;
      if (!in_.take(',') && in_.peek() != ']') return ends_early() || (final && in_.rest().empty());
    }
    return true;
  }

  // Whether the text behind the calls is next.
  bool ends_early() { return is_closed() || (is_fenced_ && sees_end(kFence)); }

  bool add_call() {
    ToolCall call;
    if (!in_.take('{') || !read_members(call) || call.name.empty()) return false;
    if (call.arguments.empty()) call.arguments = "{}";
    add(std::move(call));
    return true;
  }

  // Reads behind the opening brace.
  bool read_members(ToolCall& call) {
    while (!in_.take('}')) {
      const auto key = is_quote(in_.peek()) ? in_.string() : std::nullopt;
      if (!key || (marker_.only_first && !is_key_of_call(*key))) return false;
      if (!in_.take(':') || !read_member(*key, call)) return false;
      if (in_.take(',') || in_.peek() == '}') continue;
      return !call.name.empty() && !call.arguments.empty() && ends_early();
    }
    return true;
  }

  bool read_member(std::string_view key, ToolCall& call) {
    const char first = in_.peek();
    if (key == "function" && first == '{') return in_.take('{') && read_members(call);
    if (key == "name" || key == "tool_name" || key == "function") {
      auto name = is_quote(first) ? in_.string() : std::nullopt;
      if (!name || (marker_.only_first && !may_call(*name))) return false;
      call.name = *std::move(name);
      return true;
    }
    if (key == "arguments" || key == "parameters") return read_arguments(call.arguments);
    if (key != "id" || !is_quote(first)) return in_.literal().has_value();
    auto id = in_.string();
    if (id) call.id = *std::move(id);
    return id.has_value();
  }

  bool read_arguments(std::string& out) {
    auto value = in_.arguments();
    if (value) out = *std::move(value);
    return value.has_value();
  }

  bool add_named_calls() {
    if (!in_.take('{')) return false;
    while (!in_.take('}')) {
      ToolCall call;
      auto name = is_quote(in_.peek()) ? in_.string() : std::nullopt;
      if (!name || name->empty() || !in_.take(':') || !read_arguments(call.arguments)) return false;
      call.name = *std::move(name);
      add(std::move(call));
      if (!in_.take(',') && in_.peek() != '}') return ends_early();
    }
    return true;
  }

  bool is_fenced_ = false;  // a code block encloses the calls
};

// Mistral's ids have this form; others may repeat in the next answer.
bool is_mistral_id(std::string_view id) {
  return id.size() == 9 && std::ranges::all_of(id, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
         });
}

CallsRead without_ids(CallsRead read) {
  for (ToolCall& call : read.calls) call.id.clear();
  return read;
}

}  // namespace

CallsRead read_json(const ToolMarker& marker, std::string_view text, bool final,
                    const json::array* tools) {
  return without_ids(JsonCalls(marker, text, tools).read(final));
}

CallsRead read_by_name(const ToolMarker& marker, std::string_view text, bool final,
                       const json::array* tools) {
  return JsonCalls(marker, text, tools).read(final, /*by_name=*/true);
}

CallsRead read_mistral(const ToolMarker& marker, std::string_view text, bool final,
                       const json::array* tools) {
  LiteralReader in(text);
  const auto none = [&] { return not_calls(in.ran_out(), final, in.at(), text.size()); };
  if (const char first = in.peek(); first == '[' || first == '{' || first == '`') {
    CallsRead read = JsonCalls(marker, text, tools).read(final);
    for (ToolCall& call : read.calls)
      if (!is_mistral_id(call.id)) call.id.clear();
    return read;
  }
  // Bracketed one-word marks may stand between the name and the object.
  ToolCall call{in.name(), "{}"};
  if (call.name.empty()) return none();
  bool has_arguments = false;
  const auto is_next = [&] { return in.rest().starts_with(marker.open); };
  while (in.peek() == '[' && !is_next() && in.take('[')) {
    const std::string mark = in.name();
    if (!in.take(']') || (mark != "ARGS" && mark != "CALL_ID")) return none();
    has_arguments |= mark == "ARGS";
    if (mark == "CALL_ID") call.id = in.name();
  }
  if (!is_mistral_id(call.id)) call.id.clear();
  // A tool without arguments may lack the object.
  const bool is_last = final && in.rest().empty();
  if (has_arguments && (is_next() || is_last)) {
    CallsRead read = found_calls(in.at(), {std::move(call)});
    read.needs_end = is_last;
    return read;
  }
  if (in.peek() != '{') return none();
  auto arguments = in.literal();
  if (!arguments) return none();
  call.arguments = *std::move(arguments);
  return found_calls(in.at(), {std::move(call)});
}

CallsRead read_command(const ToolMarker& marker, std::string_view text, bool final,
                       const json::array* tools) {
  CallsRead read = read_json(marker, text, final, tools);
  std::erase_if(read.calls, [](const ToolCall& call) {
    return call.name == "directly_answer" || call.name == "directly-answer";
  });
  return read;
}

CallsRead read_name_and_object(const ToolMarker&, std::string_view text, bool final,
                               const json::array* tools) {
  LiteralReader in(text);
  std::string name = in.name();
  const auto none = [&] { return not_calls(in.ran_out(), final, in.at(), text.size()); };
  // The name may continue.
  if (in.ran_out()) return none();
  if (name.empty() || !may_be_tool(tools, name) || !in.rest().starts_with('\n')) return none();
  if (in.peek() != '{') return none();
  auto arguments = in.literal();
  if (!arguments) return none();
  return found_calls(in.at(), {{std::move(name), *std::move(arguments)}});
}

}  // namespace nereid::front
