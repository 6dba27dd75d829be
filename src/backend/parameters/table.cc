// The table itself; see parameters.h.
#include <filesystem>
#include <iterator>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "backend/parameters/parameters.h"
#include "config/engine_options.h"

namespace nereid::backend {
namespace {

using Kind = ParameterKind;
using Use = ParameterUse;

constexpr Parameter no_effect(const char* key, const char* why, const char* words = "") {
  return {.key = key, .placeholder = key, .use = Use::kNone, .words = words, .why_none = why};
}

constexpr Parameter kTokenizerType = {.key = "tokenizer_type",
                                      .use = Use::kNone,
                                      .why_none = "the files of tokenizer_dir say what it is"};

ParameterKind kind_of(const config::Option& option) {
  if (option.has_own_reader) return Kind::kText;
  if (*option.words) return Kind::kWord;
  return std::visit(
      [&](auto field) {
        using T = decltype(field);
        if (std::is_same_v<T, bool*>) return Kind::kBoolean;
        if (std::is_same_v<T, std::filesystem::path*> && option.must_exist) return Kind::kFolder;
        if (std::is_same_v<T, float*> || std::is_same_v<T, double*> ||
            std::is_same_v<T, std::optional<double>*>)
          return Kind::kNumber;
        if (std::is_same_v<T, int32_t*> || std::is_same_v<T, int64_t*> ||
            std::is_same_v<T, std::optional<int64_t>*>)
          return Kind::kInteger;
        return Kind::kText;
      },
      option.field);
}

constexpr const char* kWorkerPath = "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker";
constexpr const char* kNoWorkerPath =
    "processes of ranks run the program nereid, which lies beside the server or its backends";

// Parameters of the tensorrt_llm model that are no options of the engine.
constexpr Parameter kOthers[] = {
    {.key = "gpt_model_path",
     .placeholder = "engine_dir",
     .kind = Kind::kFolder,
     .is_mandatory = true,
     .help = "folder of the model, a Hugging Face checkpoint or an engine; mandatory"},
    {.key = "engine_dir", .kind = Kind::kFolder, .help = "another name of gpt_model_path"},
    {.key = "model_dir", .kind = Kind::kFolder, .help = "another name of gpt_model_path"},
    {.key = "tokenizer_dir",
     .placeholder = "tokenizer_dir",
     .kind = Kind::kFolder,
     .help = "folder of tokenizer.json, by which whole characters are streamed; default: the "
             "model's folder"},
    {.key = "gpt_model_type",
     .placeholder = "batching_strategy",
     .kind = Kind::kWord,
     .words = "V1|v1|inflight_batching|inflight_fused_batching",
     .help = "inflight_batching | inflight_fused_batching (default) | V1 (no sequence joins a "
             "running batch, and nothing streams)"},
    {.key = "gpu_device_ids",
     .placeholder = "gpu_device_ids",
     .help = "GPUs of the ranks, as many as there are: N,M means devices cuda:N,M; with ';' a list "
             "for each instance: 0,1;2,3"},
    {.key = "max_kv_cache_length", .help = "another name of max_attention_window_size"},
    {.key = "kv_cache_onboard_blocks",
     .placeholder = "kv_cache_onboard_blocks",
     .kind = Kind::kBoolean,
     .help = "blocks in host memory are copied back when they are reused; only true works"},
    {.key = "decoding_mode",
     .placeholder = "decoding_mode",
     .kind = Kind::kWord,
     .words = "auto|top_k|top_p|top_k_top_p|beam_search|medusa|redrafter|lookahead|eagle",
     .help = "auto (default) | top_k | top_p | top_k_top_p | beam_search (each request chooses for "
             "itself; the value is only checked) | medusa | redrafter | lookahead | eagle (the "
             "same as speculation)"},
    {.key = "exclude_input_in_output",
     .placeholder = "exclude_input_in_output",
     .kind = Kind::kBoolean,
     .help = "default of the input of the same name: false"},
    {.key = "cancellation_check_period_ms",
     .placeholder = "cancellation_check_period_ms",
     .kind = Kind::kInteger,
     .low = 1,
     .high = 60000,
     .help = "milliseconds after which it is looked again whether clients have left; default 100"},
    {.key = "stats_check_period_ms",
     .placeholder = "stats_check_period_ms",
     .kind = Kind::kInteger,
     .low = 1,
     .high = 60000,
     .help = "milliseconds after which metrics are refreshed; default 100"},
    {.key = "lora_modules",
     .placeholder = "lora_modules",
     .help = "name=folder;name=folder: adapters that are loaded at start, by the names that OpenAI "
             "requests give as their model"},
    {.key = "lora_load_dir",
     .placeholder = "lora_load_dir",
     .kind = Kind::kFolder,
     .help = "requests may name folders of adapters inside this one"},
    no_effect("recv_poll_period_ms", "requests are taken as they come, nothing polls"),
    no_effect("executor_worker_path", kNoWorkerPath, kWorkerPath),
    no_effect("enable_context_fmha_fp32_acc", "attention always accumulates in float32"),
    no_effect("multi_block_mode", "attention kernels choose how they split the work"),
    no_effect("cuda_graph_mode", "the engine decides itself what it captures"),
    no_effect("cuda_graph_cache_size", "the engine decides itself what it captures"),
    no_effect("enable_trt_overlap", "enable_overlap takes its place"),
    no_effect("xgrammar_tokenizer_info_path", "guided decoding reads the tokenizer itself"),
    no_effect("guided_decoding_backend",
              "guided decoding is always there, by a matcher of its own"),
    no_effect("speculative_decoding_fast_logits",
              "both models are in this process, where logits of drafts are handed over in memory",
              "False|false|FALSE|0"),
    {.key = "worker_path", .use = Use::kNone, .words = kWorkerPath, .why_none = kNoWorkerPath},
    kTokenizerType,
    {.key = "FORCE_CPU_ONLY_INPUT_TENSORS",
     .use = Use::kNone,
     .words = "no",
     .why_none = "inputs are always taken from host memory"},
    {.key = "encoder_model_path",
     .placeholder = "encoder_engine_dir",
     .kind = Kind::kFolder,
     .help = "of an encoder-decoder model: `encoder` beside the folder `decoder` that "
             "`gpt_model_path` names, or the same folder as there"},
    {.key = "encoder_engine_dir",
     .kind = Kind::kFolder,
     .help = "another name of `encoder_model_path`"},
    {.key = "num_nodes", .placeholder = "num_nodes", .use = Use::kRefused, .words = "1"},
    {.key = "gpu_weights_percent",
     .placeholder = "gpu_weights_percent",
     .use = Use::kRefused,
     .words = "1|1.0"},
};

std::vector<Parameter> tensorrt_llm_parameters() {
  ExecutorConfig config;
  const config::Options options = config::engine_options(config);
  std::vector<Parameter> out(std::begin(kOthers), std::end(kOthers));
  for (const config::Option& option : options) {
    if (!*option.parameter) continue;
    out.push_back({.key = option.parameter,
                   .placeholder = *option.placeholder ? option.placeholder : option.parameter,
                   .kind = kind_of(option),
                   .low = option.range.low,
                   .high = option.range.high,
                   .words = option.words,
                   .zero_is_default = option.zero_is_default});
  }
  return out;
}

constexpr Parameter kPreprocessing[] = {
    {.key = "tokenizer_dir",
     .placeholder = "tokenizer_dir",
     .kind = Kind::kFolder,
     .is_mandatory = true},
    {.key = "add_special_tokens", .placeholder = "add_special_tokens", .kind = Kind::kBoolean},
    {.key = "multimodal_model_path",
     .placeholder = "multimodal_model_path",
     .kind = Kind::kFolder,
     .help = "folder of the model of pictures whose encoder multimodal_encoders runs"},
    {.key = "visual_model_path",
     .kind = Kind::kFolder,
     .help = "another name of multimodal_model_path"},
    {.key = "gpt_model_path", .placeholder = "engine_dir", .use = Use::kNone},
    {.key = "max_num_images", .placeholder = "max_num_images"},
    kTokenizerType,
};

constexpr Parameter kPostprocessing[] = {
    {.key = "tokenizer_dir",
     .placeholder = "tokenizer_dir",
     .kind = Kind::kFolder,
     .is_mandatory = true},
    {.key = "skip_special_tokens", .placeholder = "skip_special_tokens", .kind = Kind::kBoolean},
    kTokenizerType,
};

constexpr Parameter kBls[] = {
    {.key = "accumulate_tokens", .placeholder = "accumulate_tokens"},
    {.key = "tensorrt_llm_model_name", .placeholder = "tensorrt_llm_model_name"},
    {.key = "tensorrt_llm_draft_model_name", .placeholder = "tensorrt_llm_draft_model_name"},
    {.key = "multimodal_encoders_name", .placeholder = "multimodal_encoders_name"},
};

constexpr Parameter kMultimodalEncoders[] = {
    {.key = "multimodal_model_path",
     .placeholder = "multimodal_model_path",
     .kind = Kind::kFolder,
     .help = "folder of a model of pictures, a Hugging Face checkpoint; mandatory"},
    {.key = "visual_model_path",
     .kind = Kind::kFolder,
     .help = "another name of multimodal_model_path"},
    no_effect("hf_model_path", "multimodal_model_path has all that is read"),
};

// The options that say where and how an encoder computes.
std::vector<Parameter> multimodal_parameters() {
  std::vector<Parameter> out(std::begin(kMultimodalEncoders), std::end(kMultimodalEncoders));
  for (const Parameter& parameter : parameters_of("tensorrtllm"))
    for (const char* key : {"device", "devices", "num_threads", "isa", "weights", "cache_dir"})
      if (std::string_view(parameter.key) == key) out.push_back(parameter);
  return out;
}

constexpr Parameter kWhisperBls[] = {
    {.key = "n_mels",
     .placeholder = "n_mels",
     .kind = Kind::kInteger,
     .low = 1,
     .high = 256,
     .is_mandatory = true},
    {.key = "zero_pad", .placeholder = "zero_pad", .kind = Kind::kBoolean},
    {.key = "engine_dir", .placeholder = "engine_dir"},
    {.key = "tokenizer_dir", .placeholder = "tokenizer_dir"},
};

}  // namespace

std::span<const Parameter> parameters_of(std::string_view backend) {
  static const std::vector<Parameter> tensorrt_llm = tensorrt_llm_parameters();
  if (backend == "tensorrtllm") return tensorrt_llm;
  if (backend == "preprocessing") return kPreprocessing;
  if (backend == "postprocessing") return kPostprocessing;
  if (backend == "tensorrt_llm_bls") return kBls;
  if (backend == "whisper_bls") return kWhisperBls;
  if (backend == "multimodal_encoders") {
    static const std::vector<Parameter> multimodal = multimodal_parameters();
    return multimodal;
  }
  return {};
}

}  // namespace nereid::backend
