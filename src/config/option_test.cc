// Options: values from text and back, refusals, and what each place makes of the declarations.
#include "config/option.h"

#include <gmock/gmock.h>

#include <set>
#include <tuple>

#include "config/engine_options.h"

namespace nereid::config {
namespace {

using testing::HasSubstr;

class OptionTest : public testing::Test {
 protected:
  const Option& option(std::string_view name) const { return *find(options_, name); }
  std::string refusal(std::string_view name, std::string_view text) {
    return std::string(message(parse(option(name), text)));
  }
  std::string range_error(std::string_view name) {
    return std::string(message(check(option(name))));
  }

  ExecutorConfig config_;
  const Options options_ = engine_options(config_);
};

TEST_F(OptionTest, ValuesComeFromText) {
  for (const auto& [name, text] :
       {std::pair("num_threads", "4"), std::pair("memory_bytes", "1099511627776"),
        std::pair("typical_acceptance", "0.25"), std::pair("enable_overlap", "false"),
        std::pair("device", "cuda:1"), std::pair("draft_model", "/d"),
        std::pair("kv_cache.max_tokens", "77"), std::pair("kv_cache.memory_fraction", "0.5"),
        std::pair("kv_cache.type", "fp8"), std::pair("kv_cache.tokens_per_block", "64"),
        std::pair("forced_kernels", "a:b,c:d"), std::pair("speculation", "ngram")}) {
    EXPECT_EQ(refusal(name, text), "") << name;
    EXPECT_EQ(text_of(option(name)), text) << name;
  }
  EXPECT_EQ(config_.num_threads, 4);
  EXPECT_EQ(config_.memory_bytes, int64_t{1} << 40);
  EXPECT_EQ(config_.typical_acceptance, 0.25f);
  EXPECT_FALSE(config_.enable_overlap);
  EXPECT_EQ(config_.kv_cache.max_tokens, 77);
  EXPECT_EQ(config_.kv_cache.memory_fraction, 0.5);
  EXPECT_EQ(config_.kv_cache.type, KvCacheType::kFp8);
  EXPECT_EQ(config_.kv_cache.tokens_per_block, 64);
  EXPECT_THAT(config_.forced_kernels, testing::ElementsAre("a:b", "c:d"));
}

TEST_F(OptionTest, WrongTextChangesNothing) {
  EXPECT_EQ(refusal("num_threads", "1025"), "expected an integer from 0 to 1024");
  EXPECT_EQ(refusal("num_threads", "4x"), "expected an integer from 0 to 1024");
  EXPECT_EQ(refusal("num_threads", ""), "expected an integer from 0 to 1024");
  EXPECT_EQ(refusal("typical_acceptance", "nan"), "expected a number from 0 to 1");
  EXPECT_EQ(refusal("enable_overlap", "maybe"), "expected true or false");
  EXPECT_EQ(refusal("scheduler.pause_policy", "sleep"), "expected one of recompute, swap");
  EXPECT_EQ(refusal("kv_cache.tokens_per_block", "48"), "expected one of 16, 32, 64, 128");
  EXPECT_THAT(refusal("weights", "int3"), HasSubstr("expected one of auto, bf16"));
  const ExecutorConfig fresh;
  EXPECT_EQ(config_.num_threads, fresh.num_threads);
  EXPECT_EQ(config_.kv_cache.tokens_per_block, fresh.kv_cache.tokens_per_block);
  EXPECT_EQ(config_.weights, fresh.weights);
}

TEST_F(OptionTest, ZeroIsTheDefaultWhereItIsDeclaredSo) {
  for (const char* name :
       {"max_queue_size", "max_batch_size", "kv_cache.max_tokens", "kv_cache.memory_fraction"}) {
    const std::string before = text_of(option(name));
    EXPECT_EQ(refusal(name, "0"), "") << name;
    EXPECT_EQ(text_of(option(name)), before) << name;
  }
  EXPECT_EQ(config_.max_queue_size, 1024);
  EXPECT_FALSE(config_.kv_cache.max_tokens);
  EXPECT_EQ(refusal("max_prefill_ms", "0"), "");
  EXPECT_EQ(text_of(option("max_prefill_ms")), "0") << "not declared so";
  config_.max_sequence_length = 0;
  EXPECT_EQ(text_of(option("max_sequence_length")), "");
}

TEST_F(OptionTest, RangesAreChecked) {
  EXPECT_TRUE(check(options_).ok());
  config_.max_batch_size = 0;
  EXPECT_EQ(range_error("max_batch_size"), "max_batch_size: 0 is not in [1, 4096]");
  config_.kv_cache.memory_fraction = 0.0;
  EXPECT_EQ(range_error("kv_cache.memory_fraction"),
            "kv_cache.memory_fraction: 0 is not in (0, 1]");
  config_.peft_cache.device_cache_fraction = 1;
  EXPECT_EQ(range_error("peft_cache.device_cache_fraction"),
            "peft_cache.device_cache_fraction: 1 is not in (0, 1)");
  config_.scheduler.capacity_policy = static_cast<CapacityPolicy>(9);
  EXPECT_EQ(range_error("scheduler.capacity_policy"),
            "scheduler.capacity_policy: 9 is not one of max_utilization, guaranteed_no_evict, "
            "static_batch");
  config_.speculation = "ahead";
  EXPECT_THAT(range_error("speculation"), HasSubstr("speculation: 'ahead' is not one of none"));
  EXPECT_FALSE(check(options_).ok());
}

// Declarations: properties that every reader of options relies on.
TEST_F(OptionTest, DeclarationsAreWhole) {
  std::set<std::string> names, flags, keys, variables;
  for (const Option& option : options_) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_NE(std::string_view(option.help), "") << option.name;
    EXPECT_NE(std::string_view(option.group), "") << option.name;
    const std::string key = option.parameter, variable = environment_of(option);
    EXPECT_TRUE(key.empty() || keys.insert(key).second) << key;
    EXPECT_TRUE(variable.empty() || variables.insert(variable).second) << variable;
    if (!*option.flag) continue;
    EXPECT_THAT(option.flag, testing::StartsWith("--"));
    EXPECT_TRUE(flags.insert(std::string(first_flag(option))).second) << option.flag;
    EXPECT_NE(std::string_view(option.parameter), "") << option.flag << " reaches no server";
  }
  EXPECT_EQ(environment_of(option("max_batch_size")), "NEREID_MAX_BATCH_SIZE");
  EXPECT_EQ(environment_of(option("max_sequence_length")), "NEREID_MAX_SEQ_LEN");
  EXPECT_EQ(environment_of(option("kv_cache.event_buffer_size")), "");
}

TEST_F(OptionTest, FlagsAndKeysAreNamesUnlessDeclared) {
  EXPECT_STREQ(option("process_mode").flag, "--process-mode");
  EXPECT_STREQ(option("process_mode").parameter, "process_mode");
  EXPECT_STREQ(option("tensor_parallel").flag, "--tp");
  EXPECT_STREQ(option("kv_cache.type").parameter, "kv_cache_type");
  EXPECT_STREQ(option("kv_cache.event_buffer_size").flag, "");
  Options own;
  int32_t value = 0;
  add_group(own, "g", {{.name = "a_b", .field = field(value), .help = "h"}});
  EXPECT_STREQ(own[0].flag, "--a-b");
  EXPECT_STREQ(own[0].parameter, "");
}

TEST_F(OptionTest, ActionsTakeTextAndKeepNothing) {
  std::string seen;
  const Option act = {.name = "a",
                      .field = Action([&](const Option& option, const std::string& text) {
                        seen += option.name + text;
                        return text == "bad" ? invalid_argument("no") : ok();
                      }),
                      .help = "h"};
  EXPECT_TRUE(parse(act, "x").ok());
  EXPECT_EQ(parse(act, "bad").message(), "no");
  EXPECT_EQ(seen, "axabad");
  EXPECT_EQ(text_of(act), "");
  EXPECT_TRUE(check(act).ok());
  EXPECT_TRUE(to_json({act}).empty());
}

TEST_F(OptionTest, WordsOfEnumsAreTheirNames) {
  const std::tuple<const char*, const char*, size_t> values[] = {
      {"scheduler.capacity_policy", "static_batch",
       static_cast<size_t>(CapacityPolicy::kStaticBatch)},
      {"scheduler.chunking_policy", "equal_progress",
       static_cast<size_t>(ChunkingPolicy::kEqualProgress)},
      {"scheduler.pause_policy", "swap", static_cast<size_t>(PausePolicy::kSwap)},
      {"kv_cache.type", "bf16", static_cast<size_t>(KvCacheType::kBf16)}};
  for (const auto& [name, last, index] : values) {
    const std::vector<std::string> words = words_of(option(name));
    EXPECT_EQ(words.size(), index + 1) << name;
    EXPECT_EQ(words.back(), last) << name;
  }
}

TEST_F(OptionTest, NamesInHelpAreThoseOfThePlace) {
  const char* text = "above `max_batch_size`, as `nereid inspect` says";
  EXPECT_EQ(refer(text, options_, &Option::flag), "above --max-batch-size, as nereid inspect says");
  EXPECT_EQ(refer(text, options_, &Option::parameter),
            "above max_num_sequences, as nereid inspect says");
  EXPECT_EQ(refer("`max_sequence_length`", options_, &Option::flag), "--max-seq-len");
  EXPECT_EQ(refer("`open", options_, &Option::flag), "`open");
}

TEST_F(OptionTest, JsonHasEveryValue) {
  config_.kv_cache.max_tokens = 9;
  config_.forced_kernels = {"a:b"};
  const json::object out = to_json(options_);
  EXPECT_EQ(out.at("num_threads").as_int64(), 0);
  EXPECT_EQ(out.at("kv_cache").at("max_tokens").as_int64(), 9);
  EXPECT_TRUE(out.at("kv_cache").at("memory_fraction").is_null());
  EXPECT_EQ(out.at("scheduler").at("pause_policy").as_string(), "recompute");
  EXPECT_EQ(out.at("forced_kernels").as_array().size(), 1u);
  EXPECT_EQ(out.at("lookahead").as_object().size(), 3u);
}

}  // namespace
}  // namespace nereid::config
