#include <gtest/gtest.h>

#include "front/translate/anthropic.h"
#include "front/translate/ollama.h"

namespace nereid::front {
namespace {

json::object object_of(std::string_view text) { return parse_json(text)->get_object(); }

json::object chat_of(const std::variant<Translated, TranslationFault>& t) {
  const auto* fault = std::get_if<TranslationFault>(&t);
  EXPECT_EQ(fault, nullptr) << fault->message;
  return fault ? json::object() : object_of(std::get<Translated>(t).body);
}
std::string fault_of(const std::variant<Translated, TranslationFault>& t) {
  const auto* fault = std::get_if<TranslationFault>(&t);
  return fault ? fault->message : "";
}

TEST(Messages, BecomeAChat) {
  const json::object chat = chat_of(translate_messages(object_of(R"({"model": "m", "max_tokens": 9,
      "system": [{"type": "text", "text": "be kind"}], "stop_sequences": ["x"],
      "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"},
          {"type": "tool_use", "id": "i", "name": "f", "input": {"k": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": "4"},
          {"type": "text", "text": "and?"}]}],
      "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"},
      "thinking": {"type": "enabled", "budget_tokens": 1024}})")));
  const json::array& messages = chat.at("messages").get_array();
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0].at("content").as_string(), "be kind");
  EXPECT_EQ(messages[2].at("tool_calls").at(0).at("function").at("arguments").as_string(),
            R"({"k":1})");
  EXPECT_EQ(messages[3].at("role").as_string(), "tool");
  EXPECT_EQ(messages[3].at("content").as_string(), "4");
  EXPECT_EQ(messages[4].at("content").as_string(), "and?");
  EXPECT_EQ(chat.at("tool_choice").as_string(), "required");
  EXPECT_EQ(chat.at("thinking_token_budget").as_int64(), 1024);
  EXPECT_EQ(chat.at("tools").at(0).at("function").at("name").as_string(), "f");
  EXPECT_EQ(chat.at("stop").at(0).as_string(), "x");
  EXPECT_FALSE(chat.contains("continue_final_message"));
}

TEST(Messages, FaultsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": []})", "max_tokens"},
      {R"({"max_tokens": 1, "messages": []})", "messages"},
      {R"({"max_tokens": 1, "messages": [5]})", "messages.0"},
      {R"({"max_tokens": 1, "messages": [{"role": "tool", "content": "x"}]})", "messages.0.role"},
      {R"({"max_tokens": 1, "messages": [{"role": "user"}]})", "messages.0.content"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "image"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "bash"}]})",
       "tools"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "x"}})",
       "tool_choice"},
  };
  for (const auto& [body, part] : cases)
    EXPECT_NE(fault_of(translate_messages(object_of(body))).find(part), std::string::npos) << body;
}

TEST(Messages, AnswersHaveBlocks) {
  auto t = translate_messages(
      object_of(R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})"));
  Translation& translation = *std::get<Translated>(t).translation;
  const json::object got = object_of(translation.answer(object_of(
      R"({"id": "chatcmpl-1", "model": "m", "usage": {"prompt_tokens": 40,
          "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 32}},
          "choices": [{"finish_reason": "tool_calls", "stop_reason": null, "message": {"content": "a",
            "reasoning_content": "r", "tool_calls": [{"id": "c", "function": {"name": "f",
            "arguments": "{\"k\":1}"}}]}}]})")));
  EXPECT_EQ(got.at("id").as_string(), "msg_1");
  EXPECT_EQ(got.at("content").as_array().size(), 3u);
  EXPECT_EQ(got.at("content").at(0).at("thinking").as_string(), "r");
  EXPECT_EQ(got.at("content").at(2).at("input").at("k").as_int64(), 1);
  EXPECT_EQ(got.at("stop_reason").as_string(), "tool_use");
  EXPECT_EQ(got.at("usage").at("input_tokens").as_int64(), 8) << "cached ones count apart";
  EXPECT_EQ(got.at("usage").at("cache_read_input_tokens").as_int64(), 32);
  EXPECT_EQ(got.at("usage").at("output_tokens").as_int64(), 2);
}

TEST(Messages, StreamsOpenAndCloseBlocks) {
  auto t = translate_messages(object_of(
      R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "stream": true})"));
  Translation& translation = *std::get<Translated>(t).translation;
  std::string all;
  for (const char* chunk :
       {R"({"id": "chatcmpl-1", "model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 0},
            "choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": null}]})",
        R"({"choices": [{"delta": {"content": "a"}, "finish_reason": null}]})",
        R"({"choices": [{"delta": {"content": "b"}, "finish_reason": null}]})",
        R"({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f",
            "arguments": "{}"}}]}, "finish_reason": null}]})",
        R"({"usage": {"prompt_tokens": 3, "completion_tokens": 4},
            "choices": [{"delta": {}, "finish_reason": "tool_calls", "stop_reason": null}]})"})
    all += translation.chunk(object_of(chunk));
  all += translation.end();
  std::vector<std::string> types;
  for (size_t at = all.find("event: "); at != std::string::npos; at = all.find("event: ", at + 1))
    types.push_back(all.substr(at + 7, all.find('\n', at) - at - 7));
  EXPECT_EQ(types,
            (std::vector<std::string>{"message_start", "content_block_start", "content_block_delta",
                                      "content_block_delta", "content_block_stop",
                                      "content_block_start", "content_block_delta",
                                      "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_NE(all.find(R"("stop_reason":"tool_use")"), std::string::npos);
  EXPECT_NE(all.find(R"("output_tokens":4)"), std::string::npos);
}

TEST(Ollama, RequestsAndAnswers) {
  const json::object chat = chat_of(translate_ollama_chat(object_of(
      R"({"model": "m:latest", "messages": [{"role": "user", "content": "x"}], "format": {"type": "object"},
          "options": {"temperature": 0, "num_predict": 5, "repeat_penalty": 1.1}})")));
  EXPECT_EQ(chat.at("model").as_string(), "m");
  EXPECT_TRUE(chat.at("stream").as_bool());
  EXPECT_EQ(chat.at("max_tokens").as_int64(), 5);
  EXPECT_EQ(chat.at("repetition_penalty").as_double(), 1.1);
  EXPECT_TRUE(chat.at("guided_json").is_object());
  EXPECT_NE(
      fault_of(translate_ollama_generate(object_of(R"({"prompt": "x", "raw": true})"))).find("raw"),
      std::string::npos);
  EXPECT_NE(fault_of(translate_ollama_generate(object_of("{}"))).find("prompt"), std::string::npos);
  EXPECT_NE(fault_of(translate_ollama_chat(object_of("{}"))).find("messages"), std::string::npos);

  auto t =
      translate_ollama_generate(object_of(R"({"model": "m", "prompt": "x", "stream": false})"));
  const json::object got = object_of(std::get<Translated>(t).translation->answer(object_of(
      R"({"usage": {"prompt_tokens": 3, "completion_tokens": 2}, "choices": [{"finish_reason": "length",
          "message": {"content": "a", "tool_calls": []}}]})")));
  EXPECT_EQ(got.at("response").as_string(), "a");
  EXPECT_TRUE(got.at("done").as_bool());
  EXPECT_EQ(got.at("done_reason").as_string(), "length");
  EXPECT_EQ(got.at("eval_count").as_int64(), 2);
}

}  // namespace
}  // namespace nereid::front
