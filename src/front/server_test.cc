// The whole front over real sockets and a scripted core: KServe, OpenAI, metrics.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "front/testing/server_fixture.h"

namespace nereid::front {
namespace {

TEST_F(ServerTest, HealthMetadataAndErrors) {
  EXPECT_EQ(ask(port_, "GET", "/v2/health/live").status, 200);
  EXPECT_EQ(ask(port_, "GET", "/v2/health/ready").body, "");
  EXPECT_EQ(ask(port_, "GET", "/v2").json().at("name").as_string(), "triton");
  EXPECT_EQ(ask(port_, "GET", "/v2/models/types").json().at("name").as_string(), "types");
  EXPECT_EQ(ask(port_, "GET", "/v2/models/types/versions/01/ready").status, 200);
  EXPECT_EQ(ask(port_, "GET", "/v2/models/types/config").status, 200);
  const Reply unknown = ask(port_, "GET", "/v2/models/nope");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.body, R"({"error":"Request for unknown model: 'nope' is not found"})");
  EXPECT_EQ(ask(port_, "GET", "/v2/models/types/versions/9").status, 404);
  EXPECT_EQ(ask(port_, "GET", "/v2/models/types/versions/99999999999999999999").status, 400);
  EXPECT_EQ(ask(port_, "GET", "/v2/models/nope/ready").status, 400);
  EXPECT_EQ(ask(port_, "GET", "/nope").body, R"({"error":"Not Found"})");
  const Reply method = ask(port_, "GET", "/v2/models/types/generate");
  EXPECT_EQ(method.status, 405);
  EXPECT_NE(method.head.find("Allow: POST"), std::string::npos);
  EXPECT_EQ(ask(port_, "GET", "/v1/nope").json().at("error").at("type").as_string(),
            "not_found_error");
  EXPECT_EQ(ask(port_, "GET", "/").body, R"({"error":"Not Found"})");
  const std::string doubled = post("/v1/v1/chat/completions", "{}").body;
  EXPECT_NE(doubled.find("did you mean /v1/chat/completions? The client's base URL is the address "
                         "of the server followed by /v1"),
            std::string::npos)
      << doubled;
  EXPECT_EQ(ask(port_, "GET", "/health/ready").status, 200);
  fake_.ready = false;
  EXPECT_EQ(ask(port_, "GET", "/v2/health/ready").status, 400);
  EXPECT_EQ(ask(port_, "GET", "/health/ready").body,
            R"({"detail":"Attached inference engine is not ready for inference requests."})");
  EXPECT_EQ(ask(port_, "GET", "/v2/models/types/ready").status, 400);
  EXPECT_EQ(post("/v2/models/types/generate", "{}").status, 503);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "x"})").status, 503);
  EXPECT_EQ(ask(port_, "GET", "/v1/models").json().at("data").as_array().size(), 0u);
}

TEST_F(ServerTest, GenerateMapsEveryType) {
  const Reply r = post("/v2/models/types/generate",
                       R"({"text": "hä", "words": ["a", "b"], "count": -5, "small": 255,
                           "seed": 18446744073709551615, "flag": true, "heat": 0.1,
                           "pair": [1, 2], "table": [1.5, 2, 3, 4], "id": "q7", "foo": 1})");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.body,
            "{\"OUT_count\":-5,\"OUT_flag\":true,\"OUT_heat\":0.10000000149011612,"
            "\"OUT_pair\":[1,2],\"OUT_seed\":18446744073709551615,\"OUT_small\":255,"
            "\"OUT_table\":[1.5,2.0,3.0,4.0],\"OUT_text\":\"hä\",\"OUT_words\":[\"a\",\"b\"],"
            "\"id\":\"q7\",\"index\":0,\"model_name\":\"types\",\"model_version\":\"1\"}");
  EXPECT_EQ(fake_.last_inputs,
            "count[1,1] flag[1,1] heat[1,1] pair[1,2] seed[1,1] small[1,1] table[1,2,2] "
            "text[1,1] words[1,2]");
  EXPECT_EQ(post("/v2/models/types/generate", R"({"parameters": {"count": 3}, "words": []})").body,
            "{\"OUT_count\":3,\"OUT_words\":[],\"index\":0,\"model_name\":\"types\","
            "\"model_version\":\"1\"}");
}

TEST_F(ServerTest, GenerateRefusesBadInputByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "line 1"},
      {"[]", "must be a JSON object"},
      {R"({"text":"x",})", "column"},
      {R"({"count": "5"})", "'count'"},
      {R"({"count": 2.0})", "'count'"},
      {R"({"count": 3000000000})", "[-2147483648, 2147483647]"},
      {R"({"small": 256})", "[0, 255]"},
      {R"({"small": -1})", "'small'"},
      {R"({"seed": -1})", "'seed'"},
      {R"({"flag": 1})", "'flag'"},
      {R"({"heat": "warm"})", "'heat'"},
      {R"({"heat": 1e300})", "'heat'"},
      {R"({"text": 5})", "'text'"},
      {R"({"text": null})", "'text'"},
      {R"({"words": ["a", 1]})", "'words'"},
      {R"({"pair": [1, 2, 3]})", "can not convert input 'pair'"},
      {R"({"table": [[1, 2], [3, 4]]})", "can not convert input 'table'"},
      {R"({"half": 1.5})", "FP16"},
      {R"({"foo": [1]})", "parameter 'foo' has invalid type"},
      {R"({"parameters": 5})", "'parameters'"},
      {R"({"count": 1, "parameters": {"count": 2}})", "already exists"},
      {R"({"id": 5})", "'id'"},
  };
  for (const auto& [body, text] : cases) {
    const Reply r = post("/v2/models/types/generate", body);
    EXPECT_EQ(r.status, 400) << body;
    EXPECT_NE(r.body.find(text), std::string::npos) << body << " -> " << r.body;
  }
}

TEST_F(ServerTest, GenerateCountsResponsesAndMapsErrors) {
  EXPECT_NE(post("/v2/models/types/generate", R"({"replies": 2})").body.find("exactly 1 response"),
            std::string::npos);
  EXPECT_EQ(post("/v2/models/types/generate", R"({"replies": 0})").status, 400);
  EXPECT_EQ(post("/v2/models/types/generate", R"({"fail": 1})").status, 500);
  const Reply full = post("/v2/models/types/generate", R"({"fail": 4})");
  EXPECT_EQ(full.status, 503);
  EXPECT_NE(full.head.find("Retry-After: 1"), std::string::npos);
  fake_.queue_full = true;
  EXPECT_EQ(post("/v2/models/types/generate", "{}").status, 503);
}

TEST_F(ServerTest, GenerateStreamSendsOneEventPerResponse) {
  const Reply r = post("/v2/models/types/generate_stream", R"({"replies": 3, "text": "a"})");
  EXPECT_NE(r.head.find("text/event-stream; charset=utf-8"), std::string::npos);
  const auto all = events(r.body);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[2].at("index").as_int64(), 2);
  EXPECT_EQ(post("/v2/models/types/generate_stream", R"({"replies": 0})").body, "");
  const Reply failed = post("/v2/models/types/generate_stream", R"({"fail": 3})");
  EXPECT_EQ(failed.status, 400);
  EXPECT_EQ(failed.body, "data: {\"error\":\"asked to fail\"}\n\n");
}

TEST_F(ServerTest, Models) {
  const auto list = ask(port_, "GET", "/v1/models").json();
  EXPECT_EQ(list.at("data").at(0).at("id").as_string(), "org/tiny");
  EXPECT_EQ(list.at("data").at(0).at("max_model_len").as_int64(), 64);
  EXPECT_EQ(ask(port_, "GET", "/v1/models/org/tiny").status, 200);
  EXPECT_EQ(ask(port_, "GET", "/v1/models/org%2Ftiny").status, 200);
  EXPECT_EQ(ask(port_, "GET", "/v1/models/tiny").status, 200);
  EXPECT_EQ(ask(port_, "GET", "/v1/models/other").status, 404);
  EXPECT_EQ(ask(port_, "GET", "/v1/models/tensorrt_llm").status, 200);
  EXPECT_EQ(ask(port_, "GET", "/v1/models/ensemble").status, 404);  // the fake has none
  // A load with another configuration updates the model.
  fake_.max_seq_len = 32;
  const auto shorter = ask(port_, "GET", "/v1/models").json();
  EXPECT_EQ(shorter.at("data").at(0).at("max_model_len").as_int64(), 32);
}

TEST_F(ServerTest, RequestsReadNoConfigurationsOfModelsThatAreKnown) {
  say("one");
  const auto ask_once = [this] {
    EXPECT_EQ(post("/v1/completions", R"({"prompt": "x", "max_tokens": 1})").status, 200);
    return fake_.num_configs_read.load();
  };
  const int once = ask_once();
  EXPECT_EQ(ask_once(), once);
  fake_.max_seq_len = 32;
  EXPECT_GT(ask_once(), once);
}

TEST_F(ServerTest, AnswersCarryWhatTracesRequests) {
  const std::string ids = "X-Request-Id: r-1\r\ntraceparent: 00-1-2-01\r\n";
  for (const auto& [method, path, body] :
       {std::tuple("GET", "/v2", ""), std::tuple("GET", "/nowhere", ""),
        std::tuple("POST", "/v2/models/types/generate_stream", R"({"replies": 1})")}) {
    const std::string head = ask(port_, method, path, body, ids).head;
    EXPECT_NE(head.find("\r\nX-Request-Id: r-1\r\n"), head.npos) << path << head;
    EXPECT_NE(head.find("\r\ntraceparent: 00-1-2-01\r\n"), head.npos) << path << head;
  }
  const std::string name = "X-Request-Id: ";
  const std::string head = ask(port_, "GET", "/v2", "", name + std::string(300, 'x') + "\r\n").head;
  EXPECT_EQ(head.find(name), head.npos);
  EXPECT_EQ(ask(port_, "GET", "/v2").head.find("traceparent"), head.npos);
}

TEST_F(ServerTest, CompletionWhole) {
  say("Hello wörld 😀!");
  const auto r = post("/v1/completions", R"({"model": "tiny", "prompt": "Say", "temperature": 0})");
  ASSERT_EQ(r.status, 200) << r.body;
  const auto body = r.json();
  EXPECT_EQ(body.at("object").as_string(), "text_completion");
  EXPECT_EQ(body.at("model").as_string(), "org/tiny");
  const auto& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("text").as_string(), "Hello wörld 😀!");
  EXPECT_EQ(choice.at("finish_reason").as_string(), "stop");
  const auto output = static_cast<int64_t>(ids("Hello wörld 😀!").size()) + 1;
  const auto prompt = static_cast<int64_t>(ids("Say").size());
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), output);
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), prompt);
  EXPECT_EQ(body.at("usage").at("total_tokens").as_int64(), prompt + output);
  EXPECT_EQ(fake_.last_prompt, ids("Say"));
  EXPECT_EQ(
      fake_.last_inputs,
      fmt::format("end_id[1,1] exclude_input_in_output[1,1] input_ids[1,{}] input_lengths[1,1] "
                  "request_output_len[1,1] runtime_top_k[1,1] "
                  "stop_words_list[1,2,1] streaming[1,1]",
                  prompt));
}

TEST_F(ServerTest, CompletionLengthBatchAndEcho) {
  say("abc", false);
  const auto body =
      post("/v1/completions", R"({"prompt": ["x", [2, 307]], "max_tokens": 4, "echo": true})")
          .json();
  ASSERT_EQ(body.at("choices").as_array().size(), 2u);
  EXPECT_EQ(body.at("choices").at(1).at("index").as_int64(), 1);
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "length");
  EXPECT_TRUE(
      std::string_view(body.at("choices").at(0).at("text").as_string()).starts_with("xabc"));
  EXPECT_TRUE(std::string_view(body.at("choices").at(1).at("text").as_string())
                  .starts_with("<|im_start|>user"));
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 8);
}

TEST_F(ServerTest, CompletionStreamIsTheWholeInPieces) {
  say("One two thrée.");
  const Reply r = post("/v1/completions",
                       R"({"prompt": "x", "stream": true,
                           "stream_options": {"include_usage": true}})");
  const auto all = events(r.body);
  ASSERT_GE(all.size(), 4u);
  EXPECT_EQ(all.back().as_string(), "[DONE]");
  EXPECT_GT(all[all.size() - 2].at("usage").at("completion_tokens").as_int64(), 3);
  EXPECT_TRUE(all[all.size() - 2].at("choices").as_array().empty());
  std::string text;
  for (size_t i = 0; i + 2 < all.size(); ++i) {
    text += std::string_view(all[i].at("choices").at(0).at("text").as_string());
    EXPECT_TRUE(all[i].at("usage").is_null());
  }
  EXPECT_EQ(text, "One two thrée.");
  EXPECT_EQ(all[all.size() - 3].at("choices").at(0).at("finish_reason").as_string(), "stop");
}

TEST_F(ServerTest, StopStringCutsAndCancels) {
  say("one two three four five six", false);
  fake_.max_tokens_now = static_cast<int>(fake_.script.size());
  const auto body =
      post("/v1/completions", R"({"prompt": "x", "stop": ["zzz", "ee f"], "max_tokens": 60})")
          .json();
  EXPECT_EQ(body.at("choices").at(0).at("text").as_string(), "one two thr");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "stop");
  EXPECT_EQ(body.at("choices").at(0).at("stop_reason").as_string(), "ee f");
  EXPECT_TRUE(eventually([&] { return fake_.num_cancelled == 1; }));
}

TEST_F(ServerTest, StopTokenEnds) {
  say("one two", true);
  const int32_t stop = ids("one two").back();
  const auto body = post("/v1/completions", fmt::format(R"({{"prompt": "x", "max_tokens": 50,
                                            "stop_token_ids": [{}]}})",
                                                        stop))
                        .json();
  EXPECT_EQ(body.at("choices").at(0).at("stop_reason").as_int64(), stop);
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "stop");
}

TEST_F(ServerTest, ChatWholeAndStreamed) {
  say("Hi there");
  const std::string request =
      R"({"messages": [{"role": "user", "content": "What is machine learning?"}])";
  const auto body = post("/v1/chat/completions", request + "}").json();
  EXPECT_EQ(body.at("object").as_string(), "chat.completion");
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content").as_string(), "Hi there");
  EXPECT_EQ(fake_.last_prompt,
            (std::vector<int32_t>{2, 307, 204, 394, 296, 1350, 1039, 36, 3, 204, 2, 309, 204}));

  const auto all = events(post("/v1/chat/completions", request + R"(, "stream": true})").body);
  ASSERT_GE(all.size(), 4u);
  EXPECT_EQ(all[0].at("choices").at(0).at("delta").at("role").as_string(), "assistant");
  EXPECT_EQ(all.back().as_string(), "[DONE]");
  std::string text;
  for (size_t i = 1; i + 2 < all.size(); ++i) {
    text += std::string_view(all[i].at("choices").at(0).at("delta").at("content").as_string());
  }
  EXPECT_EQ(text, "Hi there");
  const auto& last = all[all.size() - 2].at("choices").at(0);
  EXPECT_EQ(last.at("finish_reason").as_string(), "stop");
}

TEST_F(ServerTest, SeveralChoicesEachWithItsIndex) {
  say("one two three");
  const auto body = post("/v1/completions", R"({"prompt": ["x", "y"], "n": 2})").json();
  const auto& choices = body.at("choices").as_array();
  ASSERT_EQ(choices.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(choices[i].at("index").as_int64(), static_cast<int64_t>(i));
    // The fake's second sequence starts one token later.
    EXPECT_EQ(choices[i].at("text").as_string(), i % 2 == 0 ? "one two three" : " two three") << i;
    EXPECT_EQ(choices[i].at("finish_reason").as_string(), "stop");
  }
  const auto count = static_cast<int64_t>(ids("one two three").size());
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 4 * (count + 1) - 2);
  const auto once = static_cast<int64_t>(ids("x").size() + ids("y").size());
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), once);

  const Reply r = post("/v1/chat/completions",
                       R"({"messages": [{"role": "user", "content": "x"}], "n": 2,
                           "stream": true, "stream_options": {"include_usage": true}})");
  std::string texts[2], reasons[2];
  int roles[2] = {0, 0};
  for (const json::value& event : events(r.body)) {
    if (event.is_string()) continue;
    for (const json::value& c : event.at("choices").as_array()) {
      const auto i = static_cast<size_t>(c.at("index").as_int64());
      ASSERT_LT(i, 2u);
      const json::object& delta = c.at("delta").as_object();
      roles[i] += delta.contains("role");
      if (delta.contains("content")) texts[i] += std::string_view(delta.at("content").as_string());
      if (c.at("finish_reason").is_string()) reasons[i] += c.at("finish_reason").as_string();
    }
  }
  EXPECT_EQ(texts[0], "one two three");
  EXPECT_EQ(texts[1], " two three");
  for (int i : {0, 1}) EXPECT_EQ(reasons[i] + std::to_string(roles[i]), "stop1");
}

TEST_F(ServerTest, LogProbsInBothShapes) {
  say("one two");
  const auto whole = post("/v1/completions", R"({"prompt": "x", "logprobs": 2})").json();
  const json::object& scores = whole.at("choices").at(0).at("logprobs").as_object();
  const auto tokens = ids("one two");
  ASSERT_EQ(scores.at("tokens").as_array().size(), tokens.size());
  EXPECT_EQ(scores.at("tokens").at(0).as_string(), "one");
  EXPECT_EQ(scores.at("token_logprobs").at(1).as_double(), -1.0);
  EXPECT_EQ(scores.at("text_offset").at(0).as_int64(), 0);
  EXPECT_EQ(scores.at("text_offset").at(1).as_int64(), 3);
  EXPECT_EQ(scores.at("top_logprobs").at(0).as_object().size(), 3u);  // two and the generated one
  EXPECT_EQ(scores.at("top_logprobs")
                .at(1)
                .at(std::string(scores.at("tokens").at(1).as_string()))
                .as_double(),
            -1.0);

  const std::string body = R"({"messages": [{"role": "user", "content": "x"}], "logprobs": true,
                               "top_logprobs": 1, "stream": )";
  const auto chat = post("/v1/chat/completions", body + "false}").json();
  const json::array& content = chat.at("choices").at(0).at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), tokens.size());
  EXPECT_EQ(content[0].at("token").as_string(), "one");
  EXPECT_EQ(content[0].at("bytes").at(1).as_int64(), 'n');
  EXPECT_EQ(content[1].at("logprob").as_double(), -1.0);
  EXPECT_EQ(content[1].at("top_logprobs").at(0).at("logprob").as_double(), -0.5);
  json::array streamed;
  for (const json::value& event : events(post("/v1/chat/completions", body + "true}").body)) {
    if (event.is_string()) continue;
    const json::value& part = event.at("choices").at(0).at("logprobs");
    if (part.is_null()) continue;
    for (const json::value& entry : part.at("content").as_array()) streamed.push_back(entry);
  }
  EXPECT_EQ(streamed, content);
  const auto without = post("/v1/completions", R"({"prompt": "x"})").json();
  EXPECT_TRUE(without.at("choices").at(0).at("logprobs").is_null());
}

TEST_F(ServerTest, OptionsTravelAsTensors) {
  say("one");
  const auto value = [&]<class T>(const char* name, T) {
    const std::string& bytes = fake_.last_bytes[name];
    EXPECT_EQ(bytes.size(), sizeof(T)) << name;
    T out{};
    if (bytes.size() == sizeof(T)) std::memcpy(&out, bytes.data(), sizeof(T));
    return out;
  };
  EXPECT_EQ(post("/v1/completions",
                 R"({"prompt": [5, 6, 7], "presence_penalty": 0.5, "frequency_penalty": -1,
                     "repetition_penalty": 1.5, "logit_bias": {"9": -100}, "priority": 0.75,
                     "bad_words": ["one"]})")
                .status,
            200);
  EXPECT_EQ(value("presence_penalty", 0.0f), 0.5f);
  EXPECT_EQ(value("frequency_penalty", 0.0f), -1.0f);
  EXPECT_EQ(value("repetition_penalty", 0.0f), 1.5f);
  EXPECT_EQ(value("prompt_ignore_length", 0), 3);  // OpenAI counts the output only
  EXPECT_EQ(value("temperature_last", uint8_t{0}), 1);
  EXPECT_EQ(value("logit_bias_ids", 0), 9);
  EXPECT_EQ(value("logit_bias_values", 0.0f), -100.0f);
  EXPECT_EQ(value("priority", 0.0f), 0.75f);
  EXPECT_GT(fake_.last_bytes["bad_words_list"].size(), 0u);
  EXPECT_FALSE(fake_.last_bytes.contains("num_return_sequences"));
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "x", "n": 2, "stop": ["zz"]})").status, 200);
  EXPECT_EQ(value("num_return_sequences", 0), 2);
  EXPECT_EQ(fake_.last_bytes["stop_strings"], std::string("\2\0\0\0zz", 6));
  const Reply refused = post("/v1/completions", R"({"prompt": "x", "min_p": 0.5})");
  EXPECT_EQ(refused.status, 501) << refused.body;  // the fake has no such input
  EXPECT_NE(refused.body.find("min_p"), std::string::npos);
}

TEST_F(ServerTest, BeamsComeAsChoices) {
  say("one two three", false);
  const auto body =
      post("/v1/completions", R"({"prompt": "x", "use_beam_search": true, "n": 2, "best_of": 4})")
          .json();
  ASSERT_EQ(body.at("choices").as_array().size(), 2u);
  EXPECT_EQ(body.at("choices").at(0).at("text").as_string(), "one two three");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "length");
  EXPECT_EQ(body.at("choices").at(1).at("text").as_string(), " two three");
  EXPECT_EQ(body.at("choices").at(1).at("finish_reason").as_string(), "stop");
  EXPECT_EQ(fake_.last_bytes["beam_width"], std::string("\4\0\0\0", 4));
  EXPECT_EQ(fake_.last_bytes["streaming"], std::string(1, '\0'));
}

TEST_F(ServerTest, ChatToolCalls) {
  fake_.max_seq_len = 1024;
  say("Let me see.<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 2.5}}</tool_call>");
  const std::string request = R"({"messages": [{"role": "user", "content": "x"}],
      "tools": [{"type": "function", "function": {"name": "f"}}])";
  const auto choice = post("/v1/chat/completions", request + "}").json().at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason").as_string(), "tool_calls");
  EXPECT_EQ(choice.at("message").at("content").as_string(), "Let me see.");
  const auto& call = choice.at("message").at("tool_calls").at(0).at("function");
  EXPECT_EQ(call.at("name").as_string(), "f");
  EXPECT_EQ(call.at("arguments").as_string(), R"({"x":2.5})");
  // The template puts the tools into the prompt.
  EXPECT_GT(fake_.last_prompt.size(), 40u);

  const auto all = events(post("/v1/chat/completions", request + R"(, "stream": true})").body);
  ASSERT_GE(all.size(), 4u);
  const auto& streamed = all[all.size() - 3].at("choices").at(0).at("delta").at("tool_calls");
  EXPECT_EQ(streamed.at(0).at("index").as_int64(), 0);
  EXPECT_EQ(streamed.at(0).at("function").at("arguments").as_string(), R"({"x":2.5})");
  EXPECT_EQ(all[all.size() - 2].at("choices").at(0).at("finish_reason").as_string(), "tool_calls");
}

// Configurations of other versions lack inputs: a neutral value is omitted, any other is refused.
TEST_F(ServerTest, InputsThatAModelLacksAreLeftOutOrRefusedByName) {
  say("one");
  fake_.lacked_inputs = {"prompt_ignore_length", "num_return_sequences", "early_stopping",
                         "priority"};
  const auto asked = [&](const std::string& more) {
    const Reply reply = post("/v1/completions", R"({"prompt": [5, 6, 7], )" + more + "}");
    for (const std::string& input : fake_.lacked_inputs)
      EXPECT_EQ(fake_.last_inputs.find(input), std::string::npos) << more;
    return reply;
  };
  EXPECT_EQ(asked(R"("presence_penalty": 0.5)").status, 200);
  EXPECT_EQ(asked(R"("frequency_penalty": 0.5, "prompt_ignore_length": 0)").status, 200);
  EXPECT_EQ(asked(R"("use_beam_search": true, "best_of": 2, "n": 2)").status, 200);
  EXPECT_EQ(asked(R"("priority": 0.5)").status, 200);
  for (const auto& [more, input] :
       {std::pair{R"("presence_penalty": 0.5, "prompt_ignore_length": 2)", "prompt_ignore_length"},
        std::pair{R"("use_beam_search": true, "best_of": 2)", "num_return_sequences"},
        std::pair{R"("use_beam_search": true, "best_of": 2, "n": 2, "early_stopping": false)",
                  "early_stopping"},
        std::pair{R"("n": 2)", "num_return_sequences"},
        std::pair{R"("priority": 1)", "priority"}}) {
    const Reply refused = asked(more);
    EXPECT_EQ(refused.status, 501) << more;
    EXPECT_NE(refused.body.find("the option needs the input '" + std::string(input) + "', which"),
              std::string::npos)
        << refused.body;
  }
}

TEST_F(ServerTest, OpenAiErrors) {
  const Reply bad = post("/v1/completions", "{\n\"prompt\": }");
  EXPECT_EQ(bad.status, 400);
  EXPECT_NE(bad.body.find("line 2"), std::string::npos) << bad.body;
  const Reply type = post("/v1/completions", R"({"prompt": "x", "max_tokens": "many"})");
  EXPECT_EQ(type.status, 400);
  EXPECT_EQ(type.json().at("error").at("param").as_string(), "max_tokens");
  EXPECT_EQ(type.json().at("code").as_int64(), 400);
  const Reply model = post("/v1/completions", R"({"model": "gpt", "prompt": "x"})");
  EXPECT_EQ(model.status, 404);
  EXPECT_EQ(model.json().at("error").at("code").as_string(), "model_not_found");
  const Reply wide = post("/v1/completions", R"({"prompt": "x", "max_tokens": 64})");
  EXPECT_EQ(wide.status, 400);
  EXPECT_NE(wide.body.find("64 tokens"), std::string::npos);
  const Reply vocab = post("/v1/completions", R"({"prompt": [5000]})");
  EXPECT_EQ(vocab.status, 400);
  EXPECT_NE(vocab.body.find("5000"), std::string::npos);
  const Reply big = post("/v1/completions", std::string(200000, ' '));
  EXPECT_EQ(big.status, 413);
  EXPECT_NE(big.body.find("\"message\""), std::string::npos);
  fake_.queue_full = true;
  const Reply full = post("/v1/completions", R"({"prompt": "x"})");
  EXPECT_EQ(full.status, 503);
  EXPECT_NE(full.head.find("Retry-After: 1"), std::string::npos);
}

TEST_F(ServerTest, EngineFailureBeforeAndInMidStream) {
  say("a b c d", false);
  fake_.fail_after = 0;
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "x", "stream": true})").status, 500);
  fake_.fail_after = 2;
  const Reply r = post("/v1/completions", R"({"prompt": "x", "stream": true})");
  EXPECT_EQ(r.status, 200);
  const auto all = events(r.body);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[2].at("error").at("message").as_string(), "engine failed");
  EXPECT_EQ(all[3].as_string(), "[DONE]");
}

TEST_F(ServerTest, DisconnectCancels) {
  say("a b c", false);
  fake_.max_tokens_now = 2;
  for (const std::string body :
       {R"({"prompt": "x", "stream": true})", R"({"prompt": ["x", "y"]})"}) {
    const int before = fake_.num_cancelled;
    const int fd = connect_to(port_);
    const std::string text = request_text("POST", "/v1/completions", body);
    send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(eventually([&] { return fake_.num_live > 0; }));
    close(fd);
    EXPECT_TRUE(eventually([&] { return fake_.num_cancelled > before && fake_.num_live == 0; }));
  }
}

TEST_F(ServerTest, MetricsPage) {
  const Reply r = ask(server_->metrics_port(), "GET", "/metrics");
  EXPECT_EQ(r.status, 200);
  for (const char* name : {"nv_fake 1", "process_resident_memory_bytes ", "process_open_fds ",
                           "nereid_http_responses_total{code=\"2xx\"}"}) {
    EXPECT_NE(r.body.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(ask(server_->metrics_port(), "GET", "/v2").status, 404);
  const std::string here = ask(port_, "GET", "/metrics").body;
  EXPECT_NE(here.find("nereid_http_responses_total{code=\"2xx\"}"), here.npos);
  EXPECT_NE(here.find("nv_fake 1"), here.npos);
}

}  // namespace
}  // namespace nereid::front
