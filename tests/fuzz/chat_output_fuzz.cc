// Answers of models with reasoning and tool calls. The first byte says which formats, the second
// whether a guide holds the answer and where the text is cut; what comes out must not depend on
// the latter.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "front/output/chat_output.h"

using namespace nereid;
using namespace nereid::front;

namespace {

OutputPart read(ChatOutput output, std::string_view text, size_t step) {
  OutputPart all;
  const auto add = [&](OutputPart part) {
    all.reasoning += part.reasoning;
    all.text += part.text;
    for (ToolCall& call : part.calls) all.calls.push_back(std::move(call));
  };
  for (size_t i = 0; i < text.size(); i += step) add(output.push(text.substr(i, step), false));
  add(output.push("", true));
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto tools = tool_formats();
  const auto reasonings = reasoning_formats();
  const ToolFormat* const tool = &tools[data[0] % tools.size()];
  const size_t number = data[0] / tools.size() % (reasonings.size() + 1);
  const ReasoningFormat* const reasoning =
      number < reasonings.size() ? &reasonings[number] : nullptr;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const bool is_guided = (data[1] & 64) != 0;
  const auto make = [&] { return ChatOutput(reasoning, tool, nullptr, "", is_guided); };
  const OutputPart whole = read(make(), text, text.size() + 1);
  const OutputPart cut = read(make(), text, 1 + data[1] % 64);
  NEREID_CHECK(whole.reasoning == cut.reasoning && whole.text == cut.text);
  NEREID_CHECK(whole.calls.size() == cut.calls.size());
  for (size_t i = 0; i < cut.calls.size(); ++i)
    NEREID_CHECK(whole.calls[i].name == cut.calls[i].name &&
                 whole.calls[i].arguments == cut.calls[i].arguments);
  return 0;
}
