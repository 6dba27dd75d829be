// Fuzz target: the input is a template, rendered with a small conversation and tight limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid;
  static const json::object context =
      parse_json(R"({"messages": [{"role": "system", "content": "be brief"},
                     {"role": "user", "content": "h\u00e9 llo\u200d <think>a</think> \u03a3"},
                     {"role": "assistant", "content": null, "n": [1, 2.5, true],
                      "tool_calls": [{"id": "abcdefghi", "type": "function",
                                      "function": {"name": "f", "arguments": {"a": [1]}}}]},
                     {"role": "tool", "tool_call_id": "abcdefghi",
                      "content": [{"type": "text", "text": "x\ty"}, {"type": "image"}]}],
                     "tools": [{"type": "function", "function": {"name": "f", "description": "d",
                       "parameters": {"type": "object", "required": ["a"],
                         "properties": {"a": {"type": "array", "items": {"type": "string"}}}}}}],
                     "documents": [{"title": "t", "text": "u"}], "add_generation_prompt": true,
                     "bos_token": "<s>", "eos_token": "</s>"})")
          ->as_object();
  const auto parsed = text::jinja::Template::parse({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) return -1;
  text::jinja::Limits limits;
  limits.max_steps = 100'000;
  limits.max_memory = size_t{16} << 20;
  limits.max_output = size_t{1} << 20;
  static_cast<void>((*parsed)->render(context, limits));
  return 0;
}
