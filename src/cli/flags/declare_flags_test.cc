// Command lines that are made of declarations: values, refusals, environment, help.
#include "cli/flags/declare_flags.h"

#include <gmock/gmock.h>

#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Option.hpp>
#include <algorithm>
#include <cstdlib>
#include <set>

#include "cli/commands/serve_options.h"
#include "config/engine_options.h"

namespace nereid::cli {
namespace {

using testing::HasSubstr;

class DeclareFlagsTest : public testing::Test {
 protected:
  // The error in the command line, "" = none.
  std::string parse(std::vector<std::string> words) {
    config_ = config::served_defaults();
    CLI::App app;
    declare_flags(app, config::engine_options(config_));
    help_ = app.help();
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    try {
      app.parse(words);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

  ExecutorConfig config_;
  std::string help_;
};

TEST(DeclareFlags, ActionsAreCalledForEachValue) {
  std::vector<std::string> seen;
  config::Options options;
  add_group(options, "Group",
            {{.name = "act",
              .field = config::Action([&](const config::Option&, const std::string& value) {
                seen.push_back(value);
                return value == "bad" ? invalid_argument("is bad") : ok();
              }),
              .help = "help"}});
  CLI::App app;
  declare_flags(app, options);
  app.parse("--act=a --act=b");
  EXPECT_THAT(seen, testing::ElementsAre("a", "b"));
  EXPECT_THROW(app.parse("--act=bad"), CLI::ValidationError);
}

TEST_F(DeclareFlagsTest, EveryKindOfValueArrives) {
  ASSERT_EQ(parse({"--max-batch-size=7", "--memory", "2G", "--typical-acceptance=0.25",
                   "--no-overlap", "--deterministic", "--scheduler-policy", "static_batch",
                   "--speculation=ngram", "--kv-cache-tokens=99", "--kv-cache-fraction=0.5",
                   "--tokens-per-block=64", "--cache-dir=/x", "--kernel", "a:b", "--kernel", "c:d",
                   "--max-model-len=50", "--no-kv-cache-reuse"}),
            "");
  EXPECT_EQ(config_.max_batch_size, 7);
  EXPECT_EQ(config_.memory_bytes, int64_t{2} << 30);
  EXPECT_EQ(config_.typical_acceptance, 0.25f);
  EXPECT_FALSE(config_.enable_overlap);
  EXPECT_FALSE(config_.kv_cache.enable_block_reuse);
  EXPECT_TRUE(config_.deterministic);
  EXPECT_EQ(config_.scheduler.capacity_policy, CapacityPolicy::kStaticBatch);
  EXPECT_EQ(config_.speculation, "ngram");
  EXPECT_EQ(config_.kv_cache.max_tokens, 99);
  EXPECT_EQ(config_.kv_cache.memory_fraction, 0.5);
  EXPECT_EQ(config_.kv_cache.tokens_per_block, 64);
  EXPECT_EQ(config_.cache_dir, "/x");
  EXPECT_THAT(config_.forced_kernels, testing::ElementsAre("a:b", "c:d"));
  EXPECT_EQ(config_.max_sequence_length, 50);
  ASSERT_EQ(parse({}), "");
  EXPECT_TRUE(config_.enable_overlap);
  EXPECT_EQ(config_.max_batch_size, 0);
}

TEST_F(DeclareFlagsTest, ZeroLeavesTheDefault) {
  ASSERT_EQ(parse({"--max-queue-size=0", "--kv-cache-tokens=0", "--kv-cache-fraction=0"}), "");
  EXPECT_EQ(config_.max_queue_size, 1024);
  EXPECT_FALSE(config_.kv_cache.max_tokens);
  EXPECT_FALSE(config_.kv_cache.memory_fraction);
  EXPECT_FALSE(config_.max_prefill_ms);
  ASSERT_EQ(parse({"--max-prefill-ms=0"}), "");
  EXPECT_EQ(config_.max_prefill_ms, 0) << "a value, not the default";
}

TEST_F(DeclareFlagsTest, WrongValuesAreRefusedByName) {
  for (const auto& [flag, value] :
       {std::pair("--max-beam-width", "17"), std::pair("--eagle-tree-top-k", "33"),
        std::pair("--typical-acceptance", "1.5"), std::pair("--tokens-per-block", "48"),
        std::pair("--pause-policy", "sleep"), std::pair("--weights", "int3"),
        std::pair("--device", "gpu"), std::pair("--draft-model", "/nowhere/at/all"),
        std::pair("--memory", "much"), std::pair("--threads", "4x")}) {
    EXPECT_THAT(parse({flag, value}), HasSubstr(flag)) << value;
  }
}

TEST_F(DeclareFlagsTest, TheEnvironmentCountsLessThanTheCommandLine) {
  ::setenv("NEREID_MAX_BATCH_SIZE", "9", 1);
  ::setenv("NEREID_NO_OVERLAP", "true", 1);
  ASSERT_EQ(parse({}), "");
  EXPECT_EQ(config_.max_batch_size, 9);
  EXPECT_FALSE(config_.enable_overlap);
  ASSERT_EQ(parse({"--max-batch-size", "3"}), "");
  EXPECT_EQ(config_.max_batch_size, 3);
  ::setenv("NEREID_MAX_BATCH_SIZE", "many", 1);
  EXPECT_NE(parse({}), "");
  ::unsetenv("NEREID_MAX_BATCH_SIZE");
  ::unsetenv("NEREID_NO_OVERLAP");
}

TEST_F(DeclareFlagsTest, HelpHasGroupsDefaultsAndFlagsForNames) {
  ASSERT_EQ(parse({}), "");
  EXPECT_THAT(help_, HasSubstr("\nSpeculative decoding:\n"));
  EXPECT_THAT(help_, HasSubstr("--eagle-tree-top-k N (0 to 32) [0]"));
  EXPECT_THAT(help_, HasSubstr("depth of the tree of --eagle-tree-top-k"));
  EXPECT_THAT(help_, HasSubstr("[auto with --draft-model, else none]"));
  EXPECT_THAT(help_, HasSubstr("turns off: the host's work"));
  EXPECT_EQ(help_.find('`'), std::string::npos);
  EXPECT_EQ(help_.find("Env:"), std::string::npos);
}

TEST(ServerOptions, DeclarationsAreWholeAndSecretsAreNotPrinted) {
  ServeOptions server;
  server.process.api_keys = {"secret"};
  server.process.admin_keys = {"secret"};
  server.access.http_groups = {"health:a=secret"};
  server.access.grpc_groups = {"health:a=secret"};
  const config::Options options = server_options(server);
  std::set<std::string> variables;
  for (const config::Option& option : options) {
    EXPECT_NE(std::string_view(option.help), "") << option.name;
    EXPECT_TRUE(variables.insert(config::environment_of(option)).second) << option.name;
  }
  EXPECT_FALSE(variables.contains(""));
  EXPECT_FALSE(variables.contains("NEREID_PORT"));  // Kubernetes sets it for a service "nereid"
  ExecutorConfig engine;
  for (const config::Option& option : config::engine_options(engine))
    EXPECT_FALSE(variables.contains(config::environment_of(option)) && *option.flag) << option.name;
  EXPECT_EQ(json::serialize(config::to_json(options)).find("secret"), std::string::npos);
}

}  // namespace
}  // namespace nereid::cli
