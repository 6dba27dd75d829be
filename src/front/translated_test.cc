// Anthropic's and Ollama's endpoints, and responses, over real sockets and a scripted core.
#include <gmock/gmock.h>

#include <cstring>
#include <tuple>

#include "front/testing/server_fixture.h"
#include "text/unicode/utf8.h"

namespace nereid::front {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class TranslatedTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    server_->stop(std::chrono::seconds(60));
    HttpOptions options = local_options(/*metrics_port=*/0);
    options.openai.model_name = "org/tiny";
    options.openai.ollama = true;
    server_ = start_front(options);
    ASSERT_NE(server_, nullptr);
    port_ = server_->http_port();
    fake_.max_seq_len = 1000;
    say("one two");
  }
  // Tokens of the last prompt sent to the engine.
  size_t num_prompt_tokens() {
    std::lock_guard lock(fake_.mutex);
    return fake_.last_prompt.size();
  }
  int32_t wanted_tokens() {
    std::lock_guard lock(fake_.mutex);
    int32_t out = 0;
    std::memcpy(&out, fake_.last_bytes["request_output_len"].data(), sizeof out);
    return out;
  }
};

constexpr char kMessages[] = R"("messages": [{"role": "user", "content": "hi"}])";

std::string body_of(std::string_view more) { return fmt::format("{{{}{}}}", kMessages, more); }

// A number that no int64 or double holds is an object while a body is read.
TEST_F(TranslatedTest, LongNumbersAreNoObjects) {
  const std::vector<std::string> messages = {
      R"("messages": N)", R"("messages": [N])", R"("messages": [{"role": "user", "content": N}])",
      R"("messages": [{"role": "user", "content": "a"}], "tools": N)",
      R"("messages": [{"role": "user", "content": "a"}], "tools": [N])"};
  const std::vector<std::string> input = {R"("input": N)", R"("input": [N])",
                                          R"("input": "a", "tools": [N])"};
  const std::vector<std::string> prompt = {R"("prompt": N)"};
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"/v1/chat/completions", messages},
      {"/v1/messages", messages},
      {"/v1/messages/count_tokens", messages},
      {"/api/chat", messages},
      {"/v1/responses", input},
      {"/v1/responses/input_tokens", input},
      {"/v1/completions", prompt},
      {"/api/generate", prompt},
  };
  for (const auto& [path, members] : cases) {
    std::vector<std::string> bodies = {"N", "[N]"};
    for (const std::string& member : members)
      bodies.push_back(R"({"model": "org/tiny", "max_tokens": 2, )" + member + "}");
    for (std::string body : bodies) {
      for (size_t at = 0; (at = body.find('N', at)) != body.npos;)
        body.replace(at, 1, "18446744073709551616");
      const Reply reply = post(path, body);
      EXPECT_GE(reply.status, 400) << path << " " << body << " " << reply.body;
      EXPECT_LT(reply.status, 500) << path << " " << body << " " << reply.body;
    }
  }
  // Neither are the input of a former call, and the schema of a tool.
  constexpr const char* kUse =
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "tool_use",
          "id": "t", "name": "f", "input": 18446744073709551616}]}])";
  EXPECT_THAT(post("/v1/messages", fmt::format(R"({{"model": "org/tiny", "max_tokens": 2,
                                                 "messages": {}}})",
                                               kUse))
                  .body,
              HasSubstr("input: expected an object"));
  EXPECT_THAT(post("/v1/messages", body_of(R"(, "max_tokens": 2, "tools": [{"name": "f",
                                             "input_schema": 18446744073709551616}])"))
                  .body,
              HasSubstr("input_schema: expected an object"));
}

// Messages quote the first bytes of what is wrong.
TEST_F(TranslatedTest, ErrorsAreUtf8) {
  std::string word = "a";
  for (int i = 0; i < 60; ++i) word += "\u00e9";
  const std::pair<const char*, std::string> cases[] = {
      {"/v1/completions", R"({"prompt": "a", "logit_bias": {"W": 1}})"},
      {"/v1/completions", R"({"prompt": "a", "W": {"W": 1}, "response_format": {"type": "W"}})"},
      {"/v1/messages", body_of(R"(, "max_tokens": 2, "tools": [{"name": "f", "input_schema": {}}],
                                  "tool_choice": {"type": "tool", "name": "W"})")},
      {"/v1/messages/count_tokens", body_of(R"(, "tools": [{"type": "W", "name": "f"}])")},
      {"/v1/messages",
       body_of(R"(, "max_tokens": 2, "tools": [{"type": 18446744073709551616, "name": "f"}])")},
      {"/v1/responses", R"({"input": "a", "tools": [{"type": "W"}]})"},
      {"/api/chat", R"({"model": "org/tiny", "messages": [{"role": "W"}]})"},
  };
  for (auto [path, body] : cases) {
    for (size_t at = 0; (at = body.find('W', at)) != body.npos;) body.replace(at, 1, word);
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 400) << path << " " << body;
    EXPECT_TRUE(text::is_valid_utf8(reply.body)) << path << " " << reply.body;
    EXPECT_TRUE(reply.json().is_object()) << path;
  }
}

TEST_F(TranslatedTest, TokensOfMessagesAreCounted) {
  const std::string tools = R"(, "tools": [{"name": "f", "input_schema": {"type": "object"}}])";
  for (const std::string& more : {std::string(), tools, std::string(R"(, "system": "be kind")")}) {
    const Reply counted = post("/v1/messages/count_tokens?beta=true", body_of(more));
    ASSERT_EQ(counted.status, 200) << counted.body;
    ASSERT_EQ(post("/v1/messages", body_of(more + R"(, "max_tokens": 3)")).status, 200);
    EXPECT_EQ(counted.json().at("input_tokens").as_int64(),
              static_cast<int64_t>(num_prompt_tokens()));
  }
  fake_.max_seq_len = 2;  // also of one that is too long
  EXPECT_EQ(post("/v1/messages/count_tokens", body_of("")).status, 200);
  for (const char* body : {"{}", "[]", "x", R"({"messages": [{"role": "user"}]})"}) {
    const Reply refused = post("/v1/messages/count_tokens", body);
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_EQ(refused.json().at("type").as_string(), "error") << body;
  }
  const Reply other = post("/v1/messages/count_tokens", body_of(R"(, "model": "claude")"));
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.json().at("error").at("type").as_string(), "not_found_error");
}

TEST_F(TranslatedTest, TokensOfResponsesAreCounted) {
  const Reply counted = post("/v1/responses/input_tokens", R"({"input": "hi"})");
  ASSERT_EQ(counted.status, 200) << counted.body;
  EXPECT_EQ(counted.json().at("object").as_string(), "response.input_tokens");
  ASSERT_EQ(post("/v1/responses", R"({"input": "hi"})").status, 200);
  EXPECT_EQ(counted.json().at("input_tokens").as_int64(),
            static_cast<int64_t>(num_prompt_tokens()));
  EXPECT_EQ(post("/v1/responses/input_tokens", "{}").status, 400);
}

TEST_F(TranslatedTest, MoreTokensThanTheContextHasAreCut) {
  ASSERT_EQ(post("/v1/messages", body_of(R"(, "max_tokens": 32000)")).status, 200);
  EXPECT_EQ(wanted_tokens(), 1000 - static_cast<int>(num_prompt_tokens()));
  for (const int num_predict : {5000, -1, -2, 0}) {
    ASSERT_EQ(post("/api/chat",
                   body_of(fmt::format(R"(, "options": {{"num_predict": {}}})", num_predict)))
                  .status,
              200);
    EXPECT_EQ(wanted_tokens(), 1000 - static_cast<int>(num_prompt_tokens())) << num_predict;
  }
  ASSERT_EQ(post("/api/chat", body_of(R"(, "options": {"num_predict": 7})")).status, 200);
  EXPECT_EQ(wanted_tokens(), 7);
  ASSERT_EQ(post("/api/chat", body_of(R"(, "options": {"num_ctx": 100})")).status, 200);
  EXPECT_EQ(wanted_tokens(), 100 - static_cast<int>(num_prompt_tokens()));
  EXPECT_EQ(post("/v1/chat/completions", body_of(R"(, "max_tokens": 32000)")).status, 400)
      << "OpenAI's refuses it";
}

// Source: truncation of OpenAI's responses; truncate of Ollama's docs/api.md.
TEST_F(TranslatedTest, OldMessagesAreLeftOutWhereAllDoNotFit) {
  std::string list = R"({"role": "system", "content": "sys"})";
  for (int i = 0; i < 40; ++i)
    list += fmt::format(
        R"(, {{"role": "user", "content": "q{}"}}, {{"role": "assistant", "content": "a{}"}})", i,
        i);
  list += R"(, {"role": "user", "content": "last"})";
  const auto ollama = [&](std::string_view more) {
    return post("/api/chat", fmt::format(R"({{"messages": [{}]{}}})", list, more));
  };
  ASSERT_EQ(ollama("").status, 200);
  const size_t all = num_prompt_tokens();
  const std::string small = R"(, "options": {"num_ctx": 100})";
  ASSERT_EQ(ollama(small).status, 200);
  const size_t some = num_prompt_tokens();
  EXPECT_LT(some, 100u);
  EXPECT_GT(some, 50u) << "as many as have room";
  EXPECT_LT(some, all);
  const Reply refused = ollama(small + R"(, "truncate": false)");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("maximum context length is 100"));
  EXPECT_EQ(ollama(R"(, "options": {"num_ctx": 4})").status, 400) << "the last does not fit";
  fake_.max_seq_len = 100;
  const auto responses = [&](std::string_view more) {
    return post("/v1/responses", fmt::format(R"({{"input": [{}]{}}})", list, more));
  };
  EXPECT_EQ(responses("").status, 400);
  const Reply cut = responses(R"(, "truncation": "auto")");
  ASSERT_EQ(cut.status, 200) << cut.body;
  EXPECT_EQ(num_prompt_tokens(), some);
  EXPECT_EQ(cut.json().at("truncation").as_string(), "auto");
  EXPECT_EQ(responses(R"(, "truncation": "some")").status, 400);
}

TEST_F(TranslatedTest, UnknownFieldsAreNamed) {
  for (const char* path : {"/v1/messages", "/api/chat"}) {
    const Reply reply = post(path, body_of(R"(, "max_tokens": 3, "temprature": 0)"));
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_THAT(reply.head, HasSubstr("Warning: 299 - \"unknown fields: ")) << path;
    EXPECT_THAT(reply.head, HasSubstr("temprature")) << path;
  }
  EXPECT_THAT(post("/v1/messages", body_of(R"(, "max_tokens": 3, "metadata": {})")).head,
              Not(HasSubstr("Warning")));
}

TEST_F(TranslatedTest, AWantedCallAndAFormGoTogether) {
  say(R"([{"name": "f", "parameters": {}}])");
  const std::string schema = R"({"type": "object"})";
  const Reply messages = post(
      "/v1/messages",
      body_of(fmt::format(R"(, "max_tokens": 90, "tools": [{{"name": "f", "input_schema": {0}}}],
                             "tool_choice": {{"type": "any"}},
                             "output_config": {{"format": {{"type": "json_schema", "schema": {0}}}}})",
                          schema)));
  ASSERT_EQ(messages.status, 200) << messages.body;
  EXPECT_EQ(messages.json().at("stop_reason").as_string(), "tool_use");
  const Reply responses =
      post("/v1/responses",
           fmt::format(R"({{"input": "hi", "tools": [{{"type": "function", "name": "f"}}],
                      "tool_choice": "required",
                      "text": {{"format": {{"type": "json_schema", "name": "n", "schema": {}}}}}}})",
                       schema));
  ASSERT_EQ(responses.status, 200) << responses.body;
  EXPECT_EQ(responses.json().at("output").at(0).at("type").as_string(), "function_call");
}

// The complete ones among calls cut by max_tokens stay.
TEST_F(TranslatedTest, WantedCallsThatAreCut) {
  const std::string script =
      R"([{"name": "f", "parameters": {"a": 1}}, {"name": "f", "parameters": {"a": "one two"}}])";
  say(script);
  size_t num_tokens = 0;
  {
    std::lock_guard lock(fake_.mutex);
    num_tokens = fake_.script.size();
  }
  static constexpr char kOpenAi[] = R"(, "max_tokens": {}, "tool_choice": "required",
      "tools": [{{"type": "function", "function": {{"name": "f"}}}}])";
  static constexpr char kAnthropic[] = R"(, "max_tokens": {}, "tool_choice": {{"type": "any"}},
      "tools": [{{"name": "f", "input_schema": {{"type": "object"}}}}])";
  size_t most_calls = 0;
  for (size_t most = 1; most < num_tokens; ++most) {
    const auto chat = post("/v1/chat/completions", body_of(fmt::format(kOpenAi, most))).json();
    const json::value& choice = chat.at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason").as_string(), "length") << most;
    EXPECT_EQ(choice.at("message").at("content").as_string(), "") << most;
    std::vector<std::string> arguments;
    for (const json::value& call : choice.at("message").at("tool_calls").as_array())
      arguments.emplace_back(call.at("function").at("arguments").as_string());
    size_t num_whole = 0;
    for (const std::string& one : arguments) num_whole += parse_json(one).ok() ? 1 : 0;
    std::vector<std::string> streamed;
    for (const json::value& event :
         events(post("/v1/chat/completions",
                     body_of(fmt::format(kOpenAi, most) + R"(, "stream": true)"))
                    .body)) {
      if (!event.is_object()) continue;
      const json::object& delta = event.at("choices").at(0).at("delta").as_object();
      if (!delta.contains("tool_calls")) continue;
      const json::value& call = delta.at("tool_calls").at(0);
      if (call.as_object().contains("id")) streamed.emplace_back();
      EXPECT_EQ(call.at("index").as_int64(), static_cast<int64_t>(streamed.size()) - 1);
      streamed.back() += std::string_view(call.at("function").at("arguments").as_string());
    }
    EXPECT_EQ(streamed, arguments) << most;
    const auto message = post("/v1/messages", body_of(fmt::format(kAnthropic, most))).json();
    EXPECT_EQ(message.at("stop_reason").as_string(), "max_tokens") << most;
    EXPECT_EQ(message.at("content").as_array().size(), num_whole) << most;
    most_calls = std::max(most_calls, num_whole);
  }
  EXPECT_GE(most_calls, 1u);
  const auto whole =
      post("/v1/chat/completions", body_of(fmt::format(kOpenAi, num_tokens + 1))).json();
  EXPECT_EQ(whole.at("choices").at(0).at("finish_reason").as_string(), "tool_calls");
  EXPECT_EQ(whole.at("choices").at(0).at("message").at("tool_calls").as_array().size(), 2u);
}

// A guide rules such text out; without one it may come in the piece that ends a call.
TEST_F(TranslatedTest, TextBehindAForcedCallKeepsItsArguments) {
  say(R"([{"name": "f", "parameters": {"a": null}, {"type": "x"})");
  const std::string body = R"({"input": "hi", "tools": [{"type": "function", "name": "f"}],
      "tool_choice": "required", "stream": )";
  const json::value whole = post("/v1/responses", body + "false}").json();
  const std::string arguments(whole.at("output").at(1).at("arguments").as_string());
  EXPECT_EQ(arguments, R"({"a": null})");
  std::string streamed;
  for (const json::value& event : events(post("/v1/responses", body + "true}").body))
    if (event.is_object() && event.at("type") == "response.function_call_arguments.delta")
      streamed += std::string_view(event.at("delta").as_string());
  EXPECT_EQ(streamed, arguments);
}

TEST_F(TranslatedTest, BudgetsBetweenCallsNeedTheirHeader) {
  const std::string body =
      body_of(R"(, "max_tokens": 50, "thinking": {"type": "enabled", "budget_tokens": 2048})");
  const Reply refused = post("/v1/messages", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("max_tokens: 50 is not greater than thinking.budget_tokens"));
  const Reply taken = ask(port_, "POST", "/v1/messages", body,
                          "anthropic-beta: other-1,interleaved-thinking-2025-05-14\r\n");
  EXPECT_EQ(taken.status, 200) << taken.body;
  EXPECT_THAT(taken.head, Not(HasSubstr("anthropic_beta")));
}

TEST_F(TranslatedTest, OllamaTellsOfItself) {
  const auto get = [&](const char* path) { return ask(port_, "GET", path, ""); };
  EXPECT_EQ(get("/").body, "Ollama is running");
  EXPECT_EQ(ask(port_, "HEAD", "/", "").status, 200);
  EXPECT_THAT(std::string(get("/api/version").json().at("version").as_string()), StartsWith("0."));
  for (const char* path : {"/api/tags", "/api/ps"}) {
    const auto models = get(path).json();
    ASSERT_EQ(models.at("models").as_array().size(), 1u) << path;
    EXPECT_EQ(models.at("models").at(0).at("name").as_string(), "org/tiny") << path;
  }
  const Reply shown = post("/api/show", R"({"model": "org/tiny:latest"})");
  ASSERT_EQ(shown.status, 200) << shown.body;
  const json::value info = shown.json().at("model_info");
  const std::string architecture(info.at("general.architecture").as_string());
  EXPECT_EQ(info.at(architecture + ".context_length").as_int64(), 1000);
  EXPECT_EQ(post("/api/show", R"({"model": "other"})").status, 404);
  EXPECT_EQ(post("/api/show", "[]").status, 400);
  EXPECT_EQ(post("/api/show", R"({"model": 5})").status, 400);
}

TEST_F(TranslatedTest, OllamaLoadsAndUnloads) {
  for (const auto& [path, body, reason] :
       {std::tuple("/api/generate", R"({"model": "org/tiny"})", "load"),
        {"/api/generate", R"({"model": "org/tiny", "prompt": "", "keep_alive": 0})", "unload"},
        {"/api/chat", R"({"model": "org/tiny", "messages": []})", "load"}}) {
    const Reply reply = post(path, body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.json().at("done_reason").as_string(), reason) << body;
  }
  const Reply other = post("/api/generate", R"({"model": "other"})");
  EXPECT_EQ(other.status, 404);
  EXPECT_TRUE(other.json().at("error").is_string());
}

TEST_F(TranslatedTest, OllamaAnswersRawPrompts) {
  const Reply raw = post("/api/generate", R"({"prompt": "xyz", "raw": true, "stream": false})");
  ASSERT_EQ(raw.status, 200) << raw.body;
  EXPECT_EQ(raw.json().at("response").as_string(), "one two");
  EXPECT_EQ(num_prompt_tokens(), ids("xyz").size());
  EXPECT_GT(raw.json().at("eval_duration").as_int64(), 0);
  const Reply stream = post("/api/generate", R"({"prompt": "xyz", "raw": true})");
  EXPECT_THAT(stream.body, HasSubstr(R"("done":true,"done_reason":"stop")"));
  EXPECT_EQ(post("/api/generate", R"({"prompt": "xyz", "suffix": "z"})").status, 400)
      << "the vocabulary has no gaps";
}

TEST_F(TranslatedTest, OllamaMakesEmbeddings) {
  const Reply many = post("/api/embed", R"({"model": "org/tiny", "input": ["xyz", "a"]})");
  ASSERT_EQ(many.status, 200) << many.body;
  const json::value body = many.json();
  ASSERT_EQ(body.at("embeddings").as_array().size(), 2u);
  EXPECT_EQ(body.at("embeddings").at(0).as_array().size(), 3u);
  EXPECT_EQ(body.at("prompt_eval_count").as_int64(),
            static_cast<int64_t>(ids("xyz").size() + ids("a").size()));
  double sum = 0;
  for (const json::value& v : body.at("embeddings").at(0).as_array())
    sum += v.to_number<double>() * v.to_number<double>();
  EXPECT_NEAR(sum, 1, 1e-5);
  const Reply one = post("/api/embeddings", R"({"model": "org/tiny", "prompt": "xyz"})");
  ASSERT_EQ(one.status, 200) << one.body;
  EXPECT_EQ(one.json().at("embedding").at(1).to_number<double>(),
            static_cast<double>(ids("xyz").size()))
      << "as the engine has it";
  fake_.max_seq_len = 2;
  EXPECT_EQ(post("/api/embed", R"({"input": "xyz xyz xyz"})").status, 200) << "cut";
  const Reply long_one = post("/api/embed", R"({"input": "xyz xyz xyz", "truncate": false})");
  EXPECT_EQ(long_one.status, 400);
  EXPECT_TRUE(long_one.json().at("error").is_string());
}

}  // namespace
}  // namespace nereid::front
