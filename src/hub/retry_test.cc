#include "hub/retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::hub {
namespace {

using ::testing::HasSubstr;

HubSettings quick() {
  HubSettings settings;
  settings.first_wait = std::chrono::milliseconds(1);
  settings.attempts = 3;
  return settings;
}

TEST(Retry, BoundedUnlessThereIsProgress) {
  const std::atomic<bool> is_cancelled = false;
  Shared shared{quick(), is_cancelled};
  int calls = 0;
  const Status failed = repeat(shared, [&] { return ++calls, Attempt{unavailable("x"), true}; });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(message(failed), "after 3 attempts: x");
  calls = 0;
  const Status worked = repeat(shared, [&]() -> Attempt {
    if (++calls == 10) return {ok()};
    return {unavailable("x"), true, {}, true};
  });
  EXPECT_TRUE(worked.ok());
  calls = 0;
  EXPECT_TRUE(absl::IsNotFound(repeat(shared, [&] { return ++calls, Attempt{not_found("x")}; })));
  EXPECT_EQ(calls, 1);
}

TEST(Retry, WaitsAsTheHubAsksButNotForever) {
  const std::atomic<bool> is_cancelled = false;
  Shared shared{quick(), is_cancelled};
  const Status status = repeat(shared, [] {
    return Attempt{unavailable("x"), true, std::chrono::seconds(3600)};
  });
  EXPECT_EQ(message(status), "x; it asks to wait for 1:00:00, which is longer than 2:00");
  EXPECT_EQ(retry_after("7", shared.settings), std::chrono::seconds(7));
  EXPECT_EQ(retry_after("Wed, 21 Oct 2026 07:28:00 GMT", shared.settings),
            std::chrono::seconds(120));
  EXPECT_EQ(retry_after("", shared.settings), std::nullopt);
}

TEST(Retry, StopsWhileItWaits) {
  std::atomic<bool> is_cancelled = false;
  HubSettings settings = quick();
  settings.first_wait = std::chrono::hours(1);
  Shared shared{settings, is_cancelled};
  const Status status = repeat(shared, [&] {
    shared.has_failed = true;
    return Attempt{unavailable("x"), true};
  });
  EXPECT_TRUE(absl::IsCancelled(status));
}

TEST(Retry, WhatAnswersMean) {
  HubSettings settings;
  const auto text = [&](Reply reply) {
    return std::string(message(judge(reply, settings, "a/b").status));
  };
  EXPECT_THAT(text({.status = 401}), HasSubstr("set HF_TOKEN"));
  EXPECT_THAT(text({.status = 403, .error_code = "GatedRepo"}), HasSubstr("accept its terms"));
  EXPECT_THAT(text({.status = 404, .error_code = "RevisionNotFound"}),
              HasSubstr("no such revision"));
  EXPECT_THAT(text({.status = 404, .body = R"({"error": "Repository \u001b[2J not found"})"}),
              HasSubstr("the hub: Repository \\x1b[2J not found"));
  EXPECT_THAT(text({.status = 429}), HasSubstr("with a token (HF_TOKEN) more are allowed"));
  settings.token = "t";
  settings.token_source = "HF_TOKEN";
  EXPECT_THAT(text({.status = 401}), HasSubstr("the token of HF_TOKEN is invalid"));
  EXPECT_THAT(text({.status = 403}), HasSubstr("the token of HF_TOKEN has no access"));
  EXPECT_TRUE(judge({.status = 503}, settings, "a/b").may_repeat);
  EXPECT_TRUE(judge({.status = 429}, settings, "a/b").may_repeat);
  EXPECT_FALSE(judge({.status = 404}, settings, "a/b").may_repeat);
  EXPECT_FALSE(judge({.status = 418}, settings, "a/b").may_repeat);
}

}  // namespace
}  // namespace nereid::hub
