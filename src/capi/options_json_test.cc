// Options as JSON: every field arrives, any other member is refused by name.
#include "capi/options_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "config/engine_options.h"

namespace nereid::capi {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string refusal_of_request(std::string_view text) {
  const auto request = parse_request(text);
  EXPECT_TRUE(absl::IsInvalidArgument(request.status())) << text;
  return std::string(message(request.status()));
}

TEST(OptionsJson, ReadsRequests) {
  const auto r = parse_request(R"({"max_tokens": 5, "streaming": true, "priority": 0.75,
      "sampling": {"top_k": 3, "seed": 18446744073709551615, "temperature": 1, "best_of": null,
                   "order": "temperature_last"},
      "output": {"log_probs_mode": "raw", "num_top_log_probs": 2},
      "end_ids": [1, 2], "bad_words": [[3], [4, 5]], "stop_strings": ["a", "b"],
      "prompt_table": {"values": [1, -0.5, 1.00390625, 0], "width": 2, "extra_ids": [0, 9]},
      "pictures": [{"first_token": 1, "num_tokens": 2, "height": 1, "width": 2,
                    "patches": [1, -0.5]}],
      "logit_bias": [[7, -1.5]], "allotted_time": 250, "client_id": 9, "tenant": 8,
      "cache_salt": "s",
      "kv_cache_retention": {"token_ranges": [{"token_start": 4, "priority": 90,
                                               "duration": 1000}], "decode_priority": 10}})");
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->max_tokens, 5);
  EXPECT_TRUE(r->streaming);
  EXPECT_EQ(r->priority, 0.75f);
  EXPECT_EQ(r->sampling.top_k, 3);
  EXPECT_EQ(r->sampling.seed, 18446744073709551615u);
  EXPECT_EQ(r->sampling.temperature, 1.0f);
  EXPECT_FALSE(r->sampling.best_of);
  EXPECT_EQ(r->sampling.order, SamplingOrder::kTemperatureLast);
  EXPECT_EQ(r->output.log_probs_mode, LogProbsMode::kRaw);
  EXPECT_EQ(r->output.num_top_log_probs, 2);
  EXPECT_THAT(r->end_ids, ElementsAre(1, 2));
  EXPECT_THAT(r->bad_words, ElementsAre(ElementsAre(3), ElementsAre(4, 5)));
  EXPECT_THAT(r->stop_strings, ElementsAre("a", "b"));
  EXPECT_THAT(r->logit_bias, ElementsAre(Pair(7, -1.5f)));
  EXPECT_EQ(r->allotted_time, milliseconds(250));
  EXPECT_EQ(r->client_id, 9u);
  EXPECT_EQ(r->tenant, 8u);
  EXPECT_EQ(r->cache_salt, "s");
  ASSERT_TRUE(r->prompt_table);
  EXPECT_THAT(r->prompt_table->values, ElementsAre(0x3f80, 0xbf00, 0x3f80, 0));
  EXPECT_EQ(r->prompt_table->width, 2);
  EXPECT_THAT(r->prompt_table->extra_ids, ElementsAre(0, 9));
  ASSERT_EQ(r->pictures.size(), 1u);
  EXPECT_THAT(r->pictures[0].patches, ElementsAre(0x3f80, 0xbf00));
  EXPECT_EQ(r->pictures[0].num_tokens, 2);
  ASSERT_EQ(r->kv_cache_retention->token_ranges.size(), 1u);
  EXPECT_EQ(r->kv_cache_retention->token_ranges[0].duration, milliseconds(1000));
  EXPECT_EQ(r->kv_cache_retention->decode_priority, 10);
}

TEST(OptionsJson, ReadsGuides) {
  const std::pair<const char*, GuideType> types[] = {{"json", GuideType::kJson},
                                                     {"json_schema", GuideType::kJsonSchema},
                                                     {"regex", GuideType::kRegex},
                                                     {"ebnf_grammar", GuideType::kEbnfGrammar},
                                                     {"structural_tag", GuideType::kStructuralTag}};
  for (const auto& [name, type] : types) {
    const auto r = parse_request(
        fmt::format(R"({{"guided_decoding": {{"type": "{}", "guide": "{{\"a\""}}}})", name));
    ASSERT_TRUE(r.ok()) << r.status();
    ASSERT_TRUE(r->guided_decoding);
    EXPECT_EQ(r->guided_decoding->type, type);
    EXPECT_EQ(r->guided_decoding->guide, R"({"a")");
  }
  EXPECT_FALSE(parse_request("{}")->guided_decoding);
  const auto reasons = parse_request(
      R"({"reasoning": {"open": "<a>", "close": "</a>", "begun": true, "max_tokens": 5}})");
  ASSERT_TRUE(reasons.ok() && reasons->reasoning);
  EXPECT_EQ(reasons->reasoning->open, "<a>");
  EXPECT_EQ(reasons->reasoning->close, "</a>");
  EXPECT_TRUE(reasons->reasoning->begun);
  EXPECT_EQ(reasons->reasoning->max_tokens, 5);
}

TEST(OptionsJson, ReadsConfigs) {
  const auto c = parse_config(R"({"device": "cuda:1", "max_batch_size": 7,
      "scheduler": {"capacity_policy": "static_batch", "pause_policy": "swap"},
      "kv_cache": {"type": "fp8", "memory_fraction": 0.5, "host_cache_bytes": 1099511627776},
      "peft_cache": {"optimal_adapter_size": 16, "device_cache_fraction": 0.25,
                     "prefetch_dir": "/l"},
      "draft_model": "/d", "max_draft_len": 5, "typical_acceptance": 0.25,
      "ngram_pool_size": 9, "device_timeout_secs": 7,
      "lookahead": {"window_size": 6, "ngram_size": 2},
      "deterministic": true, "forced_kernels": ["linear:ref"], "cache_dir": "/x"})");
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->device, "cuda:1");
  EXPECT_EQ(c->max_batch_size, 7);
  EXPECT_EQ(c->scheduler.capacity_policy, CapacityPolicy::kStaticBatch);
  EXPECT_EQ(c->scheduler.pause_policy, PausePolicy::kSwap);
  EXPECT_EQ(c->kv_cache.type, KvCacheType::kFp8);
  EXPECT_EQ(c->kv_cache.memory_fraction, 0.5);
  EXPECT_EQ(c->kv_cache.host_cache_bytes, int64_t{1} << 40);
  EXPECT_EQ(c->peft_cache.optimal_adapter_size, 16);
  EXPECT_EQ(c->peft_cache.device_cache_fraction, 0.25);
  EXPECT_EQ(c->peft_cache.prefetch_dir, "/l");
  EXPECT_EQ(c->peft_cache.host_cache_bytes, int64_t{1} << 30);
  EXPECT_EQ(c->draft_model, "/d");
  EXPECT_EQ(c->max_draft_len, 5);
  EXPECT_EQ(c->typical_acceptance, 0.25f);
  EXPECT_EQ(c->ngram_pool_size, 9);
  EXPECT_EQ(c->device_timeout_secs, 7);
  EXPECT_EQ(c->lookahead.window_size, 6);
  EXPECT_EQ(c->lookahead.ngram_size, 2);
  EXPECT_EQ(c->lookahead.verification_set_size, 4);
  EXPECT_TRUE(c->deterministic);
  EXPECT_THAT(c->forced_kernels, ElementsAre("linear:ref"));
  EXPECT_EQ(c->cache_dir, "/x");
}

TEST(OptionsJson, WhatIsPrintedIsReadBack) {
  ExecutorConfig config;
  const config::Options options = config::engine_options(config);
  config.device = "cuda:1";
  config.scheduler.pause_policy = PausePolicy::kSwap;
  config.kv_cache.max_tokens = 9;
  config.typical_acceptance = 0.25f;
  config.forced_kernels = {"linear:ref"};
  config.peft_cache.prefetch_dir = "/l";
  config.enable_overlap = false;
  const json::object printed = config::to_json(options);
  StatusOr<ExecutorConfig> read = parse_config(json::serialize(printed));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(config::to_json(config::engine_options(*read)), printed);
}

TEST(OptionsJson, CacheTypesHaveTheWordsOfTheFlag) {
  for (const auto& [word, type] : {std::pair("auto", KvCacheType::kAuto),
                                   {"int8", KvCacheType::kInt8},
                                   {"fp8", KvCacheType::kFp8},
                                   {"bf16", KvCacheType::kBf16}}) {
    const auto c = parse_config(fmt::format(R"({{"kv_cache": {{"type": "{}"}}}})", word));
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_EQ(c->kv_cache.type, type);
  }
}

TEST(OptionsJson, RefusesByName) {
  EXPECT_THAT(refusal_of_request("[]"), HasSubstr("the document: not an object"));
  EXPECT_THAT(refusal_of_request("{"), HasSubstr("line 1"));
  EXPECT_THAT(refusal_of_request(R"({"max_token": 5})"),
              HasSubstr("max_token: no such field; there are max_tokens, streaming"));
  EXPECT_THAT(refusal_of_request(R"({"sampling": {"topk": 5}})"), HasSubstr("sampling.topk: no"));
  EXPECT_THAT(refusal_of_request(R"({"sampling": 5})"), HasSubstr("sampling: not an object"));
  EXPECT_THAT(refusal_of_request(R"({"sampling": {"top_k": 1.5}})"),
              HasSubstr("sampling.top_k: not an integer in [-2147483648, 2147483647]"));
  EXPECT_THAT(refusal_of_request(R"({"max_tokens": 3000000000})"), HasSubstr("max_tokens: not an"));
  EXPECT_THAT(refusal_of_request(R"({"max_tokens": null})"), HasSubstr("max_tokens: not an"));
  EXPECT_THAT(refusal_of_request(R"({"streaming": 1})"), HasSubstr("streaming: not true or false"));
  EXPECT_THAT(refusal_of_request(R"({"bad_words": [[1], ["x"]]})"), HasSubstr("bad_words[1][0]:"));
  EXPECT_THAT(refusal_of_request(R"({"logit_bias": [[1]]})"),
              HasSubstr("logit_bias[0]: not an array of two"));
  EXPECT_THAT(refusal_of_request(R"({"output": {"log_probs_mode": "x"}})"),
              HasSubstr("output.log_probs_mode: not one of 'processed', 'raw'"));
  EXPECT_THAT(refusal_of_request(R"({"guided_decoding": {"type": "yaml"}})"),
              HasSubstr("guided_decoding.type: not one of 'json', 'json_schema', 'regex', "
                        "'ebnf_grammar', 'structural_tag'"));
  EXPECT_THAT(refusal_of_request(R"({"guided_decoding": {"guide": {}}})"),
              HasSubstr("guided_decoding.guide: not a"));
  EXPECT_THAT(refusal_of_request(R"({"kv_cache_retention": {"token_ranges": [{"x": 1}]}})"),
              HasSubstr("kv_cache_retention.token_ranges[0].x: no such field"));
}

TEST(OptionsJson, PrintsEvents) {
  KvCacheEvent e{.event_id = 3, .kind = KvCacheEvent::Kind::kStored};
  e.block_hashes = {18446744073709551615u};
  e.tokens = {1, 2};
  EXPECT_EQ(to_json(e), R"({"event_id":3,"kind":"stored","block_hashes":[18446744073709551615],)"
                        R"("parent_hash":null,"tokens":[1,2],"level":0,"priority":0})");
}

}  // namespace
}  // namespace nereid::capi
