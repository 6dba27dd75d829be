// OpenAI's endpoints over real sockets and a scripted core.
#include "front/server_fixture.h"

namespace nereid::front {
namespace {

json::object usage_of(const json::value& body) { return body.at("usage").as_object(); }

// What the engine counts reaches every reply: two prompts, or two sequences of one.
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

}  // namespace
}  // namespace nereid::front
