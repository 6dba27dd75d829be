// Every configuration field: refusals with their messages, acceptance at the ends of legal ranges.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "runtime/requests/request_check.h"

namespace nereid::runtime {
namespace {

using ::testing::StartsWith;

void expect(const char* text, const std::function<void(ExecutorConfig&)>& set) {
  ExecutorConfig c;
  set(c);
  const Status status = check_config(c);
  if (!text) {
    EXPECT_TRUE(status.ok()) << status;
    return;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
  EXPECT_THAT(std::string(message(status)), StartsWith(text));
}

TEST(ConfigCheck, Limits) {
  expect(nullptr, [](auto&) {});
  expect("num_threads: -1", [](auto& c) { c.num_threads = -1; });
  expect("memory_bytes: -1", [](auto& c) { c.memory_bytes = -1; });
  expect("max_batch_size: 0", [](auto& c) { c.max_batch_size = 0; });
  expect("max_beam_width: 17 is not in [1, 16]", [](auto& c) { c.max_beam_width = 17; });
  expect("max_beam_width: 4 is more than max_batch_size 3", [](auto& c) {
    c.max_beam_width = 4;
    c.max_batch_size = 3;
  });
  expect("max_num_tokens: 0", [](auto& c) { c.max_num_tokens = 0; });
  expect("max_num_tokens: 3 is less than max_beam_width 4", [](auto& c) {
    c.max_beam_width = 4;
    c.max_num_tokens = 3;
  });
  expect("max_queue_size: 0", [](auto& c) { c.max_queue_size = 0; });
  expect("device_timeout_secs: -1", [](auto& c) { c.device_timeout_secs = -1; });
  expect("device_timeout_secs: 86401", [](auto& c) { c.device_timeout_secs = 86401; });
  expect("max_sequence_length: -1", [](auto& c) { c.max_sequence_length = -1; });
  expect("max_logits_bytes: -1", [](auto& c) { c.max_logits_bytes = -1; });
}

TEST(ConfigCheck, Speculation) {
  expect(
      "speculation: 'ahead' is not one of none, ngram, draft_model, medusa, redrafter, eagle, mtp, "
      "lookahead, "
      "auto",
      [](auto& c) { c.speculation = "ahead"; });
  const auto lookahead = [](const char* text, const LookaheadConfig& config) {
    expect(text, [&](auto& c) { c.speculation = "lookahead", c.lookahead = config; });
  };
  lookahead(nullptr, {});
  lookahead(nullptr, {1, 1, 0});
  lookahead(nullptr, {16, 5, 0});
  lookahead(nullptr, {1, 64, 0});
  lookahead("lookahead.window_size: 0 is not in [1, 64]", {0, 3, 4});
  lookahead("lookahead.ngram_size: 0 is not in [1, 64]", {4, 0, 4});
  lookahead("lookahead.verification_set_size: -1 is not in [0, 64]", {4, 3, -1});
  lookahead("lookahead.ngram_size: 1 is allowed with a window of 1 and a", {4, 1, 0});
  lookahead("lookahead: a window of 16, n-grams of 5 and a verification set of 1 make 67 drafts",
            {16, 5, 1});
  expect("draft_model: 'x' is not used by speculation lookahead",
         [](auto& c) { c.speculation = "lookahead", c.draft_model = "x"; });
  expect("ngram_pool_size: -1 is not in [0, 67108864]", [](auto& c) { c.ngram_pool_size = -1; });
  expect("typical_acceptance: 1.5 is not in [0, 1]", [](auto& c) { c.typical_acceptance = 1.5f; });
  expect("typical_acceptance: nan is not in", [](auto& c) { c.typical_acceptance = NAN; });
}

TEST(ConfigCheck, SchedulerAndStatistics) {
  expect("iter_stats_max_iterations: -1", [](auto& c) { c.iter_stats_max_iterations = -1; });
  expect("request_stats_max_iterations: -1", [](auto& c) { c.request_stats_max_iterations = -1; });
  expect("scheduler.capacity_policy: 9",
         [](auto& c) { c.scheduler.capacity_policy = static_cast<CapacityPolicy>(9); });
  expect("scheduler.pause_policy: swap needs kv_cache.host_cache_bytes",
         [](auto& c) { c.scheduler.pause_policy = PausePolicy::kSwap; });
  expect("scheduler.pause_policy: swap needs kv_cache.enable_block_reuse", [](auto& c) {
    c.scheduler.pause_policy = PausePolicy::kSwap;
    c.kv_cache.enable_block_reuse = false;
  });
}

TEST(ConfigCheck, KvCache) {
  expect("kv_cache.max_tokens: 0", [](auto& c) { c.kv_cache.max_tokens = 0; });
  expect("kv_cache.memory_fraction: 0 is not in (0, 1]",
         [](auto& c) { c.kv_cache.memory_fraction = 0.0; });
  expect("kv_cache.memory_fraction: 1.5", [](auto& c) { c.kv_cache.memory_fraction = 1.5; });
  expect("kv_cache.tokens_per_block: 20 is not one of 16, 32, 64, 128",
         [](auto& c) { c.kv_cache.tokens_per_block = 20; });
  expect("kv_cache.max_attention_window: -1",
         [](auto& c) { c.kv_cache.max_attention_window = -1; });
  expect("kv_cache.sink_token_length: -1", [](auto& c) { c.kv_cache.sink_token_length = -1; });
  expect("kv_cache.host_cache_bytes: -1", [](auto& c) { c.kv_cache.host_cache_bytes = -1; });
  expect("kv_cache.offload_min_priority: 101",
         [](auto& c) { c.kv_cache.offload_min_priority = 101; });
  expect("kv_cache.event_buffer_size: -1", [](auto& c) { c.kv_cache.event_buffer_size = -1; });
}

TEST(ConfigCheck, AdapterCache) {
  bool enable_lora = false;
  const auto refusal = [&](std::function<void(PeftCacheConfig&)> set) {
    ExecutorConfig c;
    c.enable_lora = enable_lora;
    set(c.peft_cache);
    return std::string(message(check_config(c)));
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](auto& c) { c.optimal_adapter_size = 16; }),
            "peft_cache.optimal_adapter_size: 16 is not allowed, only 8 is without enable_lora");
  EXPECT_EQ(refusal([](auto& c) { c.max_adapter_size = 77; }),
            "peft_cache.max_adapter_size: 77 is not allowed, only 64 is without enable_lora");
  EXPECT_THAT(refusal([](auto& c) { c.num_host_module_layers = 77; }),
              StartsWith("peft_cache.num_host_module_layers: 77 is not"));
  EXPECT_THAT(refusal([](auto& c) { c.num_device_module_layers = 77; }),
              StartsWith("peft_cache.num_device_module_layers: 77 is not"));
  EXPECT_THAT(refusal([](auto& c) { c.num_put_workers = 77; }),
              StartsWith("peft_cache.num_put_workers: 77 is not"));
  EXPECT_THAT(refusal([](auto& c) { c.num_ensure_workers = 77; }),
              StartsWith("peft_cache.num_ensure_workers: 77 is not"));
  EXPECT_THAT(refusal([](auto& c) { c.num_copy_streams = 77; }),
              StartsWith("peft_cache.num_copy_streams: 77 is not"));
  EXPECT_THAT(refusal([](auto& c) { c.max_pages_per_block_host = 77; }),
              StartsWith("peft_cache.max_pages_per_block_host: 77 is not"));
  EXPECT_THAT(refusal([](auto& c) { c.max_pages_per_block_device = 77; }),
              StartsWith("peft_cache.max_pages_per_block_device: 77 is not"));
  EXPECT_THAT(refusal([](auto& c) { c.host_cache_bytes = 77; }),
              StartsWith("peft_cache.host_cache_bytes: 77 is not"));
  EXPECT_THAT(refusal([](auto& c) { c.device_cache_fraction = 0.5; }),
              StartsWith("peft_cache.device_cache_fraction: 0.5 is not allowed, only 0.05"));
  EXPECT_THAT(refusal([](auto& c) { c.prefetch_dir = "/a"; }),
              StartsWith("peft_cache.prefetch_dir: /a is not"));
  enable_lora = true;
  EXPECT_EQ(refusal([](auto& c) { c.max_adapter_size = 77; }), "");
  EXPECT_EQ(refusal([](auto& c) { c.optimal_adapter_size = 16; }), "");
  EXPECT_EQ(refusal([](auto& c) { c.optimal_adapter_size = 0; }),
            "peft_cache.optimal_adapter_size: 0 is not in [1, 512]");
  EXPECT_EQ(refusal([](auto& c) { c.prefetch_dir = "/a"; }), "");
  EXPECT_EQ(refusal([](auto& c) { c.max_adapter_size = 513; }),
            "peft_cache.max_adapter_size: 513 is not in [1, 512]");
  EXPECT_EQ(refusal([](auto& c) { c.device_cache_fraction = 1; }),
            "peft_cache.device_cache_fraction: 1 is not in (0, 1)");
  EXPECT_EQ(refusal([](auto& c) { c.host_cache_bytes = 0; }),
            "peft_cache.host_cache_bytes: 0 is not in [1, 1125899906842624]");
  ExecutorConfig without;
  without.lora_directories = {{1, "/a"}};
  EXPECT_EQ(message(check_config(without)), "lora_directories: 1 of them without enable_lora");
}

}  // namespace
}  // namespace nereid::runtime
