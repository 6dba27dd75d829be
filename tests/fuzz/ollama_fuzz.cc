// Ollama's API, from bodies to answers; see chat_api.h.
#include "base/check.h"
#include "chat_api.h"

using namespace nereid;
using namespace nereid::fuzz;

namespace {

void add_chat(const json::object& line, Said& out) {
  const json::object& message = object_at(line, "message");
  out.text += text_at(message, "content");
  out.thinking += text_or_none(message, "thinking");
  if (!message.contains("tool_calls")) return;
  for (const json::value& call : array_at(message, "tool_calls")) {
    const json::object& function = object_at(call.as_object(), "function");
    out.calls.emplace_back(text_at(function, "name"), json::serialize(function.at("arguments")));
  }
}

void add_generated(const json::object& line, Said& out) {
  out.text += text_at(line, "response");
  out.thinking += text_or_none(line, "thinking");
}

template <void (*add)(const json::object&, Said&)>
Said of_lines(const std::vector<json::object>& lines) {
  Said out;
  NEREID_CHECK(!lines.empty());
  for (const json::object& line : lines) {
    add(line, out);
    NEREID_CHECK(line.at("done").as_bool() == (&line == &lines.back()));
  }
  return out;
}

template <void (*add)(const json::object&, Said&)>
Said of_answer(const json::object& answer) {
  return of_lines<add>({answer});
}

constexpr ChatRoute kRoutes[] = {
    {"/api/chat", of_answer<add_chat>, of_lines<add_chat>, true, false},
    {"/api/generate", of_answer<add_generated>, of_lines<add_generated>, true, false}};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run_chat_api({reinterpret_cast<const char*>(data), size}, kRoutes);
}
