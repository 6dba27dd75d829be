// Tool calls written as Python calls with literals.
#include <string>

#include "front/output/literal_calls.h"
#include "front/output/tool_readers.h"

namespace nereid::front {
namespace {

// Calls with keyword arguments. Grammar: Python's reference, "Calls" and "Literals".
class PythonCalls : LiteralCalls {
 public:
  PythonCalls(const ToolMarker& marker, std::string_view text, const json::array* tools)
      : LiteralCalls(marker, text, tools, LiteralReader::Syntax::kPython) {}

  // Calls in brackets, or up to the closing marker.
  CallsRead read(bool final) {
    return result(in_.take('[') ? read_list() : read_lines(final), final);
  }
  // A single call.
  CallsRead read_one(bool final) { return result(add_call(), final); }

 private:
  bool read_list() {
    while (!in_.take(']')) {
      if (!add_call() || (!in_.take(',') && in_.peek() != ']')) return false;
    }
    return true;
  }
  bool read_lines(bool final) {
    if (marker_.close.empty()) return false;
    for (;;) {
      if (in_.peek() == 0) return final;
      if (is_closed()) return true;
      if (marker_.close.starts_with(in_.rest()) || !add_call()) return false;
      if (!in_.take(',')) in_.take(';');
    }
  }

  bool add_call() {
    ToolCall call{in_.name(), ""};
    if (!may_call(call.name) || !in_.take('(')) return false;
    JsonMembers arguments;
    while (!in_.take(')')) {
      std::string key = in_.name();
      if (key.empty() || !in_.take('=')) return false;
      auto value = in_.literal();
      if (!value) return false;
      arguments.add(std::move(key), *std::move(value));
      if (!in_.take(',') && in_.peek() != ')') return false;
    }
    call.arguments = arguments.text();
    add(std::move(call));
    return true;
  }
};

}  // namespace

CallsRead read_pythonic(const ToolMarker& marker, std::string_view text, bool final,
                        const json::array* tools) {
  return PythonCalls(marker, text, tools).read(final);
}

CallsRead read_llama(const ToolMarker& marker, std::string_view text, bool final,
                     const json::array* tools) {
  LiteralReader in(text);
  const char first = in.peek();
  if (first == 0) return not_calls(true, final, 0, text.size());
  if (first == '{' || first == '[') return read_json(marker, text, final, tools);
  constexpr std::string_view kMethod = ".call";
  CallsRead read = PythonCalls(marker, text, tools).read_one(final);
  if (read.state != CallsRead::State::kCalls) return read;
  std::string& name = read.calls[0].name;
  if (!name.ends_with(kMethod) || name == kMethod) return not_calls(false, final, 0, text.size());
  name.resize(name.size() - kMethod.size());
  return read;
}

}  // namespace nereid::front
