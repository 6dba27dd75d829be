// OpenAI's endpoints over real sockets and a scripted core.
#include <gmock/gmock.h>

#include <sys/socket.h>

#include <climits>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/escaping.h"
#include "front/bridge/model_info.h"
#include "front/testing/server_fixture.h"
#include "io/test_torch_file.h"

namespace nereid::front {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

json::object usage_of(const json::value& body) { return body.at("usage").as_object(); }

// The engine's counts reach every reply: for two prompts, or two sequences of one.
TEST_F(ServerTest, UsageHasWhatTheEngineCounts) {
  say("one two three");
  const auto length = static_cast<int64_t>(ids("one two three").size()) + 1;
  auto body = post("/v1/completions", R"({"prompt": "xyz"})").json();
  EXPECT_EQ(usage_of(body).at("prompt_tokens_details"), (json::object{{"cached_tokens", 0}}));
  EXPECT_FALSE(usage_of(body).contains("completion_tokens_details"));
  fake_.usage = {
      {"nereid_cached_tokens", 2}, {"nereid_draft_tokens", 9}, {"nereid_accepted_draft_tokens", 7}};
  const auto expect = [](json::object usage, int64_t cached, int64_t accepted, int64_t rejected) {
    EXPECT_EQ(usage.at("prompt_tokens_details"), (json::object{{"cached_tokens", cached}}));
    EXPECT_EQ(usage.at("completion_tokens_details"),
              (json::object{{"accepted_prediction_tokens", accepted},
                            {"rejected_prediction_tokens", rejected}}));
  };
  expect(usage_of(post("/v1/completions", R"({"prompt": ["xyz", "abc"]})").json()), 4, 14, 4);
  expect(usage_of(post("/v1/completions", R"({"prompt": "xyz", "n": 2})").json()), 2, 14, 4);
  const std::string chat = R"({"messages": [{"role": "user", "content": "x"}])";
  body = post("/v1/chat/completions", chat + "}").json();
  expect(usage_of(body), 2, 7, 2);
  const std::string options =
      R"("stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}})";
  for (const Reply& r : {post("/v1/chat/completions", chat + ", " + options),
                         post("/v1/completions", R"({"prompt": "xyz", )" + options)}) {
    const auto all = events(r.body);
    ASSERT_GE(all.size(), 4u);
    const json::object last = usage_of(all[all.size() - 2]);
    EXPECT_EQ(last.at("completion_tokens").as_int64(), length);
    for (size_t i = all.size() - 3; i + 1 < all.size(); ++i) expect(usage_of(all[i]), 2, 7, 2);
  }
}

std::vector<double> values_of(const json::value& embedding) {
  std::vector<double> out;
  for (const json::value& v : embedding.as_array()) out.push_back(v.to_number<double>());
  return out;
}

TEST_F(ServerTest, EmbeddingsOfEveryInputInOrder) {
  fake_.usage = {{"nereid_cached_tokens", 1}};
  const auto body =
      post("/v1/embeddings", R"({"input": ["xyz", [3, 4]], "model": "tiny", "normalize": false})")
          .json();
  EXPECT_EQ(body.at("object").as_string(), "list");
  EXPECT_EQ(body.at("model").as_string(), "org/tiny");
  const auto prompt = ids("xyz");
  const auto count = static_cast<int64_t>(prompt.size());
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), count + 2);
  EXPECT_EQ(body.at("usage").at("total_tokens").as_int64(), count + 2);
  EXPECT_EQ(body.at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64(), 2);
  const double sum = std::accumulate(prompt.begin(), prompt.end(), 0.0);
  const json::array& data = body.at("data").as_array();
  ASSERT_EQ(data.size(), 2u);
  EXPECT_EQ(data[1].at("object").as_string(), "embedding");
  EXPECT_EQ(data[1].at("index").as_int64(), 1);
  EXPECT_EQ(values_of(data[0].at("embedding")),
            (std::vector<double>{sum, static_cast<double>(count), 0}));
  EXPECT_EQ(values_of(data[1].at("embedding")), (std::vector<double>{7, 2, 0}));
  EXPECT_EQ(fake_.last_bytes["request_output_len"], std::string(4, '\0'));
}

TEST_F(ServerTest, PromptsOfEmbeddings) {
  const std::vector<uint16_t> rows = {0x3f80, 0x4000, 0x4040, 0xbf80, 0, 0x4080};  // 1, 2, 3, ...
  const io::StoredTensor tensor{
      "", "BF16", DType::kBF16, {2, 3}, std::as_bytes(std::span(rows)), nullptr};
  const std::string text = absl::Base64Escape(io::testing_only::serialize_torch_tensor(tensor));
  say("one two");
  const auto body = post("/v1/completions", fmt::format(R"({{"prompt_embeds": "{}", "n": 2,
      "return_token_ids": true}})",
                                                        text))
                        .json();
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 2);
  ASSERT_EQ(body.at("choices").as_array().size(), 2u);
  EXPECT_EQ(body.at("choices").at(0).at("text").as_string(), "one two");
  EXPECT_TRUE(body.at("choices").at(0).at("prompt_token_ids").is_null());
  EXPECT_NE(fake_.last_inputs.find("prompt_embeds[1,2,3]"), std::string::npos);
  EXPECT_EQ(fake_.last_prompt.size(), 2u);
  EXPECT_EQ(fake_.last_bytes["prompt_embeds"],
            std::string(reinterpret_cast<const char*>(rows.data()), 12));
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "x"})").status, 200);
  EXPECT_FALSE(fake_.last_bytes.contains("prompt_embeds"));
  fake_.max_seq_len = 2;  // no room for an output
  EXPECT_NE(post("/v1/completions", fmt::format(R"({{"prompt_embeds": "{}"}})", text))
                .body.find("the prompt has 2 tokens"),
            std::string::npos);
}

TEST_F(ServerTest, AModelWithoutAHeadForScoresScoresNothing) {
  for (const char* path : {"/v1/score", "/rerank"}) {
    const Reply reply =
        post(path, R"({"query": "q", "queries": "q", "documents": ["a"], "model": "tiny"})");
    EXPECT_EQ(reply.status, 501) << path;
    EXPECT_NE(reply.body.find("it has 0 labels"), std::string::npos) << reply.body;
  }
}

TEST_F(ServerTest, EmbeddingsAreCutNormalisedAndEncoded) {
  const auto ask_for = [&](std::string_view more) {
    return post("/v1/embeddings", fmt::format(R"({{"input": [4, 0]{}}})", more))
        .json()
        .at("data")
        .at(0)
        .at("embedding");
  };
  const auto whole = values_of(ask_for(""));  // of [4, 2, 0]
  EXPECT_NEAR(whole.at(0), 2 / std::sqrt(5.0), 1e-6);
  EXPECT_NEAR(whole.at(1), 1 / std::sqrt(5.0), 1e-6);
  EXPECT_EQ(whole.at(2), 0);
  EXPECT_EQ(values_of(ask_for(R"(, "dimensions": 1)")), std::vector<double>{1});
  // 4.0, 2.0 and 0.0 as little-endian 32-bit floats; sizes with each padding.
  EXPECT_EQ(ask_for(R"(, "normalize": false, "encoding_format": "base64")"), "AACAQAAAAEAAAAAA");
  EXPECT_EQ(ask_for(R"(, "normalize": false, "encoding_format": "base64", "dimensions": 2)"),
            "AACAQAAAAEA=");
  EXPECT_EQ(ask_for(R"(, "normalize": false, "encoding_format": "base64", "dimensions": 1)"),
            "AACAQA==");
}

TEST_F(ServerTest, EmbeddingsThatFindAFullQueueWaitForOthers) {
  fake_.max_pooled = 4, fake_.refusals_awaited = 1;
  const Reply several = post("/v1/embeddings",
                             R"({"input": [[1], [2], [3], [4], [5], [6], [7], [8], [9], [10]],
                                 "normalize": false})");
  ASSERT_EQ(several.status, 200) << several.body;
  const json::value body = several.json();
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(values_of(body.at("data").at(static_cast<size_t>(i)).at("embedding")),
              (std::vector<double>{i + 1.0, 1, 0}));
  fake_.max_pooled = 0;
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "x"})").status, 503);
}

TEST_F(ServerTest, EmbeddingsRefused) {
  const auto refused = [&](std::string_view body) {
    const Reply r = post("/v1/embeddings", body);
    const json::value error = r.json().at("error");
    return fmt::format("{} {} {}", r.status,
                       error.at("param").is_string() ? error.at("param").as_string().c_str() : "-",
                       error.at("message").as_string().c_str());
  };
  EXPECT_THAT(refused(R"({"input": "x", "dimensions": 4})"),
              StartsWith("400 dimensions 'dimensions': 4 is not in [1, 3]"));
  EXPECT_THAT(refused(R"({"input": [5000]})"), StartsWith("400 input token id 5000 is not in"));
  EXPECT_THAT(refused(R"({"input": "x", "model": "other"})"), StartsWith("404 model"));
  std::string long_input = "[[1], [1";
  for (int i = 0; i < 64; ++i) long_input += ",1";
  EXPECT_THAT(refused(fmt::format(R"({{"input": {}]]}})", long_input)),
              StartsWith("400 input This model's maximum context length is 64 tokens, but input 1 "
                         "has 65"));
  fake_.embedding_size = 0;
  EXPECT_THAT(refused(R"({"input": "x"})"), StartsWith("501 - model 'tensorrt_llm' gives no"));
}

TEST_F(ServerTest, IdsWithoutText) {
  say("one two three");
  const auto choice =
      post("/v1/completions", R"({"prompt": "x", "detokenize": false})").json().at("choices").at(0);
  EXPECT_EQ(choice.at("text").as_string(), "");
  EXPECT_EQ(choice.at("finish_reason").as_string(), "stop");
  const auto wanted = ids("one two three");
  EXPECT_EQ(choice.at("token_ids").as_array().size(), wanted.size() + 1);
  EXPECT_EQ(choice.at("token_ids").at(0).as_int64(), wanted[0]);
  const auto message = post("/v1/chat/completions",
                            R"({"messages": [{"role": "user", "content": "x"}],
                                "detokenize": false})")
                           .json()
                           .at("choices")
                           .at(0);
  EXPECT_EQ(message.at("message").at("content").as_string(), "");
  EXPECT_EQ(message.at("token_ids").as_array().size(), wanted.size() + 1);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "x", "detokenize": false, "stop": "y"})").status,
            400);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "x", "detokenize": false, "echo": true})").status,
            400);
}

TEST_F(ServerTest, FieldsThatNeedAnOptionOrAModel) {
  const auto param = [&](std::string_view path, std::string_view body) {
    const Reply r = post(path, body);
    const json::value error = r.json().at("error").at("param");
    return fmt::format("{} {}", r.status, error.is_string() ? error.as_string().c_str() : "-");
  };
  EXPECT_EQ(param("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "x"}],
                                              "chat_template": "x"})"),
            "400 chat_template");
  EXPECT_EQ(param("/v1/completions", R"({"prompt": "x", "suffix": "y"})"), "400 suffix");
  EXPECT_EQ(param("/v1/completions", R"({"prompt": [3], "suffix": "y"})"), "400 suffix");
  EXPECT_EQ(param("/v1/completions", R"({"prompt": "x", "allowed_token_ids": []})"),
            "400 allowed_token_ids");
  EXPECT_EQ(param("/v1/completions", R"({"prompt": "x", "allowed_token_ids": [5000]})"),
            "400 allowed_token_ids");
  // The scripted engine has no such input.
  EXPECT_EQ(param("/v1/completions", R"({"prompt": "x", "allowed_token_ids": [5]})"), "501 -");
}

TEST_F(ServerTest, StrictFunctionsThatAreNotHeldToTheirSchemas) {
  say("one");
  fake_.max_seq_len = 2048;  // the template renders long texts for tools
  const auto head_of = [&](std::string_view choice, std::string_view strict) {
    return post("/v1/chat/completions",
                fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}], {}
                    "tools": [{{"type": "function", "function": {{"name": "f", "strict": {}}}}}]}})",
                            choice, strict))
        .head;
  };
  constexpr char kWarning[] = "Warning: 299 - \"strict functions: only calls that tool_choice";
  EXPECT_NE(head_of("", "true").find(kWarning), std::string::npos);
  EXPECT_NE(head_of("\"stream\": true,", "true").find(kWarning), std::string::npos);
  EXPECT_EQ(head_of("", "false").find("Warning"), std::string::npos);
  EXPECT_EQ(head_of("\"tool_choice\": \"none\",", "true").find("Warning"), std::string::npos);
  EXPECT_TRUE(head_of("", "1").starts_with("HTTP/1.1 400"));
}

TEST_F(ServerTest, ChatEchoesTheMessageThatItGoesOnWith) {
  say(" three");
  const std::string body = R"({"echo": true, "add_generation_prompt": false, "messages": [
      {"role": "user", "content": "x"}, {"role": "assistant", "content": "one two"}])";
  const auto whole = post("/v1/chat/completions", body + "}").json();
  const json::value& message = whole.at("choices").at(0).at("message");
  EXPECT_EQ(message.at("content").as_string(), "one two three");
  std::string text;
  for (const json::value& event :
       events(post("/v1/chat/completions", body + R"(, "stream": true})").body)) {
    if (event.is_string()) continue;
    const json::object& delta = event.at("choices").at(0).at("delta").as_object();
    if (delta.contains("content")) text += std::string_view(delta.at("content").as_string());
  }
  EXPECT_EQ(text, "one two three");
  const auto other = post("/v1/chat/completions",
                          R"({"echo": true, "messages": [{"role": "user", "content": "x"}]})")
                         .json();
  EXPECT_EQ(other.at("choices").at(0).at("message").at("content").as_string(), " three");
}

TEST_F(ServerTest, ChatOfTokenIdsAndTokensAsIds) {
  say("one");
  const auto body = post("/v1/chat/completions",
                         R"({"messages": [{"role": "user", "content": "x"}], "logprobs": true,
                             "prompt_token_ids": [5, 6, 7], "return_tokens_as_token_ids": true})")
                        .json();
  EXPECT_EQ(fake_.last_prompt, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 3);
  const std::string token = fmt::format("token_id:{}", ids("one")[0]);
  const json::value& scores = body.at("choices").at(0).at("logprobs");
  EXPECT_EQ(scores.at("content").at(0).at("token").as_string(), token);
  const auto completion =
      post("/v1/completions",
           R"({"prompt": "x", "logprobs": 0, "return_tokens_as_token_ids": true})")
          .json();
  EXPECT_EQ(completion.at("choices").at(0).at("logprobs").at("tokens").at(0).as_string(), token);
  const Reply refused = post("/v1/chat/completions",
                             R"({"messages": [{"role": "user", "content": "x"}],
                                 "prompt_token_ids": [5000]})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json().at("error").at("param").as_string(), "prompt_token_ids");
}

// Refused before the engine sees them, the longer ones before they are tokenised.
TEST_F(ServerTest, LongBannedWordsAreRefused) {
  say("one");
  std::string many;
  for (int i = 0; i < 300; ++i) many += "x 1 ";
  for (const std::string& word : {many, std::string(50000, 'a')}) {
    const Reply r =
        post("/v1/completions", fmt::format(R"({{"prompt": "x", "bad_words": ["{}"]}})", word));
    EXPECT_EQ(r.status, 400) << r.body;
    EXPECT_EQ(r.json().at("error").at("param").as_string(), "bad_words");
  }
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "x", "bad_words": ["no way"]})").status, 200);
  EXPECT_THAT(fake_.last_inputs, HasSubstr("bad_words_list[1,2,"));
}

// Reads until `end` has arrived.
std::string read_to(int fd, std::string_view end) {
  std::string out;
  char buffer[4096];
  while (out.find(end) == std::string::npos) {
    const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) return out + "<no more>";
    out.append(buffer, static_cast<size_t>(n));
  }
  return out;
}

// The thread that has a token sends it while the only event loop is busy.
TEST_F(ServerTest, StreamsNeedNoEventLoop) {
  say("one two three four");
  HttpOptions options = local_options(/*metrics_port=*/0);
  options.threads = 1;
  const auto server = start_front(options);
  ASSERT_NE(server, nullptr);
  const int port = server->http_port();
  const std::string chat = R"({"stream": true, "messages": [{"role": "user", "content": "x"}]})";
  const std::string completion = R"({"stream": true, "prompt": "x"})";
  for (const auto& [path, body] :
       {std::pair("/v1/chat/completions", chat), std::pair("/v1/completions", completion)}) {
    fake_.num_sent = 0;
    fake_.max_tokens_now = 1;
    const int fd = connect_to(port);
    send_all(fd, request_text("POST", path, body));
    ASSERT_TRUE(eventually([&] { return fake_.num_sent == 1; }));
    std::string got = read_to(fd, "data: ");
    fake_.hold_live = true;
    const int live = connect_to(port);
    send_all(live, request_text("GET", "/v2/health/live", ""));
    ASSERT_TRUE(eventually([&] { return fake_.num_asking_live == 1; }));
    fake_.max_tokens_now = INT_MAX;
    got += read_to(fd, "[DONE]");
    EXPECT_THAT(got, HasSubstr("four"));
    EXPECT_THAT(got, Not(HasSubstr("<no more>")));
    fake_.hold_live = false;
    EXPECT_THAT(read_to(live, "\r\n\r\n"), StartsWith("HTTP/1.1 200"));
    close(fd);
    close(live);
    // Four tokens and the end. The last is counted after it was sent, so perhaps only now.
    ASSERT_TRUE(eventually([&] { return fake_.num_sent == 5; }));
  }
  server->stop(std::chrono::milliseconds(60000));
}

TEST(ConfigParameter, APlaceholderIsUnset) {
  const json::value config =
      *parse_json(R"({"parameters": {"a": {"string_value": "${a}"}, "b": {"string_value": "x"}}})");
  EXPECT_EQ(config_parameter(config, "a"), "");
  EXPECT_EQ(config_parameter(config, "b"), "x");
  EXPECT_EQ(config_parameter(config, "c"), "");
}

HttpOptions on_any_port() {
  HttpOptions options = local_options();
  options.openai.model_name = "tiny";
  return options;
}

// Answers for bodies that a schema forbids, as from Triton's OpenAI front end, which uses FastAPI.
TEST_F(ServerTest, FastApiErrors) {
  HttpOptions options = on_any_port();
  options.openai.fastapi_errors = options.openai.strict_fields = true;
  const auto server = start_front(options);
  say("one");
  const std::string one = R"("model": "tiny", "messages": [{"role": "user", "content": "x"}])";
  const auto asked = [&](const std::string& body, const char* path = "/v1/chat/completions") {
    return ask(server->http_port(), "POST", path, body);
  };
  EXPECT_EQ(asked("{" + one + "}").status, 200);
  const auto refused = [&](const std::string& body, const json::array& place, const char* type) {
    const Reply reply = asked(body);
    EXPECT_EQ(reply.status, 422) << body;
    const json::value fault = reply.json().at("detail").at(0);
    EXPECT_EQ(fault.at("loc"), place) << body;
    EXPECT_EQ(fault.at("type").as_string(), type) << body;
    EXPECT_EQ(fault.at("msg"), reply.json().at("error").at("message"));
  };
  refused("{", {"body"}, "json_invalid");
  refused("[]", {"body"}, "type_error");
  refused("{" + one + R"(, "temperature": 101})", {"body", "temperature"}, "value_error");
  refused("{" + one + R"(, "ignore_eos": 123})", {"body", "ignore_eos"}, "type_error");
  refused("{" + one + R"(, "shoe_size": 9})", {"body", "shoe_size"}, "extra_forbidden");
  refused(R"({"model": "tiny", "messages": []})", {"body", "messages"}, "missing");
  refused(R"({"model": "tiny", "messages": [{}]})", {"body", "messages", 0}, "type_error");
  refused(R"({"messages": [{"role": "user", "content": "x"}]})", {"body", "model"}, "missing");
  // A fault that no schema finds is 400, with a text.
  const Reply together = asked("{" + one + R"(, "top_logprobs": 2})");
  EXPECT_EQ(together.status, 400);
  EXPECT_THAT(std::string(together.json().at("detail").as_string()), HasSubstr("top_logprobs"));
  const Reply unknown = asked(R"({"model": "gpt", "prompt": "x"})", "/v1/completions");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(std::string(unknown.json().at("detail").as_string()), HasSubstr("gpt"));
}

TEST_F(ServerTest, AnyModelNameWhereThatIsAllowed) {
  HttpOptions options = on_any_port();
  options.openai.any_model_name = options.openai.shows_base_url = true;
  const auto server = start_front(options);
  say("one");
  const int port = server->http_port();
  for (const auto& [path, rest] :
       {std::pair{"/v1/chat/completions", R"("messages": [{"role": "user", "content": "x"}])"},
        std::pair{"/v1/completions", R"("prompt": "x")"}}) {
    const Reply reply = ask(port, "POST", path, R"({"model": "gpt-4", )" + std::string(rest) + "}");
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.json().at("model").as_string(), "tiny");
  }
  const Reply root = ask(port, "GET", "/");
  EXPECT_EQ(root.status, 404);
  EXPECT_THAT(root.body, HasSubstr("the base URL of OpenAI clients is http://"));
}

TEST_F(ServerTest, InferTakesDecoupledModelsThatAnswerOnce) {
  HttpOptions options = on_any_port();
  options.infers_decoupled = true;
  const auto server = start_front(options);
  fake_.types_is_decoupled = true;
  const char* const kBody =
      R"({"inputs": [{"name": "count", "datatype": "INT32", "shape": [1, 1], "data": [7]}]})";
  EXPECT_THAT(post("/v2/models/types/infer", kBody).body,
              HasSubstr("doesn't support models with decoupled transaction policy"));
  const auto asked = [&](const std::string& body) {
    return ask(server->http_port(), "POST", "/v2/models/types/infer", body);
  };
  const Reply once = asked(kBody);
  EXPECT_EQ(once.status, 200) << once.body;
  EXPECT_THAT(once.body, HasSubstr("OUT_count"));
  const std::string body(kBody);
  const Reply twice = asked(body.substr(0, body.size() - 1) + R"(, "parameters": {"replies": 2}})");
  EXPECT_EQ(twice.status, 400);
  EXPECT_THAT(twice.body, HasSubstr("infer returns one response and the model sent 2"));
}

}  // namespace
}  // namespace nereid::front
