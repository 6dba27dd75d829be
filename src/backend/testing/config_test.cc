// Parameters of the tensorrt_llm model: supported ones have an effect, others
// fail the load by name.
#include <tuple>

#include "backend/testing/backend_fixture.h"
#include "base/testing/source_dir.h"

namespace nereid::backend {
namespace {

const std::string kMedusaFolder = source_dir() + "/models/quickstart-medusa";
const std::string kEagleFolder = source_dir() + "/models/quickstart-eagle";

using Values = std::map<std::string, std::string>;

class ConfigTest : public BackendTest {
 protected:
  static void SetUpTestSuite() {}
  static void TearDownTestSuite() {}

  // The error of a load with these parameters; empty when it works and a request is answered.
  static std::string outcome(const Values& values) {
    const Status status = try_to_start(server_, dir_, values);
    std::string text(message(status));
    if (status.ok()) {
      const auto got = ask("ensemble", kPrompt, 8);
      text = std::string(message(got.status));
      if (got.joined().size() <= std::string_view(kPrompt).size()) text += "no text";
    }
    stop(server_, dir_);
    return text;
  }
};

TEST_F(ConfigTest, EveryOptionOfTheRuntimeCanBeSet) {
  const Values cases[] = {
      {{"batching_strategy", "V1"}},
      {{"batching_strategy", "inflight_batching"}, {"batch_scheduler_policy", "max_utilization"}},
      {{"batch_scheduler_policy", "guaranteed_no_evict"},
       {"context_chunking_policy", "equal_progress"}},
      {{"kv_cache_type", "int8"}, {"tokens_per_block", "64"}},
      {{"kv_cache_type", "bf16"}},
      {{"kv_cache_host_memory_bytes", "8388608"}, {"pause_policy", "swap"}},
      {{"max_attention_window_size", "64,64,"}, {"sink_token_length", "4"}},
      {{"max_beam_width", "2"}, {"decoding_mode", "beam_search"}},
      {{"decoding_mode", "medusa"}, {"draft_model", kMedusaFolder}},
      {{"decoding_mode", "medusa"}, {"draft_model", kMedusaFolder}, {"speculation", "auto"}},
      {{"decoding_mode", "eagle"}, {"draft_model", kEagleFolder}, {"eagle_choices", "{0}, {1}"}},
      {{"decoding_mode", "eagle"},
       {"draft_model", kEagleFolder},
       {"eagle_tree_top_k", "3"},
       {"eagle_tree_depth", "4"}},
      {{"decoding_mode", "lookahead"},
       {"lookahead_window_size", "4"},
       {"lookahead_ngram_size", "3"},
       {"lookahead_verification_set_size", "4"}},
      {{"speculation", "lookahead"}, {"lookahead_ngram_size", "2"}},
      {{"enable_chunked_context", "false"},
       {"enable_overlap", "False"},
       {"enable_jump_ahead", "False"},
       {"speculation", "auto"},
       {"ngram_pool_size", "4096"},
       {"typical_acceptance", "0.09"},
       {"exit_on_device_failure", "true"},
       {"device_timeout_secs", "30"},
       {"deterministic", "true"}},
      {{"max_tokens_in_paged_kv_cache", ""}, {"kv_cache_free_gpu_mem_fraction", "0.01"}},
      {{"kv_cache_free_gpu_mem_fraction", "1.0"}},
      {{"kv_cache_free_gpu_mem_fraction", "0"}},
      {{"normalize_log_probs", "false"}, {"request_stats_max_iterations", "10"}},
      {{"multi_block_mode", "true"}, {"lora_cache_max_adapter_size", "64"}, {"num_nodes", "1"}},
  };
  for (const Values& values : cases) {
    EXPECT_EQ(outcome(values), "") << values.begin()->first << "=" << values.begin()->second;
  }
}

TEST_F(ConfigTest, WrongOnesAreNamed) {
  const std::pair<Values, const char*> cases[] = {
      {{{"batching_strategy", "INVALID"}}, "Invalid gpt_model_type"},
      {{{"batch_scheduler_policy", "sometimes"}}, "batch_scheduler_policy"},
      {{{"max_beam_width", "17"}}, "max_beam_width"},
      {{{"max_beam_width", "2"}, {"decoding_mode", "top_k"}}, "decoding_mode"},
      {{{"decoding_mode", "redrafter"}}, "speculation: redrafter needs draft_model"},
      {{{"decoding_mode", "lookahead"}}, "lookahead parameters are not specified"},
      {{{"decoding_mode", "lookahead"},
        {"lookahead_window_size", "16"},
        {"lookahead_ngram_size", "5"},
        {"lookahead_verification_set_size", "8"}},
       "make 95 drafts a step; at most 64 are allowed"},
      {{{"lookahead_ngram_size", "5"}}, "which needs decoding_mode or speculation lookahead"},
      {{{"decoding_mode", "medusa"}},
       "speculation: medusa needs draft_model, the heads' directory"},
      {{{"decoding_mode", "medusa"}, {"draft_model", kMedusaFolder}, {"max_beam_width", "2"}},
       "'medusa' but 'max_beam_width' is 2"},
      {{{"decoding_mode", "medusa"}, {"draft_model", kMedusaFolder}, {"speculation", "ngram"}},
       "allowed beside it are medusa and auto"},
      {{{"kv_cache_free_gpu_mem_fraction", "1.5"}}, "kv_cache_free_gpu_mem_fraction"},
      {{{"max_attention_window_size", "64,128"}}, "max_attention_window_size"},
      {{{"max_attention_window_size", "wide"}}, "max_attention_window_size"},
      {{{"tokens_per_block", "48"}}, "tokens_per_block"},
      {{{"kv_cache_type", "int4"}}, "kv_cache_type"},
      {{{"pause_policy", "swap"}}, "host_cache_bytes"},
      {{{"speculation", "ahead"}}, "speculation"},
      {{{"speculation", "draft_model"}}, "speculation: draft_model needs draft_model"},
      {{{"max_draft_len", "33"}}, "max_draft_len"},
      {{{"gpu_weights_percent", "0.5"}}, "gpu_weights_percent"},
      {{{"gpu_device_ids", "0,1"}},
       "'0,1': 2 GPUs in '0,1'; tensor_parallel * pipeline_parallel are 1"},
      {{{"gpu_device_ids", "0,1;2"}, {"tensor_parallel", "2"}}, "1 GPUs in '2'"},
      {{{"gpu_device_ids", "0,"}, {"tensor_parallel", "2"}}, "numbers of GPUs"},
      {{{"tensor_parallel", "65"}}, "tensor_parallel"},
      {{{"tensor_parallel", "4"}, {"expert_parallel", "3"}}, "expert_parallel: 3 does not divide"},
      {{{"devices", "cuda:3-1"}}, "devices: '3-1'"},
      {{{"eagle_choices", "{0}"}}, "eagle_choices: '{0}' needs draft_model"},
      {{{"eagle_tree_top_k", "33"}}, "eagle_tree_top_k"},
      {{{"medusa_choices", "{0}"}}, "needs draft_model"},
      {{{"lora_cache_optimal_adapter_size", "16"}}, "peft_cache.optimal_adapter_size: 16"},
      {{{"lora_cache_max_adapter_size", "32"}}, "peft_cache.max_adapter_size: 32"},
      {{{"lora_cache_gpu_memory_fraction", "0.1"}}, "peft_cache.device_cache_fraction: 0.1"},
      {{{"lora_cache_host_memory_bytes", "4096"}}, "peft_cache.host_cache_bytes: 4096"},
      {{{"lora_prefetch_dir", "/adapters"}}, "peft_cache.prefetch_dir: /adapters"},
      {{{"num_nodes", "2"}}, "num_nodes"},
      {{{"logits_datatype", "TYPE_BF16"}}, "context_logits"},
  };
  for (const auto& [values, text] : cases) {
    EXPECT_THAT(outcome(values), HasSubstr(text)) << values.begin()->second;
  }
}

TEST_F(ConfigTest, TypesOfTextModelsThatCannotBeMadeAreNamed) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"preprocessing", "\"INPUT_ID\" data_type: TYPE_INT32", "\"INPUT_ID\" data_type: TYPE_INT16"},
      {"preprocessing", "\"EMBEDDING_BIAS\" data_type: TYPE_FP32",
       "\"EMBEDDING_BIAS\" data_type: TYPE_FP16"},
      {"postprocessing", "\"OUTPUT\" data_type: TYPE_STRING", "\"OUTPUT\" data_type: TYPE_UINT8"}};
  for (const auto& [model, from, to] : cases) {
    const Status status = try_to_start(server_, dir_, {}, [&](const fs::path& dir) {
      for (const char* other : {"ensemble", "tensorrt_llm", "tensorrt_llm_bls"}) {
        fs::remove_all(dir / other);
      }
      edit_config(dir / model, from, to);
    });
    const std::string_view type = std::string_view(to).substr(std::string_view(to).rfind('_') + 1);
    EXPECT_THAT(std::string(message(status)),
                HasSubstr(fmt::format("has type {}, expected", type)));
    stop(server_, dir_);
  }
}

}  // namespace
}  // namespace nereid::backend
