// A chat's answer and its stream as Anthropic's messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "base/json_exact.h"
#include "front/translate/anthropic.h"
#include "front/translate/ollama.h"
#include "front/translate/translate_fixture.h"

namespace nereid::front {
namespace {

using namespace testing_only;
using ::testing::HasSubstr;

// Missing parts of an answer read as empty.
TEST(Translations, TakeAnswersWithoutParts) {
  auto messages = translate_messages_of(R"([{"role": "user", "content": "x"}])");
  auto ollama = translate_ollama_generate(object_of(R"({"prompt": "x"})"));
  for (auto* t : {&messages, &ollama}) {
    Translation& translation = *std::get<Translated>(*t).translation;
    for (const char* chat :
         {"{}", R"({"choices": []})", R"({"choices": [null], "usage": []})",
          R"({"choices": [{"message": null, "delta": 5}]})",
          R"({"choices": [{"message": {"tool_calls": [null, {"function": null}]}}]})",
          R"({"choices": [{"delta": {"content": null, "tool_calls": [null, {"id": "c"}]}}]})"}) {
      EXPECT_TRUE(parse_json(translation.answer(object_of(chat)))->is_object()) << chat;
      translation.chunk(object_of(chat));
    }
    EXPECT_FALSE(translation.end().empty());
  }
}

// A request whose numbers keep all digits, like those of a body.
json::object exact_object_of(std::string_view text) { return parse_json_exact(text)->get_object(); }

constexpr char kLongArguments[] =
    R"({"id":123456789012345678901,"rest":[-0.12345678901234567890,18446744073709551615,1e400]})";

TEST(Messages, NumbersOfCallsKeepTheirDigits) {
  const json::object chat = chat_of(translate_messages(exact_object_of(fmt::format(
      R"({{"max_tokens": 1, "messages": [{{"role": "assistant", "content": [
          {{"type": "tool_use", "id": "i", "name": "f", "input": {}}}]}}, {{"role": "user",
          "content": [{{"type": "tool_result", "tool_use_id": "i", "content": "4"}}]}}]}})",
      kLongArguments))));
  EXPECT_EQ(chat.at("messages").at(0).at("tool_calls").at(0).at("function").at("arguments"),
            json::value(kLongArguments));
  auto t = translate_messages_of(kHi);
  const json::value answer = json::object{
      {"choices",
       json::array{json::object{
           {"finish_reason", "tool_calls"},
           {"message",
            json::object{{"tool_calls",
                          json::array{json::object{
                              {"id", "c"},
                              {"function",
                               json::object{{"name", "f"}, {"arguments", kLongArguments}}}}}}}}}}}};
  EXPECT_THAT(std::get<Translated>(t).translation->answer(answer.as_object()),
              HasSubstr(fmt::format(R"("input":{})", kLongArguments)));
  auto ollama = translate_ollama_chat(exact_object_of(fmt::format(
      R"({{"messages": [{{"role": "assistant", "tool_calls": [{{"function": {{"name": "f",
          "arguments": {}}}}}]}}]}})",
      kLongArguments)));
  EXPECT_THAT(read_of(ollama).body, HasSubstr(kLongArguments));
  EXPECT_THAT(std::get<Translated>(ollama).translation->answer(answer.as_object()),
              HasSubstr(fmt::format(R"("arguments":{})", kLongArguments)));
}

// The complete ones among calls cut by max_tokens are blocks; a stream has all text written.
TEST(Messages, CallsThatAreCutAreLeftOutOrStreamed) {
  auto t = translate_messages_of(kHi);
  Translation& translation = *std::get<Translated>(t).translation;
  const auto answer = [&](std::string_view finish, std::string_view stop) {
    return object_of(translation.answer(object_of(fmt::format(
        R"({{"usage": {{"completion_tokens": 1}}, "choices": [{{"finish_reason": "{}",
            "stop_reason": {}, "message": {{"content": "", "tool_calls": [
            {{"id": "c", "function": {{"name": "f", "arguments": "{{\"k\": 1}}"}}}},
            {{"id": "d", "function": {{"name": "g", "arguments": "{{\"k\": "}}}}]}}}}]}})",
        finish, stop))));
  };
  const json::object cut = answer("length", "null");
  ASSERT_EQ(cut.at("content").as_array().size(), 1u);
  EXPECT_EQ(cut.at("content").at(0).at("name").as_string(), "f");
  EXPECT_EQ(cut.at("stop_reason").as_string(), "max_tokens");
  EXPECT_EQ(answer("stop", R"("x")").at("stop_reason").as_string(), "stop_sequence");
  std::string all;
  for (const char* chunk :
       {R"({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "d", "function": {"name": "g",
            "arguments": "{\"k\""}}]}, "finish_reason": null}]})",
        R"({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ": "}}]},
            "finish_reason": null}]})",
        R"({"usage": {"completion_tokens": 1},
            "choices": [{"delta": {}, "finish_reason": "length", "stop_reason": null}]})"})
    all += translation.chunk(object_of(chunk));
  all += translation.end();
  EXPECT_THAT(all, HasSubstr(R"("partial_json":"{\"k\"")"));
  EXPECT_THAT(all, HasSubstr(R"("partial_json":": ")"));
  EXPECT_THAT(all, HasSubstr(R"("stop_reason":"max_tokens")"));
  size_t num_blocks = 0;
  for (size_t at = all.find("event: content_block_start"); at != all.npos;
       at = all.find("event: content_block_start", at + 1))
    ++num_blocks;
  EXPECT_EQ(num_blocks, 1u);
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

}  // namespace
}  // namespace nereid::front
