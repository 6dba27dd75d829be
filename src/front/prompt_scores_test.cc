// Log-probabilities of prompts over real sockets and a scripted core: shapes, streams, bounds.
#include "front/testing/server_fixture.h"

namespace nereid::front {
namespace {

TEST_F(ServerTest, AnEchoHasTheLogProbsOfThePrompt) {
  say("one two");
  const auto prompt = ids("Hä, a prompt"), answer = ids("one two");
  ASSERT_GE(prompt.size(), 4u);
  const auto whole =
      post("/v1/completions", R"({"prompt": "Hä, a prompt", "echo": true, "logprobs": 2})").json();
  const json::object& choice = whole.at("choices").at(0).as_object();
  EXPECT_EQ(choice.at("text").as_string(), "Hä, a promptone two");
  EXPECT_FALSE(choice.contains("prompt_logprobs"));
  const json::object& scores = choice.at("logprobs").as_object();
  ASSERT_EQ(scores.at("tokens").as_array().size(), prompt.size() + answer.size());
  EXPECT_TRUE(scores.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(scores.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(scores.at("token_logprobs").at(2).as_double(), -20.0);
  EXPECT_EQ(scores.at("top_logprobs").at(2).as_object().size(), 3u);
  EXPECT_EQ(scores.at("token_logprobs").at(prompt.size() + 1).as_double(), -1.0);
  EXPECT_EQ(scores.at("text_offset").at(0).as_int64(), 0);
  EXPECT_EQ(scores.at("tokens").at(0).as_string(), "H");
  EXPECT_EQ(scores.at("text_offset").at(1).as_int64(), 1);
  EXPECT_EQ(scores.at("text_offset").at(prompt.size()).as_int64(), 12) << "characters, not bytes";
  EXPECT_EQ(scores.at("text_offset").at(prompt.size() + 1).as_int64(), 15);

  // A stream in which the core's last sequence comes first: each one's output
  // comes after the prompt.
  json::object joined[3];
  std::string texts[3];
  for (const json::value& event :
       events(post("/v1/completions", R"({"prompt": "Hä, a prompt", "echo": true, "logprobs": 2,
                                          "n": 3, "stream": true})")
                  .body)) {
    if (event.is_string()) continue;
    const json::object& c = event.at("choices").at(0).as_object();
    const auto i = static_cast<size_t>(c.at("index").as_int64());
    texts[i] += std::string_view(c.at("text").as_string());
    for (const auto& member : c.at("logprobs").as_object()) {
      json::value& list = joined[i].emplace(member.key(), json::array()).first->value();
      for (const json::value& entry : member.value().as_array()) list.as_array().push_back(entry);
    }
  }
  EXPECT_EQ(joined[0], scores);
  EXPECT_EQ(texts[0], "Hä, a promptone two");
  EXPECT_EQ(texts[1], "Hä, a prompt two");
  EXPECT_TRUE(joined[2].at("token_logprobs").at(0).is_null());
}

TEST_F(ServerTest, PromptLogProbsByTheirIds) {
  say("one");
  const auto prompt = ids("Hello there");
  const auto whole = post("/v1/completions",
                          R"({"prompt": "Hello there", "prompt_logprobs": 1, "echo": true,
                              "logprobs": 3})")
                         .json();
  const json::object& choice = whole.at("choices").at(0).as_object();
  const json::array& scores = choice.at("prompt_logprobs").as_array();
  ASSERT_EQ(scores.size(), prompt.size());
  EXPECT_TRUE(scores[0].is_null());
  const json::object& second = scores[1].as_object();
  ASSERT_EQ(second.size(), 2u) << "itself and the likeliest";
  const json::object& own = second.at(std::to_string(prompt[1])).as_object();
  EXPECT_EQ(own.at("logprob").as_double(), -10.0);
  EXPECT_EQ(own.at("rank").as_int64(), 1);
  EXPECT_EQ(second.at("5").at("logprob").as_double(), -0.5);
  EXPECT_EQ(choice.at("logprobs").at("top_logprobs").at(1).as_object().size(), 4u);

  const auto chat = post("/v1/chat/completions",
                         R"({"messages": [{"role": "user", "content": "x"}],
                             "prompt_logprobs": 0})")
                        .json();
  EXPECT_TRUE(chat.at("prompt_logprobs").at(0).is_null());
  EXPECT_EQ(chat.at("prompt_logprobs").at(1).as_object().size(), 1u);
  EXPECT_EQ(static_cast<int64_t>(chat.at("prompt_logprobs").as_array().size()),
            chat.at("usage").at("prompt_tokens").as_int64());
}

TEST_F(ServerTest, NoTokensAreAPromptAlone) {
  say("one two");
  const auto whole = post("/v1/completions",
                          R"({"prompt": ["Hello there", "x"], "echo": true, "logprobs": 0,
                              "max_tokens": 0})")
                         .json();
  const json::object& choice = whole.at("choices").at(0).as_object();
  EXPECT_EQ(choice.at("text").as_string(), "Hello there");
  EXPECT_EQ(choice.at("finish_reason").as_string(), "length");
  EXPECT_EQ(choice.at("logprobs").at("tokens").as_array().size(), ids("Hello there").size());
  EXPECT_EQ(whole.at("choices").at(1).at("text").as_string(), "x");
  EXPECT_EQ(whole.at("usage").at("completion_tokens").as_int64(), 0);
}

TEST_F(ServerTest, PromptLogProbsHaveBounds) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"prompt": "x", "max_tokens": 0})", "max_tokens"},
      {R"({"prompt": "x", "prompt_logprobs": 21})", "prompt_logprobs"},
      {R"({"prompt": "x", "prompt_logprobs": -1})", "prompt_logprobs"},
      {R"({"prompt": "x", "prompt_logprobs": 1, "stream": true})", "prompt_logprobs"},
  };
  for (const auto& [body, param] : cases) {
    const Reply r = post("/v1/completions", body);
    EXPECT_EQ(r.status, 400) << body;
    EXPECT_EQ(r.json().at("error").at("param").as_string(), param) << body;
  }
  // 128 prompts of 60 tokens with 21 entries each.
  json::array prompts;
  for (int i = 0; i < 128; ++i) prompts.push_back(json::array(60, json::value(7)));
  const Reply r = post("/v1/completions",
                       json::serialize(json::object{{"prompt", prompts}, {"prompt_logprobs", 20}}));
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(r.json().at("error").at("message").as_string(),
            "'prompt_logprobs': 21 entries for each of 7680 prompt tokens are more than the "
            "131072 that are allowed");
}

}  // namespace
}  // namespace nereid::front
