#include "cli/triton/openai_frontend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string frontend_error(std::vector<std::string> more) {
  more.insert(more.begin(), {"--model-repository", "/tmp"});
  const auto plan = plan_openai_frontend(more);
  return plan.ok() ? "accepted" : std::string(message(plan.status()));
}

TEST(OpenAiFrontend, FlagsBecomeAServer) {
  const auto plan = plan_openai_frontend({"--model-repository", "/tmp"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const TritonOptions& alone = plan->options;
  EXPECT_EQ(alone.http.http_port, 9000);
  EXPECT_EQ(alone.http.host, "0.0.0.0");
  EXPECT_FALSE(alone.allow_grpc || alone.allow_metrics || alone.http.allow_kserve);
  EXPECT_EQ(alone.kserve_http_port, -1);
  EXPECT_EQ(alone.http.openai.tool_parser, "none");
  EXPECT_TRUE(alone.http.openai.fastapi_errors && alone.http.openai.strict_fields);
  EXPECT_EQ(alone.http.openai.default_max_tokens, 16);
  EXPECT_TRUE(alone.http.openai.web_page);

  const auto all = plan_openai_frontend({"--model-repository=/tmp",
                                         "--host",
                                         "127.0.0.1",
                                         "--openai-port",
                                         "0",
                                         "--tool-call-parser",
                                         "llama3",
                                         "--enable-kserve-frontends",
                                         "--kserve-grpc-port",
                                         "8101",
                                         "--kserve-http-port",
                                         "8100",
                                         "--model-control-mode",
                                         "explicit",
                                         "--load-model",
                                         "a",
                                         "b",
                                         "--openai-restricted-api",
                                         "inference,metrics",
                                         "admin-key",
                                         "secret",
                                         "--no-ui",
                                         "--uvicorn-log-level",
                                         "debug"});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_TRUE(all->options.allow_grpc);
  EXPECT_FALSE(all->options.http.openai.web_page);
  EXPECT_EQ(all->options.grpc.port, 8101);
  EXPECT_EQ(all->options.grpc.host, "127.0.0.1");
  EXPECT_EQ(all->options.kserve_http_port, 8100);
  EXPECT_EQ(all->options.http.openai.tool_parser, "llama3_json");
  EXPECT_THAT(all->options.load_models, ElementsAre("a", "b"));
  ASSERT_EQ(all->options.http.restrictions.size(), 1u);
  EXPECT_THAT(all->options.http.restrictions[0].apis, ElementsAre("inference", "statistics"));
  EXPECT_EQ(all->options.http.restrictions[0].value, "secret");
  EXPECT_THAT(all->ignored, ElementsAre("--uvicorn-log-level"));
}

TEST(OpenAiFrontend, FaultsAreNamed) {
  const auto missing = plan_openai_frontend({});
  EXPECT_THAT(std::string(message(missing.status())), HasSubstr("--model-repository"));
  for (const auto& [flag, value] :
       {std::pair{"--backend", "vllm"}, std::pair{"--lora-separator", "_"},
        std::pair{"--chat-template", "x.jinja"}, std::pair{"--tokenizer", "some/model"},
        std::pair{"--default-max-tokens", "0"}, std::pair{"--model-control-mode", "poll"},
        std::pair{"--openai-restricted-api", "inference"}})
    EXPECT_THAT(frontend_error({flag, value}), HasSubstr(flag));
  EXPECT_THAT(frontend_error({"--openai-restricted-api", "embedding", "k", "v"}),
              HasSubstr("embedding"));
  EXPECT_THAT(frontend_error({"--enable-kserve-frontends", "--kserve-http-port", "70000"}),
              HasSubstr("--kserve-http-port"));
}

}  // namespace
}  // namespace nereid::cli
