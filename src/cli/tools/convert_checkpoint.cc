// convert_checkpoint: converts any supported model to a checkpoint in the TensorRT-LLM layout.
// Flags: those of the convert_checkpoint.py scripts of all families and versions.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/flags/arg_table.h"
#include "cli/flags/missing_path.h"
#include "cli/tools/draft_heads.h"
#include "cli/tools/round_model.h"
#include "cli/tools/tools.h"
#include "convert/pretty_json.h"
#include "convert/trtllm_checkpoint.h"
#include "models/formats/meta.h"
#include "models/formats/trtllm.h"

namespace nereid::cli {
namespace {

using enum ArgKind;
using enum config::Use;

constexpr ArgFlag kConvertFlags[] = {
    {"--model_dir,-i", kText, kActed, "", "",
     "Hugging Face or checkpoint directory, GGUF or Whisper file"},
    {"--output_dir,-o,--output_model_dir", kText, kActed, "", "tllm_checkpoint",
     "folder that the checkpoint is written to"},
    {"--dtype", kChoice, kActed, "auto|float16|bfloat16|float32", "auto",
     "type of the stored weights; auto: that of config.json, float16 instead of float32"},
    {"--save_config_only", kFlag, kActed, "", "", "write config.json and no weights"},
    {"--log_level", kText, kActed, "", "info", "debug, info, warning, error"},
    // Sharding.
    {"--tp_size,--world_size", kInteger, kActed, "", "1", "tensor parallel ranks"},
    {"--pp_size", kInteger, kActed, "", "1", "pipeline parallel ranks"},
    {"--cp_size", kInteger, kOnly, "", "1", "context parallel ranks"},
    {"--moe_tp_size", kInteger, kActed, "", "-1",
     "tensor parallel ranks of experts; -1: tp_size / moe_ep_size"},
    {"--moe_ep_size", kInteger, kActed, "", "-1", "expert parallel ranks; -1: 1, or what is left"},
    {"--use_parallel_embedding", kFlag, kActed, "", "", "divide the embedding among the ranks too"},
    {"--embedding_sharding_dim", kChoice, kActed, "0|1", "0",
     "divide the embedding by rows (0) or columns (1)"},
    // Other sources.
    {"--meta_ckpt_dir", kText, kActed, "", "", "Meta's params.json and consolidated.NN.pth"},
    {"--nemo_ckpt_path", kText, kOnly, "", "", "NeMo file; save it as a Hugging Face directory"},
    {"--nemo_rename_key", kList, kOnly, "", "", "NeMo key renames"},
    {"--quant_ckpt_path", kText, kOnly, "", "", "quantised checkpoint"},
    {"--gpt_variant", kText, kActed, "", "",
     "the model's architecture; must equal that of config.json"},
    {"--ckpt_type", kChoice, kActed, "hf|jax|keras|torch", "hf", "kind of source"},
    // Encoder-decoder models.
    {"--model_type", kText, kActed, "", "",
     "family of the encoder-decoder model; must be that of config.json"},
    {"--model_name", kText, kActed, "", "",
     "Whisper of OpenAI: the name of the .pt file in --model_dir"},
    {"--nougat", kFlag, kOnly, "", "", "a model of pictures"},
    {"--eclair_radio", kFlag, kOnly, "", "", "a model of pictures"},
    {"--skip_cross_kv", kFlag, kOnly, "", "", "cross attention without its products"},
    {"--use_implicit_relative_attention", kFlag, kActed, "", "",
     "T5: write the decoder's position bias with its layers only"},
    {"--logits_dtype", kChoice, kIgnored, "float16|float32", "float32", "logits are float32"},
    // Quantisation.
    {"--use_weight_only", kFlag, kActed, "", "",
     "round the weights of products to integers with a scale for each row"},
    {"--weight_only_precision", kMaybe, kActed,
     "int8|int4|int8_gptq|int4_gptq|int4_awq|w4a8_awq|w4a16_awq", "",
     "with --use_weight_only: int8 or int4, rounded to the nearest; int4_awq, w4a8_awq, int4_gptq, "
     "int8_gptq take over the groups that the model has"},
    {"--use_weight_only_with_precision", kChoice, kActed, "int8|int4|w4a8_awq|w4a16_awq", "",
     "both flags in one, as in Gemma's converter"},
    {"--disable_weight_only_quant_plugin", kFlag, kIgnored, "", "", "kernel choice"},
    {"--smoothquant,-sq,--use_smooth_quant_plugin", kNumber, kActed, "", "",
     "SmoothQuant of this strength, 0 to 1, on --calib_dataset; with static factors of activations "
     "unless --per_token is given",
     "", in(0, 1)},
    {"--use_smooth_quant", kFlag, kActed, "", "",
     "SmoothQuant with static factors of activations, on --calib_dataset"},
    {"--per_channel", kFlag, kActed, "", "", "SmoothQuant: a scale for each row of a matrix"},
    {"--per_token", kFlag, kActed, "", "",
     "SmoothQuant: a scale for each token of the activations"},
    {"--per_group", kFlag, kActed, "", "",
     "scales for groups of columns, as int4_awq, w4a8_awq, int4_gptq and int8_gptq have them"},
    {"--group_size", kInteger, kActed, "", "128", "columns of the model's groups", "",
     in(1, 1 << 20)},
    {"--int8_kv_cache,--calibrate_kv_cache,-kv", kFlag, kActed, "", "",
     "keys and values are cached as int8, with a scale for each token (kv_cache_quant_algo)"},
    {"--fp8_kv_cache", kFlag, kActed, "", "",
     "keys and values are cached as f8e4m3, with a scale for each token"},
    {"--use_fp8,--enable_fp8", kFlag, kActed, "", "",
     "round the weights of products to f8e4m3 with a scale for each matrix; static factors of "
     "activations, on --calib_dataset"},
    {"--use_nvfp4", kFlag, kOnly, "", "", "NVFP4"},
    {"--use_fp8_rowwise", kFlag, kActed, "", "",
     "round the weights of products to f8e4m3 with a scale for each row"},
    {"--use_meta_fp8_rowwise_recipe", kFlag, kOnly, "", "", "FP8, row-wise"},
    {"--use_qserve", kFlag, kOnly, "", "", "QServe"},
    {"--use_int8_weight_only_embedding", kFlag, kOnly, "", "", "int8 embedding"},
    {"--calib_dataset", kText, kActed, "", "",
     "text file, UTF-8, for SmoothQuant, FP8 and the factors of a cache"},
    {"--calib_size", kInteger, kActed, "", "512",
     "sequences of the calibration text, spread evenly", "", in(1, INT32_MAX)},
    {"--calib_max_seq_length", kInteger, kActed, "", "512", "tokens of each sequence", "",
     in(1, 1 << 20)},
    {"--dataset_cache_dir", kText, kIgnored, "", "", "calibration reads one text file"},
    // Heads that propose draft tokens, stored with the checkpoint.
    {"--medusa_model_dir", kText, kActed, "", "", "folder of Medusa heads"},
    {"--num_medusa_heads", kInteger, kActed, "", "4", "compared with --medusa_model_dir if given"},
    {"--num_medusa_layers", kInteger, kActed, "", "1", "compared with --medusa_model_dir if given"},
    {"--medusa_hidden_act", kChoice, kOnly, "silu|gelu|relu", "silu", "activation of Medusa heads"},
    {"--eagle_model_dir", kText, kActed, "", "", "folder of an EAGLE head"},
    {"--num_eagle_layers", kInteger, kIgnored, "", "4",
     "depth of the draft tree (the server's eagle_choices or eagle_tree_depth)"},
    {"--max_non_leaves_per_layer", kInteger, kIgnored, "", "10",
     "inner nodes of each depth of the draft tree (the server's eagle_tree_top_k)"},
    {"--drafter_model_dir", kText, kActed, "", "", "folder of a ReDrafter head"},
    {"--redrafter_num_beams", kInteger, kActed, "", "5",
     "beams of the head; with --drafter_model_dir"},
    {"--redrafter_draft_len_per_beam", kInteger, kActed, "", "5",
     "draft tokens of each beam; with --drafter_model_dir"},
    {"--redrafter_no_greedy_search", kFlag, kIgnored, "", "", "each request sets its sampling"},
    {"--max_draft_len", kInteger, kIgnored, "", "63", "the server's max_draft_len decides"},
    // Internals of other converters.
    {"--load_by_shard", kFlag, kIgnored, "", "", "weights are always streamed"},
    {"--load_model_on_cpu", kFlag, kIgnored, "", "", "weights are always streamed"},
    {"--workers", kInteger, kIgnored, "", "1", "ranks converted at a time"},
    {"--verbose", kFlag, kIgnored, "", "", "more text"},
    {"--tokenizer_dir", kText, kIgnored, "", "", "only calibration needs it"},
    {"--remove_duplicated_kv_heads", kFlag, kIgnored, "", "", "only for sharding"},
    {"--use_embedding_sharing,--use_share_embedding", kFlag, kIgnored, "", "", "old"},
    {"--use_prompt_tuning", kFlag, kIgnored, "", "", "old"},
    {"--enable_pos_shift", kFlag, kIgnored, "", "", "old"},
    {"--dense_context_fmha", kFlag, kIgnored, "", "", "old"},
    {"--hf_model_dir", kText, kIgnored, "", "", "old"},
    // A config.json without a source: Llama of these sizes.
    {"--vocab_size", kInteger, kActed, "", "32000", "without --model_dir"},
    {"--n_positions", kInteger, kActed, "", "2048", "without --model_dir"},
    {"--n_layer", kInteger, kActed, "", "32", "without --model_dir"},
    {"--n_head", kInteger, kActed, "", "32", "without --model_dir"},
    {"--n_kv_head", kInteger, kActed, "", "", "without --model_dir; default --n_head"},
    {"--n_embd", kInteger, kActed, "", "4096", "without --model_dir"},
    {"--inter_size", kInteger, kActed, "", "11008", "without --model_dir"},
    {"--multiple_of", kInteger, kIgnored, "", "", "option of Meta checkpoints"},
    {"--ffn_dim_multiplier", kNumber, kIgnored, "", "", "option of Meta checkpoints"},
    {"--rms_norm_eps", kNumber, kActed, "", "1e-06", "without --model_dir"},
    {"--hidden_act", kText, kActed, "", "silu", "without --model_dir"},
    {"--rotary_base", kNumber, kActed, "", "10000.0", "without --model_dir"},
    {"--moe_num_experts", kInteger, kActed, "", "0", "without --model_dir: Mixtral's"},
    {"--moe_top_k", kInteger, kActed, "", "0", "experts of a token; 0: one"},
    {"--moe_renorm_mode", kInteger, kOnly, "", "1", "experts' weights add up to one"},
};

constexpr std::pair<std::string_view, const char*> kWeightWords[] = {{"", "int8"},
                                                                     {"int8", "int8"},
                                                                     {"int4", "int4"},
                                                                     {"int4_awq", "int4_awq"},
                                                                     {"w4a16_awq", "int4_awq"},
                                                                     {"w4a8_awq", "w4a8_awq"},
                                                                     {"int4_gptq", "int4_gptq"},
                                                                     {"int8_gptq", "int8_gptq"}};

// The weights' type that --use_weight_only and its precision name, or none.
StatusOr<std::string> weight_only(const Args& args) {
  const bool together = args.given("--use_weight_only_with_precision");
  const char* const flag =
      together ? "--use_weight_only_with_precision" : "--weight_only_precision";
  const std::string& precision = args.text(flag);
  const auto* const found =
      std::ranges::find(kWeightWords, precision, [](const auto& row) { return row.first; });
  if (found == std::end(kWeightWords))
    return unsupported(
        "{}: '{}' is not supported; allowed: int8, int4, int4_awq, w4a16_awq, w4a8_awq, int4_gptq, "
        "int8_gptq",
        flag, precision);
  if (together && args.given("--weight_only_precision"))
    return invalid_argument("{}: cannot be combined with --weight_only_precision", flag);
  if (together || args.is_on("--use_weight_only")) return std::string(found->second);
  if (args.given(flag)) return invalid_argument("{}: {} needs --use_weight_only", flag, precision);
  return std::string();
}

// The weights' type that SmoothQuant's flags name, or none.
StatusOr<std::string> smooth_quant(const Args& args) {
  if (args.is_on("--use_smooth_quant")) return std::string("int8_sq");
  if (!args.given("--smoothquant")) {
    for (const char* flag : {"--per_channel", "--per_token"})
      if (args.is_on(flag)) return invalid_argument("{}: needs --smoothquant", flag);
    return std::string();
  }
  const bool by_rows = args.is_on("--per_channel");
  if (args.is_on("--per_token"))
    return std::string(by_rows ? "sq_per_channel_per_token" : "sq_per_tensor_per_token");
  return std::string(by_rows ? "sq_per_channel_per_tensor" : "sq_per_tensor");
}

// Sets ConvertOptions::weights.
StatusOr<std::string> read_weights(const Args& args) {
  ASSIGN_OR_RETURN(const std::string only, weight_only(args));
  ASSIGN_OR_RETURN(const std::string smooth, smooth_quant(args));
  const bool has_groups = only.ends_with("_awq") || only.ends_with("_gptq");
  if (args.is_on("--per_group") && !has_groups)
    return invalid_argument(
        "--per_group: allowed with --weight_only_precision int4_awq, w4a8_awq, int4_gptq, "
        "int8_gptq");
  std::string chosen, by;
  for (const auto& [flag, word] :
       {std::pair<std::string, std::string>("--use_weight_only", only),
        {"--smoothquant", smooth},
        {"--use_fp8", args.is_on("--use_fp8") ? "fp8" : ""},
        {"--use_fp8_rowwise", args.is_on("--use_fp8_rowwise") ? "fp8_rowwise" : ""}}) {
    if (word.empty()) continue;
    if (!chosen.empty()) return invalid_argument("{}: cannot be combined with {}", flag, by);
    chosen = word, by = flag;
  }
  return chosen;
}

Status check(const Args& args) {
  RETURN_IF_ERROR(read_weights(args).status());
  if (args.is_on("--int8_kv_cache") && args.is_on("--fp8_kv_cache"))
    return invalid_argument("--fp8_kv_cache: cannot be combined with --int8_kv_cache");
  if (args.text("--ckpt_type") != "hf")
    return unsupported("--ckpt_type: '{}' is not supported yet; allowed: hf",
                       args.text("--ckpt_type"));
  return ok();
}

// How to round a float model for an option that needs stored codes; nullopt for other options.
std::optional<convert::QuantizeOptions> rounding_of(const convert::ConvertOptions& options) {
  convert::QuantizeOptions out;
  out.model_dir = options.model_dir;
  out.cache = options.cache.value_or(DType::kBF16);
  if (options.weights == "fp8") {
    out.format = kernels::kFp8PerRow;
  } else if (options.weights == "int8_sq" || options.weights.starts_with("sq_")) {
    out.format = kernels::kInt8Both;
    out.smoothing = options.smoothing;
  } else {
    return {};
  }
  out.one_scale = options.weights == "fp8" || options.weights.starts_with("sq_per_tensor");
  return out;
}

// Converts; rounds a float model first where the flags need calibration.
StatusOr<convert::ConvertReport> write_checkpoint(const Args& args,
                                                  convert::ConvertOptions& options) {
  const std::optional<convert::QuantizeOptions> rounding = rounding_of(options);
  const bool is_static = convert::has_static_inputs(options.weights);
  const bool has_cache = options.cache.value_or(DType::kBF16) != DType::kBF16;
  std::error_code error;
  const bool has_text = std::filesystem::is_regular_file(args.text("--calib_dataset"), error);
  bool is_float = false;
  if (rounding || is_static) {
    ASSIGN_OR_RETURN(const models::Model model, models::read_model(options.model_dir));
    is_float = model.layout == models::Layout::kHuggingFace && model.quantization.empty();
  }
  // Refused, since it has no codes: before a calibration text is read.
  if (is_float && !rounding) return convert::convert_checkpoint(options);
  std::optional<CalibrationText> text;
  if ((is_float && rounding->smoothing) || is_static || (has_cache && has_text)) {
    ASSIGN_OR_RETURN(text, read_calibration_text(args, fmt::format("'{}'", options.weights)));
  }
  if (args.given("--calib_dataset") && !text)
    log_warn(
        "--calib_dataset: without effect; a text file is read for SmoothQuant, FP8 and the factors "
        "of a cache");
  if (has_cache && !text && options.cache == DType::kI8)
    log_warn(
        "--int8_kv_cache: no kv_cache_scaling_factor is written without --calib_dataset FILE; "
        "nereid needs none");
  kernels::OpenedDevice device;
  if (text || is_float) {
    ASSIGN_OR_RETURN(device, open_processors(0));
  }
  if (is_float) {
    ASSIGN_OR_RETURN(RoundedRanks done, round_for_ranks(*rounding, options, text, device));
    return done.converted;
  }
  if (text) {
    ASSIGN_OR_RETURN(const auto calibration, Calibration::open(options.model_dir, *text, device));
    ASSIGN_OR_RETURN(options.magnitudes, calibration->magnitudes());
  }
  return convert::convert_checkpoint(options);
}

constexpr HeadsFlag kHeadsFlags[] = {
    kMedusaFlag, {"--eagle_model_dir", "eagle"}, {"--drafter_model_dir", "explicit_draft_tokens"}};

// Checks the other flags about the source against it.
Status check_source(const Args& args, const std::filesystem::path& source) {
  if (args.given("--meta_ckpt_dir")) {
    if (args.given("--model_dir"))
      return invalid_argument("--meta_ckpt_dir: cannot be combined with --model_dir");
    if (!models::is_meta_dir(source))
      return not_found("--meta_ckpt_dir: {} has no params.json with {}, or has a config.json",
                       source.string(), models::meta_file_name(0));
  }
  if (!args.given("--gpt_variant")) return ok();
  const std::string& variant = args.text("--gpt_variant");
  const std::string_view wanted = models::architecture_of_gpt(variant);
  if (wanted.empty())
    return unsupported("--gpt_variant: '{}' is not supported yet; allowed: {}",
                       variant.substr(0, 40), models::gpt_variants());
  ASSIGN_OR_RETURN(const models::Model model, models::read_model(source));
  if (model.graph.model.architecture != wanted)
    return invalid_argument("--gpt_variant: {} is a {}, {} is a {}; leave it out", variant, wanted,
                            source.string(), model.graph.model.architecture);
  return ok();
}

// Families of --model_type. "nmt" is fairseq's; here it names models with sinusoidal positions.
constexpr std::pair<std::string_view, std::string_view> kModelTypes[] = {
    {"t5", "T5"},       {"t5", "MT5"},      {"bart", "Bart"},
    {"bart", "MBart"},  {"mbart", "MBart"}, {"nmt", "Marian"},
    {"nmt", "Pegasus"}, {"nmt", "M2M100"},  {"whisper", "Whisper"}};

// Checks flags of encoder-decoder models.
Status check_encoder_decoder(const Args& args, const convert::ConvertOptions& options) {
  ASSIGN_OR_RETURN(const models::Model model, models::read_model(options.model_dir));
  const io::ModelFacts& facts = model.graph.model;
  const bool has_encoder = facts.num_cross_layers > 0 && facts.pictures.patch_width == 0;
  const std::string& architecture = model.graph.model.architecture;
  if (args.given("--model_type")) {
    const std::string& type = args.text("--model_type");
    const bool fits = std::ranges::any_of(kModelTypes, [&](const auto& row) {
      return row.first == type && architecture.starts_with(row.second);
    });
    if (!fits)
      return invalid_argument(
          "--model_type: '{}' is not the type of {} ({}); allowed are t5, bart, mbart, nmt and "
          "whisper, or nothing",
          type.substr(0, 40), options.model_dir.string(), architecture);
  }
  if (options.implicit_positions && model.traits.bias_buckets == 0)
    return invalid_argument("--use_implicit_relative_attention: {} has no relative position bias",
                            architecture);
  if (!has_encoder) return ok();
  if (rounding_of(options) || convert::has_static_inputs(options.weights) ||
      args.given("--calib_dataset"))
    return unsupported(
        "--use_fp8, --smoothquant, --calib_dataset: not for encoder-decoder models; allowed are "
        "--use_weight_only with int8 or int4, and --use_fp8_rowwise");
  return ok();
}

// Writes a config.json for Llama by the size flags, and reads it back as a check.
Status write_sizes(const Args& args, const std::filesystem::path& dir) {
  const std::string& dtype = args.text("--dtype");
  const int64_t kv_heads = args.integer(args.given("--n_kv_head") ? "--n_kv_head" : "--n_head");
  json::object config = {{"architecture", "LlamaForCausalLM"},
                         {"dtype", dtype == "auto" ? std::string("float16") : dtype},
                         {"logits_dtype", "float32"},
                         {"vocab_size", args.integer("--vocab_size")},
                         {"max_position_embeddings", args.integer("--n_positions")},
                         {"hidden_size", args.integer("--n_embd")},
                         {"num_hidden_layers", args.integer("--n_layer")},
                         {"num_attention_heads", args.integer("--n_head")},
                         {"num_key_value_heads", kv_heads},
                         {"intermediate_size", args.integer("--inter_size")},
                         {"hidden_act", args.text("--hidden_act")},
                         {"norm_epsilon", args.number("--rms_norm_eps")},
                         {"position_embedding_type", "rope_gpt_neox"},
                         {"rotary_base", args.number("--rotary_base")},
                         {"mapping", {{"world_size", 1}, {"tp_size", 1}, {"pp_size", 1}}},
                         {"quantization", {{"quant_algo", nullptr}}}};
  if (const int64_t experts = args.integer("--moe_num_experts"); experts != 0) {
    const int64_t picked = args.integer("--moe_top_k");
    config["architecture"] = "MixtralForCausalLM";
    config["moe"] = {
        {"num_experts", experts}, {"top_k", picked == 0 ? 1 : picked}, {"normalization_mode", 1}};
  }
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return unavailable("{}: {}", dir.string(), error.message());
  RETURN_IF_ERROR(write_file_atomic(dir / "config.json", convert::pretty_json(config)));
  if (const auto model = models::read_model(dir); !model.ok()) {
    std::filesystem::remove(dir / "config.json", error);
    return model.status();
  }
  return ok();
}

// Numbers too large for a rank are refused by the conversion, like all others.
models::Ranks ranks_of(const Args& args) {
  const auto number = [&](std::string_view flag) {
    return static_cast<int32_t>(
        std::clamp<int64_t>(args.integer(flag), -2, std::numeric_limits<int32_t>::max()));
  };
  return {.tp = number("--tp_size"),
          .pp = number("--pp_size"),
          .moe_tp = number("--moe_tp_size"),
          .moe_ep = number("--moe_ep_size"),
          .parallel_embedding = args.is_on("--use_parallel_embedding"),
          .embedding_dim = number("--embedding_sharding_dim")};
}

Status convert(const Args& args) {
  RETURN_IF_ERROR(check(args));
  ASSIGN_OR_RETURN(const DraftHeads heads, read_draft_heads(args, kHeadsFlags));
  const std::filesystem::path output = args.text("--output_dir");
  const char* const source = args.given("--meta_ckpt_dir") ? "--meta_ckpt_dir" : "--model_dir";
  if (!args.given(source)) {
    RETURN_IF_ERROR(write_sizes(args, output));
    return heads.write(output);
  }
  convert::ConvertOptions options;
  options.model_dir = args.text(source);
  if (args.given("--model_name")) options.model_dir /= args.text("--model_name") + ".pt";
  RETURN_IF_ERROR(check_exists(source, options.model_dir.string()));
  RETURN_IF_ERROR(check_source(args, options.model_dir));
  options.output_dir = output;
  options.dtype = args.text("--dtype");
  options.config_only = args.is_on("--save_config_only");
  options.ranks = ranks_of(args);
  ASSIGN_OR_RETURN(options.weights, read_weights(args));
  if (args.given("--smoothquant")) options.smoothing = args.number("--smoothquant");
  if (args.given("--group_size"))
    options.group = static_cast<int32_t>(args.integer("--group_size"));
  if (args.is_on("--int8_kv_cache")) options.cache = DType::kI8;
  if (args.is_on("--fp8_kv_cache")) options.cache = DType::kF8E4M3;
  options.implicit_positions = args.is_on("--use_implicit_relative_attention");
  RETURN_IF_ERROR(check_encoder_decoder(args, options));
  std::optional<ProgressBar> bar;
  bar.emplace("converting", 0, ProgressUnit::kBytes);
  options.progress = [&](const convert::Progress& progress) {
    bar->set_total(static_cast<int64_t>(progress.total_bytes));
    bar->add(static_cast<int64_t>(progress.bytes) - bar->done());
  };
  ASSIGN_OR_RETURN(const convert::ConvertReport report, write_checkpoint(args, options));
  bar.reset();
  RETURN_IF_ERROR(heads.write(output));
  fmt::print("{}: {} tensors, {} MiB as {}, {} ranks\n", output.string(), report.num_tensors,
             report.bytes >> 20, report.dtype, options.ranks.num_files());
  return ok();
}

}  // namespace

int convert_checkpoint_main(int argc, char** argv) {
  return run_tool({"convert_checkpoint", kConvertFlags}, argc, argv, [](const Args& args) {
    return run_timed(args, "Total time of converting checkpoints", convert);
  });
}

}  // namespace nereid::cli
