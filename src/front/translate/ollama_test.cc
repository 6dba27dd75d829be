// Ollama's requests in terms of chats, completions and embeddings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <utility>

#include "front/translate/ollama.h"
#include "front/translate/ollama_fields.h"
#include "front/translate/translate_fixture.h"

namespace nereid::front {
namespace {

using namespace testing_only;
using ::testing::ElementsAre;
using ::testing::StartsWith;

TEST(Ollama, NullsAndEmptyListsAreNothing) {
  const json::object chat = chat_of(translate_ollama_chat(object_of(
      R"({"messages": [{"role": "user", "content": null, "images": null, "tool_calls": null},
           {"role": "user", "images": []}], "tools": null, "format": null, "options": null,
          "stream": null, "think": null})")));
  for (const json::value& message : chat.at("messages").as_array()) {
    EXPECT_EQ(message.at("content").as_string(), "");
    EXPECT_FALSE(message.as_object().contains("images"));
  }
}

TEST(Ollama, ImagesAreInFrontOfTheText) {
  const json::object chat = chat_of(translate_ollama_chat(
      object_of(R"({"messages": [{"role": "user", "content": "x", "images": ["QUJD"]}]})")));
  EXPECT_EQ(chat.at("messages").at(0).at("content"),
            *parse_json(R"([{"type": "image_url", "image_url": "data:;base64,QUJD"},
                            {"type": "text", "text": "x"}])"));
  const json::object one = chat_of(
      translate_ollama_generate(object_of(R"({"prompt": "x", "images": ["QUJD", "REVG"]})")));
  EXPECT_EQ(one.at("messages").at(0).at("content").as_array().size(), 3u);
  const json::object raw = chat_of(translate_ollama_generate(
      object_of(R"({"prompt": "<image>x", "raw": true, "images": ["QUJD"]})")));
  EXPECT_EQ(raw.at("images"), *parse_json(R"(["data:;base64,QUJD"])"));
  EXPECT_FALSE(raw.contains("truncate_prompt_tokens"));
}

std::string fault_of_messages(std::string_view messages) {
  return fault_of(translate_ollama_chat(object_of(fmt::format(R"({{"messages": {}}})", messages))));
}

TEST(Ollama, MessagesAreChecked) {
  const std::pair<std::string, const char*> cases[] = {
      {"5", "messages: expected an array"},
      {"[null]", "messages[0]: "},
      {"[[]]", "messages[0]: "},
      {R"([{"role": "user", "content": "x"}, {"content": "x"}])", "messages[1].role: "},
      {R"([{"role": 5, "content": "x"}])", "messages[0].role: "},
      {R"([{"role": "user", "content": 5}])", "messages[0].content: expected a string"},
      {R"([{"role": "user", "content": [{"type": "text", "text": "x"}]}])",
       "messages[0].content: "},
      {R"([{"role": "user", "content": "x", "images": "eA=="}])", "messages[0].images: expected"},
      {R"([{"role": "user", "content": "x", "images": [5]}])", "messages[0].images: expected"},
      {R"([{"role": "assistant", "thinking": []}])", "messages[0].thinking: "},
      {R"([{"role": "tool", "content": "4", "tool_name": 1}])", "messages[0].tool_name: "},
      {R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls: "},
      {R"([{"role": "assistant", "tool_calls": [5]}])",
       "messages[0].tool_calls[0].function.name: "},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}])",
       "messages[0].tool_calls[0].function.arguments: expected an object"}};
  for (const auto& [messages, begin] : cases)
    EXPECT_THAT(fault_of_messages(messages), StartsWith(begin)) << messages;
  EXPECT_EQ(fault_of_messages(R"([{"role": "assistant", "content": null, "thinking": null,
                "tool_calls": [{"function": {"name": "f", "arguments": null}}, {"function": {"name": "g"}}]}])"),
            "");
}

// Source: pkg.go.dev/time#ParseDuration; api/types.go of ollama.
TEST(Ollama, KeepAliveIsADurationOrSeconds) {
  const auto fault = [](Translator translate, const std::string& value) {
    return fault_of(translate(
        object_of(fmt::format(R"({{"prompt": "x", "input": "x", "keep_alive": {}}})", value))));
  };
  for (const char* good : {"null", "0", "-1", "300", "1.5", R"("5m")", R"("1h30m")", R"("-1s")",
                           R"("+2.5h")", R"("0")", R"(".5s")", R"("1h15m30.918273645s")",
                           R"("100ms")", R"("10us")", R"("10µs")", R"("7ns")"})
    EXPECT_EQ(fault(translate_ollama_generate, good), "") << good;
  for (const char* bad :
       {R"("abc")", R"("")", R"("5")", R"("5 m")", R"("m")", R"("1d")", R"("5m ")", R"("1.2.3s")",
        R"("--5m")", R"("-")", R"("5mm")", R"("9999999h")", "true", "[]", "{}", "1e999"})
    for (const Translator translate : {translate_ollama_generate, translate_ollama_chat,
                                       translate_ollama_embed, translate_ollama_embeddings})
      EXPECT_THAT(fault(translate, bad), StartsWith("keep_alive: expected a number of seconds"))
          << bad;
  EXPECT_EQ(go_duration("1h30m"), 5400);
  EXPECT_EQ(go_duration("-1.5s"), -1.5);
  EXPECT_EQ(go_duration("1.5"), std::nullopt);
}

TEST(Ollama, TypesOfMembersAndOptionsAreChecked) {
  const std::tuple<Translator, const char*, const char*> cases[] = {
      {translate_ollama_chat, R"("model": 5)", "model: expected a string"},
      {translate_ollama_chat, R"("name": [])", "name: "},
      {translate_ollama_chat, R"("truncate": "no")", "truncate: expected a boolean"},
      {translate_ollama_chat, R"("shift": 1)", "shift: "},
      {translate_ollama_chat, R"("tools": {})", "tools: expected an array"},
      {translate_ollama_chat, R"("logprobs": true, "top_logprobs": "2")", "top_logprobs: "},
      {translate_ollama_chat, R"("top_logprobs": "2")", "top_logprobs: "},
      {translate_ollama_generate, R"("suffix": 1)", "suffix: "},
      {translate_ollama_generate, R"("template": 1)", "template: expected"},
      {translate_ollama_generate, R"("context": "1")", "context: expected"},
      {translate_ollama_generate, R"("images": "x")", "images: expected"},
      {translate_ollama_embed, R"("dimensions": "4")", "dimensions: expected an integer"},
      {translate_ollama_embed, R"("truncate": 1)", "truncate: "},
      {translate_ollama_embed, R"("options": 1)", "options: "},
      {translate_ollama_embeddings, R"("prompt": 1)", "prompt: "},
      {translate_ollama_embeddings, R"("options": {"num_ctx": "x"})", "options.num_ctx: "},
      {translate_ollama_generate, R"("options": {"temperature": "1"})",
       "options.temperature: expected a number"},
      {translate_ollama_generate, R"("options": {"top_k": true})", "options.top_k: "},
      {translate_ollama_generate, R"("options": {"seed": "x"})", "options.seed: "},
      {translate_ollama_generate, R"("options": {"stop": 5})", "options.stop: "},
      {translate_ollama_generate, R"("options": {"stop": [5]})", "options.stop: "},
      {translate_ollama_generate, R"("options": {"num_gpu": "all"})",
       "options.num_gpu: expected an integer"},
      {translate_ollama_generate, R"("options": {"use_mmap": 1})",
       "options.use_mmap: expected a boolean"},
      {translate_ollama_generate, R"("options": {"mirostat_tau": []})", "options.mirostat_tau: "},
      {translate_ollama_generate, R"("options": {"repeat_last_n": "x"})",
       "options.repeat_last_n: "}};
  for (const auto& [translate, member, begin] : cases)
    EXPECT_THAT(fault_of(translate(object_of(fmt::format("{{{}}}", member)))), StartsWith(begin))
        << member;
  // A member of another route is unknown, whatever its value.
  EXPECT_THAT(read_of(translate_ollama_chat(object_of(R"({"raw": 5})"))).unknown,
              ElementsAre("raw"));
  EXPECT_EQ(chat_of(translate_ollama_chat(object_of(
                        R"({"messages": [{"role": "user", "content": "x"}],
                            "tools": [{"function": {"name": "f"}}]})")))
                .at("tools")
                .at(0)
                .at("type")
                .as_string(),
            "function");
  EXPECT_EQ(check_ollama_show(object_of(R"({"model": "m", "verbose": true})")), std::nullopt);
  EXPECT_THAT(check_ollama_show(object_of(R"({"model": 5})"))->message, StartsWith("model: "));
}

TEST(Ollama, RequestsAndAnswers) {
  const auto read = translate_ollama_chat(object_of(
      R"({"model": "m:latest", "messages": [{"role": "user", "content": "x"}], "format": {"type": "object"},
          "options": {"temperature": 0, "num_predict": 5, "repeat_penalty": 1.1, "num_ctx": 99}})"));
  const json::object chat = chat_of(read);
  EXPECT_EQ(chat.at("model").as_string(), "m");
  EXPECT_TRUE(chat.at("stream").as_bool());
  EXPECT_EQ(chat.at("max_tokens").as_int64(), 5);
  EXPECT_EQ(chat.at("repetition_penalty").as_double(), 1.1);
  EXPECT_TRUE(chat.at("guided_json").is_object());
  EXPECT_EQ(read_of(read).rules.max_seq_len, 99);
  EXPECT_TRUE(read_of(read).rules.clips_max_tokens && read_of(read).rules.drops_messages);

  auto t =
      translate_ollama_generate(object_of(R"({"model": "m", "prompt": "x", "stream": false})"));
  Translation& translation = *std::get<Translated>(t).translation;
  translation.take_piece();
  const json::object got = object_of(translation.answer(object_of(
      R"({"usage": {"prompt_tokens": 3, "completion_tokens": 2}, "choices": [{"finish_reason": "length",
          "message": {"content": "a", "tool_calls": []}}]})")));
  EXPECT_EQ(got.at("response").as_string(), "a");
  EXPECT_TRUE(got.at("done").as_bool());
  EXPECT_EQ(got.at("done_reason").as_string(), "length");
  EXPECT_EQ(got.at("eval_count").as_int64(), 2);
  int64_t sum = 0;
  for (const char* part : {"load_duration", "prompt_eval_duration", "eval_duration"}) {
    EXPECT_GT(got.at(part).as_int64(), 0) << part;
    sum += got.at(part).as_int64();
  }
  EXPECT_EQ(got.at("total_duration").as_int64(), sum);
}

// Source: docs/api.md of ollama, "Load a model" and "Unload a model".
TEST(Ollama, NothingToAnswerLoadsOrUnloads) {
  const std::tuple<Translator, const char*, const char*> cases[] = {
      {translate_ollama_chat, R"({"model": "m:latest", "messages": []})", "load"},
      {translate_ollama_chat, R"({"model": "m", "keep_alive": "5m"})", "load"},
      {translate_ollama_chat, R"({"model": "m", "messages": [], "keep_alive": 0})", "unload"},
      {translate_ollama_generate, R"({"model": "m"})", "load"},
      {translate_ollama_generate, R"({"model": "m", "prompt": "", "keep_alive": -1})", "load"},
      {translate_ollama_generate, R"({"model": "m", "prompt": null, "keep_alive": "0s"})",
       "unload"}};
  for (const auto& [translate, body, reason] : cases) {
    const auto t = translate(object_of(body));
    const json::object got = chat_of(t);
    EXPECT_EQ(read_of(t).to, Translates::kNothing) << body;
    EXPECT_EQ(read_of(t).model, "m") << body;
    EXPECT_TRUE(got.at("done").as_bool()) << body;
    EXPECT_EQ(got.at("done_reason").as_string(), reason) << body;
    EXPECT_EQ(got.contains("message"), translate == translate_ollama_chat) << body;
  }
}

TEST(Ollama, RawTextsAndGapsAreCompletions) {
  auto t = translate_ollama_generate(object_of(
      R"({"model": "m", "prompt": "x", "raw": true, "stream": false, "options": {"num_predict": 3}})"));
  EXPECT_EQ(read_of(t).to, Translates::kCompletion);
  EXPECT_EQ(chat_of(t).at("prompt").as_string(), "x");
  EXPECT_EQ(chat_of(t).at("max_tokens").as_int64(), 3);
  const json::object got = object_of(std::get<Translated>(t).translation->answer(object_of(
      R"({"usage": {"prompt_tokens": 3, "completion_tokens": 2},
          "choices": [{"finish_reason": "stop", "text": "a"}]})")));
  EXPECT_EQ(got.at("response").as_string(), "a");
  const auto gap = translate_ollama_generate(object_of(R"({"prompt": "x", "suffix": "y"})"));
  EXPECT_EQ(chat_of(gap).at("suffix").as_string(), "y");
}

TEST(Ollama, OptionsAreReadOrRefused) {
  const auto translate = [](std::string_view options) {
    return translate_ollama_generate(
        object_of(fmt::format(R"({{"prompt": "x", "options": {}}})", options)));
  };
  for (const char* all : {"-1", "-2", "0"})
    EXPECT_EQ(chat_of(translate(fmt::format(R"({{"num_predict": {}}})", all)))
                  .at("max_tokens")
                  .as_int64(),
              INT32_MAX);
  EXPECT_EQ(chat_of(translate(R"({"num_predict": 7.0})")).at("max_tokens").as_int64(), 7);
  EXPECT_FALSE(chat_of(translate(R"({"seed": -1})")).contains("seed")) << "a random one";
  EXPECT_EQ(chat_of(translate(R"({"top_p": 0})")).at("top_k").as_int64(), 1);
  EXPECT_FALSE(chat_of(translate(R"({"repeat_penalty": 1.3, "repeat_last_n": 0})"))
                   .contains("repetition_penalty"));
  EXPECT_THAT(read_of(translate(R"({"num_gpu": 1, "num_batch": 512, "mirostat": 0, "typical_p": 1.0,
                                    "temprature": 0})"))
                  .unknown,
              ElementsAre("options.temprature"));
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "options: "},
      {R"({"num_predict": "many"})", "options.num_predict: "},
      {R"({"num_ctx": true})", "options.num_ctx: "},
      {R"({"mirostat": 2})", "options.mirostat: "},
      {R"({"typical_p": 0.5})", "options.typical_p: "}};
  for (const auto& [options, begin] : cases)
    EXPECT_THAT(fault_of(translate(options)), StartsWith(begin)) << options;
}

TEST(Ollama, MembersAreCheckedAndListed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("think": "very")", "think: "},
      {R"("think": 1)", "think: "},
      {R"("format": "xml")", "format: "},
      {R"("format": [])", "format: "},
      {R"("stream": "no")", "stream: "},
      {R"("keep_alive": [])", "keep_alive: "},
      {R"("logprobs": 1)", "logprobs: "},
      {R"("images": [5])", "images: "},
      {R"("template": "t")", "template: "},
      {R"("context": [1])", "context: "},
      {R"("system": 1)", "system: "},
      {R"("raw": 1)", "raw: "},
      {R"("raw": true, "logprobs": true)", "logprobs: "}};
  for (const auto& [member, begin] : cases)
    EXPECT_THAT(fault_of(translate_ollama_generate(
                    object_of(fmt::format(R"({{"prompt": "x", {}}})", member)))),
                StartsWith(begin))
        << member;
  const auto t = translate_ollama_generate(
      object_of(R"({"prompt": "x", "temprature": 0, "images": [], "context": [], "raw": false})"));
  EXPECT_THAT(read_of(t).unknown, ElementsAre("temprature"));
  for (const auto& [think, is_on] :
       {std::pair{"true", true}, {"false", false}, {R"("low")", true}, {R"("high")", true}}) {
    const json::object chat = chat_of(translate_ollama_generate(
        object_of(fmt::format(R"({{"prompt": "x", "think": {}}})", think))));
    EXPECT_EQ(chat.at("include_reasoning").as_bool(), is_on) << think;
    EXPECT_EQ(chat.contains("reasoning_effort"), think[0] == '"') << think;
  }
}

TEST(Ollama, AnswersHaveLogProbs) {
  auto t = translate_ollama_generate(
      object_of(R"({"prompt": "x", "logprobs": true, "top_logprobs": 2})"));
  EXPECT_TRUE(chat_of(t).at("logprobs").as_bool());
  EXPECT_EQ(chat_of(t).at("top_logprobs").as_int64(), 2);
  const json::object got = object_of(std::get<Translated>(t).translation->answer(object_of(
      R"({"choices": [{"message": {"content": "a"},
          "logprobs": {"content": [{"token": "a", "logprob": -1}]}}]})")));
  EXPECT_EQ(got.at("logprobs").at(0).at("token").as_string(), "a");
}

TEST(Ollama, TextsBecomeEmbeddings) {
  auto t = translate_ollama_embed(object_of(
      R"({"model": "m", "input": ["a", "b"], "dimensions": 4, "options": {"num_ctx": 9}})"));
  EXPECT_EQ(read_of(t).to, Translates::kEmbedding);
  EXPECT_EQ(chat_of(t).at("input").as_array().size(), 2u);
  EXPECT_TRUE(chat_of(t).at("normalize").as_bool());
  EXPECT_EQ(chat_of(t).at("truncate_prompt_tokens").as_int64(), -1);
  t = translate_ollama_embeddings(object_of(R"({"model": "m", "prompt": "a", "truncate": false})"));
  EXPECT_FALSE(chat_of(t).at("normalize").as_bool());
  EXPECT_FALSE(chat_of(t).contains("truncate_prompt_tokens"));
  for (const char* body : {R"({"model": "m"})", R"({"model": "m", "input": []})"}) {
    t = translate_ollama_embed(object_of(body));
    EXPECT_EQ(read_of(t).to, Translates::kNothing) << body;
    EXPECT_TRUE(chat_of(t).at("embeddings").as_array().empty()) << body;
  }
  for (const char* input : {"5", "[5]", "{}", R"(["a", null])"})
    EXPECT_THAT(
        fault_of(translate_ollama_embed(object_of(fmt::format(R"({{"input": {}}})", input)))),
        StartsWith("input: "))
        << input;
}

TEST(Ollama, ModelsAreTold) {
  const OllamaModel model{.name = "m",
                          .format = "safetensors",
                          .architecture = "llama",
                          .quantization = "BF16",
                          .context_length = 2048,
                          .num_layers = 6,
                          .num_parameters = 7'600'000'000,
                          .num_bytes = 99,
                          .capabilities = {"completion"}};
  const json::object shown = ollama_show(model);
  const json::object& info = shown.at("model_info").as_object();
  EXPECT_EQ(info.at("general.architecture").as_string(), "llama");
  EXPECT_EQ(info.at("llama.context_length").as_int64(), 2048);
  EXPECT_EQ(info.at("llama.block_count").as_int64(), 6);
  EXPECT_FALSE(info.contains("llama.attention.head_count")) << "not known";
  EXPECT_EQ(shown.at("details").at("parameter_size").as_string(), "7.6B");
  const json::object listed = ollama_tags({model}).at("models").at(0).as_object();
  EXPECT_EQ(listed.at("digest").as_string().size(), 64u);
  EXPECT_EQ(listed.at("size").as_int64(), 99);
  EXPECT_EQ(listed.at("modified_at").as_string(), "1970-01-01T00:00:00Z");
  EXPECT_TRUE(ollama_running({model}).at("models").at(0).as_object().contains("expires_at"));
}

}  // namespace
}  // namespace nereid::front
