// trtllm-serve's command line and YAML files.
#include "cli/tools/trtllm_serve.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "base/scratch_dir.h"

namespace nereid::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;

class TrtllmServe : public ::testing::Test {
 protected:
  // A YAML file with that text.
  std::string file(const std::string& text) {
    const auto path = scratch_->path() / "options.yaml";
    EXPECT_TRUE(write_file_atomic(path, text).ok());
    return path.string();
  }
  Words words(Words arguments) {
    arguments.push_back(model_);
    const auto plan = plan_trtllm_serve(arguments);
    if (!plan.ok()) return {std::string(message(plan.status()))};
    return plan->words;
  }
  std::string refusal(Words arguments) {
    const auto plan = words(std::move(arguments));
    return plan.size() == 1 ? plan[0] : "accepted";
  }

  StatusOr<ScratchDir> scratch_ = ScratchDir::create();
  const std::string model_ = scratch_->path().string();
};

TEST_F(TrtllmServe, FlagsBecomeThoseOfServe) {
  const Words plain = words({});
  EXPECT_EQ(plain[0], model_);
  for (const char* word :
       {"--host=127.0.0.1", "--http-port=8000", "--metrics-port=-1", "--grpc-port=-1",
        "--any-model-name", "--scheduler-policy=guaranteed_no_evict"})
    EXPECT_THAT(plain, Contains(word));
  EXPECT_THAT(plain, Not(Contains(HasSubstr("max-batch-size"))));

  const Words given = words({"serve", "--host", "0.0.0.0", "--port=1234", "--max_batch_size", "8",
                             "--kv_cache_free_gpu_memory_fraction", "0.5", "--log_level", "verbose",
                             "--served_model_name", "tiny", "--generation-config", "auto"});
  for (const char* word :
       {"--generation-config=auto", "--host=0.0.0.0", "--http-port=1234", "--max-batch-size=8",
        "--kv-cache-fraction=0.5", "--log-level=debug", "--served-model-name=tiny"})
    EXPECT_THAT(given, Contains(word));
}

TEST_F(TrtllmServe, FormatsHaveOurNames) {
  const Words plain = words({});
  EXPECT_THAT(plain, Contains("--tool-call-parser=none"));
  EXPECT_THAT(plain, Contains("--reasoning-parser=none"));
  const Words named = words({"--tool_parser", "qwen3", "--reasoning_parser", "deepseek-r1"});
  EXPECT_THAT(named, Contains("--tool-call-parser=hermes"));
  EXPECT_THAT(named, Contains("--reasoning-parser=deepseek_r1"));
}

TEST_F(TrtllmServe, LaterSourcesWin) {
  const std::string yaml = file("max_batch_size: 4\nmax_num_tokens: 512\nmax_seq_len: 100\n");
  const Words all = words({"--set", "max_seq_len=64", "--max_num_tokens", "256", "--kv_cache_dtype",
                           "bf16", "--extra_llm_api_options", yaml});
  for (const char* word :
       {"--max-batch-size=4", "--max-num-tokens=256", "--max-seq-len=64", "--kv-cache-type=bf16"})
    EXPECT_THAT(all, Contains(word));
}

TEST_F(TrtllmServe, OptionsOfTheFile) {
  const Words all = words({"--config", file("kv_cache_config:\n"
                                            "  enable_block_reuse: false\n"
                                            "  max_attention_window: [64, 64]\n"
                                            "  dtype: fp8\n"
                                            "scheduler_config: {capacity_scheduler_policy: "
                                            "MAX_UTILIZATION}\n"
                                            "speculative_config: {decoding_type: NGram, "
                                            "max_draft_len: 4}\n"
                                            "cuda_graph_config: {enable_padding: true}\n"
                                            "enable_chunked_prefill: true\n"
                                            "revision: null\n"
                                            "disable_overlap_scheduler: true\n")});
  for (const char* word : {"--no-kv-cache-reuse", "--attention-window=64", "--kv-cache-type=fp8",
                           "--scheduler-policy=max_utilization", "--speculation=ngram",
                           "--max-draft-len=4", "--no-overlap"})
    EXPECT_THAT(all, Contains(word));
}

TEST_F(TrtllmServe, WithoutTheWebPage) {
  EXPECT_THAT(words({"--no_ui"}), Contains("--no-ui"));
  EXPECT_THAT(words({}), Not(Contains("--no-ui")));
}

TEST_F(TrtllmServe, KindsOfSpeculation) {
  const Words eagle3 =
      words({"--config", file("speculative_config: {decoding_type: Eagle3, "
                              "use_dynamic_tree: true, dynamic_tree_max_topK: 4}\n")});
  EXPECT_THAT(eagle3, Contains("--speculation=eagle"));
  EXPECT_THAT(eagle3, Contains("--eagle-tree-top-k=4"));
  EXPECT_THAT(words({"--config", file("speculative_config: {decoding_type: MTP}\n")}),
              Contains("--speculation=mtp"));
  EXPECT_THAT(words({"--config", file("speculative_config: {decoding_type: NGram, "
                                      "is_public_pool: true, is_keep_all: true}\n")}),
              Contains("--ngram-pool-size=262144"));
  const Words ahead = words({"--config", file("speculative_config: {decoding_type: Lookahead, "
                                              "max_window_size: 5, max_ngram_size: 4}\n")});
  EXPECT_THAT(ahead, Contains("--speculation=lookahead"));
  EXPECT_THAT(ahead, Contains("--lookahead-window-size=5"));
  EXPECT_THAT(ahead, Contains("--lookahead-ngram-size=4"));
}

TEST_F(TrtllmServe, RefusalsNameOptionValueAndWhatIsAllowed) {
  EXPECT_EQ(refusal({"--cp_size", "2"}),
            "--context_parallel_size: '2' is not supported yet; allowed: 1");
  EXPECT_THAT(refusal({"--config", file("kv_cache_config: {enable_block_reus: true}\n")}),
              HasSubstr("unknown option 'kv_cache_config.enable_block_reus'. Did you mean "
                        "'kv_cache_config.enable_block_reuse'?"));
  EXPECT_THAT(refusal({"--config", file("speculative_config: {decoding_type: ReDrafter}\n")}),
              HasSubstr("options.yaml: argument --speculative_config.decoding_type: invalid "
                        "choice: 'ReDrafter' (choose from 'NGram', 'Draft_Target', "
                        "'Medusa', 'Eagle', 'Eagle3', 'MTP', 'Lookahead', 'AUTO')"));
  EXPECT_THAT(refusal({"--config", file("kv_cache_config: {max_attention_window: [8, 16]}\n")}),
              HasSubstr("'8,16' is not supported yet; allowed: one value"));
  EXPECT_THAT(refusal({"--config", file("- a\n")}), HasSubstr("is not a mapping"));
  EXPECT_THAT(refusal({"--config", "/no/such/file"}), HasSubstr("/no/such/file"));
  EXPECT_THAT(refusal({"--set", "max_seq_len"}), HasSubstr("is not PATH=VALUE"));
  EXPECT_THAT(refusal({"--max_batch_size", "many"}), HasSubstr("invalid int value: 'many'"));
  EXPECT_THAT(refusal({"disaggregated"}), HasSubstr("subcommand 'disaggregated'"));
  const auto by_name = plan_trtllm_serve({"TinyLlama/TinyLlama-1.1B"});
  EXPECT_THAT(
      std::string(message(by_name.status())),
      HasSubstr("there is no directory 'TinyLlama/TinyLlama-1.1B'; for the model of that name on "
                "the Hugging Face hub give hf://TinyLlama/TinyLlama-1.1B"));
  EXPECT_TRUE(plan_trtllm_serve({"hf://TinyLlama/TinyLlama-1.1B"}).ok());
}

TEST_F(TrtllmServe, WhatHasNoEffectIsListed) {
  const auto plan = plan_trtllm_serve(
      {model_, "--backend", "tensorrt", "--trust_remote_code", "--device", "cpu"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->ignored, ElementsAre("--backend", "--trust_remote_code"));
}

}  // namespace
}  // namespace nereid::cli
