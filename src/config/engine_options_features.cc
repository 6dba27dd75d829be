// Options of speculative decoding, adapters and statistics; see engine_options.cc.
#include "config/engine_option_groups.h"
#include "config/engine_options.h"

namespace nereid::config {

Options lookahead_options(LookaheadConfig& c) {
  Options options;
  add_group(
      options, "Speculative decoding",
      {{.name = "lookahead.window_size",
        .field = field(c.window_size),
        .help = "lookahead: positions for which draft tokens are computed side by side",
        .range = {1, kMaxLookahead},
        .flag = "--lookahead-window-size",
        .parameter = "lookahead_window_size"},
       {.name = "lookahead.ngram_size",
        .field = field(c.ngram_size),
        .help = "lookahead: tokens of an n-gram that is kept and tested, the first one included",
        .range = {1, kMaxLookahead},
        .flag = "--lookahead-ngram-size",
        .parameter = "lookahead_ngram_size"},
       {.name = "lookahead.verification_set_size",
        .field = field(c.verification_set_size),
        .help = "lookahead: n-grams that are tested in a step; all three together make (N - 2) + "
                "(W - 1 + G)(N - 1) draft tokens, at most 64",
        .range = {0, kMaxLookahead},
        .flag = "--lookahead-verification-set-size",
        .parameter = "lookahead_verification_set_size"}});
  return options;
}

namespace {

void add_trees(Options& options, ExecutorConfig& c) {
  add_group(
      options, "Speculative decoding",
      {{.name = "medusa_choices",
        .field = field(c.medusa_choices),
        .help = "tree of draft tokens of Medusa heads, as the ranks that lead to each, such as "
                "{0}, {0, 0}, {1}; at most 64",
        .default_text = "the likeliest of each head"},
       {.name = "eagle_choices",
        .field = field(c.eagle_choices),
        .help = "tree of draft tokens of an EAGLE head or of mtp, written as `medusa_choices`",
        .default_text = "a chain"},
       {.name = "eagle_tree_top_k",
        .field = field(c.eagle_tree_top_k),
        .help = "EAGLE-2: so many draft tokens of each depth get so many draft tokens each, and "
                "the likeliest of all are tested; 0 = a chain, or `eagle_choices`",
        .range = {0, kMaxTreeTopK}},
       {.name = "eagle_tree_depth",
        .field = field(c.eagle_tree_depth),
        .help = "depth of the tree of `eagle_tree_top_k`; 0 = 5",
        .range = {0, kMaxDraftLen}}});
}

void add_unused(Options& options, PeftCacheConfig& peft) {
  add_group(options, "Adapters (LoRA)",
            {{.name = "peft_cache.num_host_module_layers",
              .field = field(peft.num_host_module_layers),
              .help = "no effect: `peft_cache.host_cache_bytes` is the bound",
              .flag = nullptr,
              .parameter = nullptr,
              .use = Use::kOnly},
             {.name = "peft_cache.num_put_workers",
              .field = field(peft.num_put_workers),
              .help = "no effect",
              .flag = nullptr,
              .parameter = nullptr,
              .use = Use::kOnly},
             {.name = "peft_cache.num_ensure_workers",
              .field = field(peft.num_ensure_workers),
              .help = "no effect",
              .flag = nullptr,
              .parameter = nullptr,
              .use = Use::kOnly},
             {.name = "peft_cache.num_copy_streams",
              .field = field(peft.num_copy_streams),
              .help = "no effect",
              .flag = nullptr,
              .parameter = nullptr,
              .use = Use::kOnly},
             {.name = "peft_cache.max_pages_per_block_host",
              .field = field(peft.max_pages_per_block_host),
              .help = "no effect",
              .flag = nullptr,
              .parameter = nullptr,
              .use = Use::kOnly},
             {.name = "peft_cache.max_pages_per_block_device",
              .field = field(peft.max_pages_per_block_device),
              .help = "no effect",
              .flag = nullptr,
              .parameter = nullptr,
              .use = Use::kOnly}});
}

}  // namespace

void add_speculation(Options& options, ExecutorConfig& c) {
  add_group(
      options, "Speculative decoding",
      {{.name = "speculation",
        .field = field(c.speculation),
        .help =
            "draft tokens, tested beside the next token; the output stays the same: none | ngram "
            "(what followed the last tokens where they stood before) | draft_model, medusa, "
            "redrafter, eagle (of the folder `draft_model`) | mtp (a layer of the model's "
            "checkpoint) | lookahead (of the model itself, some tokens ahead) | auto (of "
            "`draft_model`, else mtp, else ngram; as many as pay, down to none); not for beams",
        .words = "none|ngram|draft_model|medusa|redrafter|eagle|mtp|lookahead|auto",
        .default_text = "auto with `draft_model`, else none"},
       {.name = "draft_model",
        .field = field(c.draft_model),
        .help = "checkpoint folder or engine of a smaller model with the same tokens, or folder of "
                "Medusa heads, of a ReDrafter head or of an EAGLE head for the model",
        .must_exist = true},
       {.name = "max_draft_len",
        .field = field(c.max_draft_len),
        .help = "draft tokens of a sequence in a step; 0 = 4 of a draft model, 8 of others, of "
                "trees as many as they have",
        .range = {0, kMaxDraftLen}}});
  add_trees(options, c);
  for (const Option& option : lookahead_options(c.lookahead)) options.push_back(option);
  add_group(
      options, "Speculative decoding",
      {{.name = "ngram_pool_size",
        .field = field(c.ngram_pool_size),
        .help = "ngram: runs of four tokens of all requests' texts that are kept (16 bytes each) "
                "for draft tokens where a request's own text gives none; requests with other "
                "adapters or cache_salt share none; 0 = none",
        .range = {0, kMaxNgramPool}},
       {.name = "typical_acceptance",
        .field = field(c.typical_acceptance),
        .help = "above 0: draft tokens of sampled requests are also accepted where they are not "
                "drawn, if their probability is above min(this, sqrt(this) * exp(-entropy)); "
                "outputs are then not distributed as without draft tokens; 0.09 is usual",
        .range = {0, 1}}});
}

void add_adapters(Options& options, ExecutorConfig& c) {
  PeftCacheConfig& peft = c.peft_cache;
  add_group(
      options, "Adapters (LoRA)",
      {{.name = "enable_lora",
        .field = field(c.enable_lora),
        .help = "requests may bring adapters (lora_weights); the engine is built for them",
        .default_text = "false; true where adapters or a folder of adapters are given"},
       {.name = "peft_cache.max_adapter_size",
        .field = field(peft.max_adapter_size),
        .help = "largest rank of an adapter",
        .range = {1, kMaxLoraRank},
        .flag = "--max-lora-rank",
        .parameter = "lora_cache_max_adapter_size"},
       {.name = "peft_cache.optimal_adapter_size",
        .field = field(peft.optimal_adapter_size),
        .help = "rank for which a page of the device's adapter memory is large enough, for the "
                "widest matrix of a layer",
        .range = {1, kMaxLoraRank},
        .flag = nullptr,
        .parameter = "lora_cache_optimal_adapter_size"},
       {.name = "peft_cache.device_cache_fraction",
        .field = field(peft.device_cache_fraction),
        .help = "share of `memory_bytes`, or of what is free, for the adapters that run",
        .range = {0, 1, true, true},
        .flag = nullptr,
        .parameter = "lora_cache_gpu_memory_fraction"},
       {.name = "peft_cache.num_device_module_layers",
        .field = field(peft.num_device_module_layers),
        .help = "adapters that run, as a number of matrices of rank `peft_cache.max_adapter_size`; "
                "0 = by "
                "`peft_cache.device_cache_fraction`",
        .range = {0, 1 << 24},
        .flag = nullptr,
        .parameter = nullptr},
       {.name = "peft_cache.host_cache_bytes",
        .field = field(peft.host_cache_bytes),
        .help = "host memory for all adapters together",
        .range = {1, kMaxBytes},
        .flag = nullptr,
        .parameter = "lora_cache_host_memory_bytes",
        .is_bytes = true},
       {.name = "peft_cache.prefetch_dir",
        .field = field(peft.prefetch_dir),
        .help = "folder of adapters, each in a folder named by its task id, loaded at start",
        .flag = nullptr,
        .parameter = "lora_prefetch_dir",
        .must_exist = true}});
  add_unused(options, peft);
}

void add_statistics(Options& options, ExecutorConfig& c) {
  add_group(options, "Statistics",
            {{.name = "normalize_log_probs",
              .field = field(c.normalize_log_probs),
              .help = "with top-k, log-probabilities are relative to the k kept tokens",
              .flag = nullptr},
             {.name = "expert_load",
              .field = field(c.expert_load),
              .help = "tokens of each expert of each layer are counted, for the metric "
                      "nereid_expert_tokens_total; on CPUs, with ranks as threads"},
             {.name = "iter_stats_max_iterations",
              .field = field(c.iter_stats_max_iterations),
              .help = "iterations whose statistics are kept; 0 = none",
              .range = {0, 1 << 20},
              .flag = nullptr},
             {.name = "request_stats_max_iterations",
              .field = field(c.request_stats_max_iterations),
              .help = "iterations whose statistics of requests are kept; 0 = none",
              .range = {0, 1 << 20},
              .flag = nullptr}});
}

}  // namespace nereid::config
