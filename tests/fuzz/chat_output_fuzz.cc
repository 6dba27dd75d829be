// Answers of models with reasoning and tool calls, read by every tool format. The first byte says
// how reasoning is written, the second whether a guide holds the answer, and to calls, what the
// prompt ends with, whether the request's tools are known, and where the text is cut; what comes
// out must not depend on the cuts.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/rng.h"
#include "front/output/chat_output.h"

using namespace nereid;
using namespace nereid::front;

namespace {

// Pieces of up to `longest` bytes, of which some are empty.
OutputPart read(ChatOutput output, std::string_view text, size_t longest) {
  OutputPart all;
  const auto add = [&](OutputPart part) {
    all.reasoning += part.reasoning;
    all.text += part.text;
    for (ToolCall& call : part.calls) {
      NEREID_CHECK(!call.name.empty() || !all.calls.empty());
      if (call.name.empty())
        all.calls.back().arguments += call.arguments;
      else
        all.calls.push_back(std::move(call));
    }
  };
  size_t begin = 0;
  for (uint64_t i = 0; begin < text.size(); ++i) {
    const size_t length = longest < text.size() ? philox(longest, i)[0] % (longest + 1) : longest;
    const std::string_view piece = text.substr(begin, length);
    begin += piece.size();
    // The end comes with the last piece, or alone.
    const bool is_final = begin == text.size() && longest % 2 == 0;
    add(output.push(piece, is_final));
    if (is_final) return all;
  }
  add(output.push("", true));
  return all;
}

void check(const OutputPart& whole, const OutputPart& cut, bool has_objects) {
  NEREID_CHECK(whole.reasoning == cut.reasoning && whole.text == cut.text);
  NEREID_CHECK(whole.calls.size() == cut.calls.size());
  for (size_t i = 0; i < cut.calls.size(); ++i) {
    const ToolCall& call = cut.calls[i];
    NEREID_CHECK(whole.calls[i].name == call.name && whole.calls[i].arguments == call.arguments);
    NEREID_CHECK(!call.name.empty());
    if (!has_objects) continue;
    const auto arguments = parse_json(call.arguments, 1000);
    NEREID_CHECK(arguments.ok() && arguments->is_object());
  }
}

const json::array& tools_of_request() {
  static const json::value tools = *parse_json(
      R"([5, {"type": "function"}, {"function": {"name": "g", "parameters": null}},
          {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
           "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": ["string",
           "null"]}, "d": 5, "e": {"anyOf": [{"type": "string"}, {"type": "null"}]},
           "x": {"type": "array", "items": {"type": "number"}}}}}}])");
  return tools.as_array();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto reasonings = reasoning_formats();
  const size_t number = data[0] % (reasonings.size() + 1);
  const ReasoningFormat* const reasoning =
      number < reasonings.size() ? &reasonings[number] : nullptr;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  GrammarAnswer guided;
  if ((data[1] & 64) != 0)
    guided.to = (data[1] & 8) != 0 ? GrammarAnswer::To::kCalls : GrammarAnswer::To::kText;
  if ((data[1] & 72) == 72 && (data[1] & 4) != 0) guided.tool = "f";
  const json::array* const tools = (data[1] & 32) != 0 ? &tools_of_request() : nullptr;
  std::string prompt_end = "assistant\n";
  if (reasoning && (data[1] & 128) != 0)
    prompt_end += std::string((data[1] & 16) != 0 ? reasoning->open : reasoning->close) + "\n";
  for (const ToolFormat& format : tool_formats()) {
    const auto make = [&] { return ChatOutput(reasoning, &format, tools, prompt_end, guided); };
    const OutputPart whole = read(make(), text, text.size() + 1);
    const bool has_objects = guided.to != GrammarAnswer::To::kCalls;
    check(whole, read(make(), text, 1), has_objects);
    check(whole, read(make(), text, 2 + data[1] % 32), has_objects);
  }
  return 0;
}
