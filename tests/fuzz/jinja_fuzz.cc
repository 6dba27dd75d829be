// Fuzz target: the input is a template, rendered with tight limits: a conversation with all that
// one may hold, a plain one, and both as the template can take them (text/chat_needs.h). A seed is
// refused unless one of them renders.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "text/chat_needs.h"
#include "text/jinja/template.h"

namespace {

using namespace nereid;

const json::object& full_context() {
  static const json::object context =
      parse_json(R"({"messages": [{"role": "system", "content": "be brief"},
                     {"role": "user", "content": "h\u00e9 llo\u200d <think>a</think> \u03a3"},
                     {"role": "assistant", "content": null, "n": [1, 2.5, true],
                      "reasoning_content": "hm",
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
  return context;
}

const json::object& plain_context() {
  static const json::object context =
      parse_json(R"({"messages": [{"role": "user", "content": "one"},
                     {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}],
                     "tools": null, "documents": null, "add_generation_prompt": true,
                     "bos_token": "<s>", "eos_token": "</s>"})")
          ->as_object();
  return context;
}

// Messages, documents, and nothing else.
const json::object& documents_context() {
  static const json::object context = [] {
    json::object out = plain_context();
    for (const char* key : {"documents", "messages"}) out[key] = full_context().at(key);
    out["messages"].as_array().resize(1);
    return out;
  }();
  return context;
}

StatusOr<std::string> render(const text::jinja::Template& source, const json::object& context,
                             size_t max_steps) {
  text::jinja::Limits limits;
  limits.max_steps = max_steps;
  limits.max_memory = size_t{16} << 20;
  limits.max_output = size_t{1} << 20;
  auto out = source.render(context, limits);
  if (out.ok())
    NEREID_CHECK(out->size() <= limits.max_output);
  else
    NEREID_CHECK(message(out.status()).starts_with("line "));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxSteps = 100'000, kMaxProbeSteps = 10'000;
  const auto parsed = text::jinja::Template::parse({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) return -1;
  bool renders = false;
  for (const json::object* context : {&full_context(), &plain_context(), &documents_context()})
    renders |= render(**parsed, *context, kMaxSteps).ok();
  const text::ChatNeeds needs = text::probe_needs(
      [&](const json::object& context) { return render(**parsed, context, kMaxProbeSteps); });
  for (json::object context : {full_context(), plain_context()}) {
    text::adapt_messages(needs, context.at("messages").as_array());
    renders |= render(**parsed, context, kMaxSteps).ok();
  }
  return renders ? 0 : -1;
}
