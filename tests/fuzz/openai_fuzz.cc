// OpenAI's chat completions and the routes beside them, from bodies to answers; see chat_api.h.
#include <map>

#include "base/check.h"
#include "chat_api.h"

using namespace nereid;
using namespace nereid::fuzz;

namespace {

// All choices, one behind the other.
Said joined(const std::map<int64_t, Said>& choices) {
  Said out;
  for (const auto& [index, said] : choices) {
    out.text += said.text + "\n--\n", out.thinking += said.thinking + "\n--\n";
    out.calls.insert(out.calls.end(), said.calls.begin(), said.calls.end());
  }
  return out;
}

Said chat_whole(const json::object& answer) {
  std::map<int64_t, Said> choices;
  for (const json::value& value : array_at(answer, "choices")) {
    const json::object& choice = value.as_object();
    Said& said = choices[choice.at("index").as_int64()];
    const json::object& message = object_at(choice, "message");
    said.text = text_at(message, "content");
    said.thinking = text_or_none(message, "reasoning_content");
    for (const json::value& call : array_at(message, "tool_calls")) {
      const json::object& function = object_at(call.as_object(), "function");
      said.calls.emplace_back(text_at(function, "name"), text_at(function, "arguments"));
    }
    NEREID_CHECK(!text_at(choice, "finish_reason").empty());
  }
  return joined(choices);
}

void add_calls(const json::object& delta, Said& said) {
  if (!delta.contains("tool_calls")) return;
  for (const json::value& value : array_at(delta, "tool_calls")) {
    const json::object& call = value.as_object();
    const json::object& function = object_at(call, "function");
    if (call.contains("id")) {
      NEREID_CHECK(call.at("index").as_int64() == static_cast<int64_t>(said.calls.size()));
      said.calls.emplace_back(text_at(function, "name"), "");
    }
    NEREID_CHECK(!said.calls.empty());
    said.calls.back().second += text_at(function, "arguments");
  }
}

Said chat_streamed(const std::vector<json::object>& events) {
  std::map<int64_t, Said> choices;
  for (const json::object& event : events)
    for (const json::value& value : array_at(event, "choices")) {
      const json::object& choice = value.as_object();
      Said& said = choices[choice.at("index").as_int64()];
      const json::object& delta = object_at(choice, "delta");
      said.text += text_or_none(delta, "content");
      said.thinking += text_or_none(delta, "reasoning_content");
      add_calls(delta, said);
    }
  return joined(choices);
}

Said text_of_choices(const std::vector<json::object>& events) {
  std::map<int64_t, Said> choices;
  for (const json::object& event : events)
    for (const json::value& value : array_at(event, "choices"))
      choices[value.as_object().at("index").as_int64()].text += text_at(value.as_object(), "text");
  return joined(choices);
}
Said text_of_answer(const json::object& answer) { return text_of_choices({answer}); }

constexpr ChatRoute kRoutes[] = {{"/v1/chat/completions", chat_whole, chat_streamed, false},
                                 {"/v1/completions", text_of_answer, text_of_choices, false},
                                 {"/v1/embeddings"},
                                 {"/v1/score"},
                                 {"/v1/rerank"},
                                 {"/tokenize"},
                                 {"/detokenize"}};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run_chat_api({reinterpret_cast<const char*>(data), size}, kRoutes);
}
