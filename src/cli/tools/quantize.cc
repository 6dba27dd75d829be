// quantize: converts a Hugging Face directory to one with rounded weights, or to a checkpoint in
// the TensorRT-LLM layout. Flags: those of quantize.py, and a few more.
#include <sys/resource.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_split.h"
#include "cli/flags/arg_table.h"
#include "cli/flags/missing_path.h"
#include "cli/tools/draft_heads.h"
#include "cli/tools/round_model.h"
#include "cli/tools/tools.h"
#include "models/formats/trtllm.h"

namespace nereid::cli {
namespace {

using enum ArgKind;
using enum config::Use;

constexpr ArgFlag kQuantizeFlags[] = {
    {"--model_dir", kText, kActed, "", "", "Hugging Face directory"},
    {"--output_dir", kText, kActed, "", "exported_model",
     "folder that the checkpoint is written to"},
    {"--qformat", kChoice, kActed,
     "fp8|int8_wo|int4_wo|int4_awq|int4_gptq|w8a8|int8_sq|nvfp4|w4a8_awq|full_prec", "full_prec",
     "fp8: f8e4m3 with a scale for each row (GPUs round activations too); int8_wo: integers with "
     "a scale for each row; int4_wo: integers in groups; int4_awq: the same with factors of "
     "columns that a text decides; int4_gptq: each number's error made up for by others; w8a8: "
     "int8_wo with activations of 8 bits; int8_sq: w8a8 smoothed (SmoothQuant); the others are "
     "refused, full_prec too, so a format has to be named"},
    {"--export_format", kChoice, kActed, "hf|tensorrt_llm", "hf",
     "hf: a Hugging Face directory in the layout of compressed-tensors; tensorrt_llm: config.json "
     "and rankN.safetensors, all matrices of one type"},
    {"--awq_block_size,--group_size", kInteger, kActed, "", "128",
     "columns of a group of integers"},
    {"--zero_point", kFlag, kActed, "", "", "groups of four-bit integers have zero points"},
    {"--error_feedback", kFlag, kActed, "", "",
     "compensate rounding errors in later columns (GPTQ) with any qformat; int4_gptq and int4_awq "
     "always do"},
    {"--smoothquant", kNumber, kActed, "", "0.5",
     "strength of int8_sq, 0 to 1: share of the activations' outliers that moves into the weights",
     "", in(0, 1)},
    {"--damping", kNumber, kActed, "", "0.01",
     "error feedback: share of the mean that is added to the diagonal of the inputs' squares"},
    {"--no_act_order", kFlag, kActed, "", "",
     "error feedback: process columns from left to right, not by the size of their inputs"},
    {"--sequential", kFlag, kActed, "", "",
     "error feedback: calibrate each product behind rounded ones and compensate their errors too; "
     "the text is computed eight times for each layer"},
    {"--kv_cache_dtype", kChoice, kActed, "int8|fp8", "",
     "type of cached keys and values in the server, with a scale for each token; stored in the "
     "checkpoint"},
    {"--quantize_lm_head", kFlag, kActed, "", "",
     "round the head too, to nearest: int8 with a scale for each row where qformat has integers"},
    {"--exclude_modules", kList, kActed, "", "",
     "modules that are not rounded: names without .weight, * for any characters, such as *.o_proj"},
    {"--int8_modules", kList, kActed, "", "",
     "modules with 8-bit integers and a scale for each row where qformat has 4 bits: names as "
     "above, or none; default: values and down projections"},
    {"--calib_dataset,--calib_file", kText, kActed, "", "", "text file, UTF-8, to calibrate on"},
    {"--calib_size", kInteger, kActed, "", "512",
     "sequences of the calibration text, spread evenly", "", in(1, INT32_MAX)},
    {"--calib_max_seq_length", kInteger, kActed, "", "512", "tokens of each sequence", "",
     in(1, 1 << 20)},
    {"--statistics_mib", kInteger, kActed, "", "1024",
     "MiB for the statistics of layers that are calibrated together; one layer at least", "",
     in(1, 1 << 30)},
    {"--threads", kInteger, kActed, "", "0", "CPU threads; 0: one for each core", "", in(0, 1024)},
    {"--medusa_model_dir", kText, kActed, "", "", "folder of Medusa heads, copied with the model"},
    {"--num_medusa_heads", kInteger, kActed, "", "4", "compared with --medusa_model_dir if given"},
    {"--num_medusa_layers", kInteger, kActed, "", "1", "compared with --medusa_model_dir if given"},
    {"--log_level", kText, kActed, "", "info", "debug, info, warning, error"},
    {"--dtype", kChoice, kActed, "auto|float16|bfloat16|float32", "auto",
     "with tensorrt_llm: type of weights that are not rounded"},
    {"--tp_size", kInteger, kActed, "", "1", "with tensorrt_llm: tensor parallel ranks"},
    {"--pp_size", kInteger, kActed, "", "1", "with tensorrt_llm: pipeline parallel ranks"},
    {"--cp_size", kInteger, kOnly, "", "1", "ranks"},
    {"--nemo_ckpt_path", kText, kOnly, "", "", "NeMo checkpoint"},
    {"--autoq_format", kText, kOnly, "", "", "formats chosen layer by layer"},
    {"--auto_quantize_bits", kNumber, kOnly, "", "", "bits of --autoq_format"},
    {"--quant_medusa_head", kFlag, kOnly, "", "", "Medusa heads stay as they are"},
    {"--medusa_hidden_act", kChoice, kOnly, "silu|gelu|relu", "silu", "activation of Medusa heads"},
    {"--max_draft_len", kInteger, kIgnored, "", "63", "the server's max_draft_len decides"},
    {"--batch_size", kInteger, kIgnored, "", "1", "sequences are computed one by one"},
    {"--calib_tp_size", kInteger, kIgnored, "", "1", "option of NeMo"},
    {"--calib_pp_size", kInteger, kIgnored, "", "1", "option of NeMo"},
    {"--decoder_type", kChoice, kIgnored, "gptnext|llama", "gptnext", "option of NeMo"},
    {"--device", kChoice, kIgnored, "cuda|cpu", "cuda", "it runs on the CPU"},
    {"--device_map", kChoice, kIgnored, "auto|sequential|cpu|gpu", "auto", "it runs on the CPU"},
    {"--seed", kInteger, kIgnored, "", "1234", "calibration uses no random numbers"},
    {"--tokenizer_max_seq_length", kInteger, kIgnored, "", "2048",
     "--calib_max_seq_length decides"},
};

struct NamedFormat {
  std::string_view name;
  kernels::WeightFormat format;
  std::string_view weights;  // convert::ConvertOptions::weights
  bool search_scales = false, error_feedback = false, smoothing = false;
};
constexpr NamedFormat kFormats[] = {{"fp8", kernels::kFp8PerRow, "fp8"},
                                    {"int8_wo", kernels::kInt8PerRow, "int8"},
                                    {"w8a8", kernels::kInt8Both, "sq_per_channel_per_token"},
                                    {"int8_sq", kernels::kInt8Both, "int8_sq", false, false, true},
                                    {"int4_wo", kernels::kInt4Groups, "int4"},
                                    {"int4_awq", kernels::kInt4Groups, "int4_awq", true, true},
                                    {"int4_gptq", kernels::kInt4Groups, "int4_gptq", false, true}};

bool is_for_ranks(const Args& args) { return args.text("--export_format") == "tensorrt_llm"; }

Status set_format(const Args& args, convert::QuantizeOptions& options) {
  const std::string& name = args.text("--qformat");
  const auto* found = std::ranges::find(kFormats, name, &NamedFormat::name);
  if (found == std::end(kFormats))
    return unsupported(
        "--qformat: '{}' is not supported; allowed: fp8, int8_wo, int4_wo, int4_awq, int4_gptq, "
        "w8a8, int8_sq",
        name);
  options.format = found->format;
  options.search_scales = found->search_scales;
  if (found->smoothing) options.smoothing = args.number("--smoothquant");
  options.quantize_head = args.is_on("--quantize_lm_head");
  options.error_feedback = found->error_feedback || args.is_on("--error_feedback");
  options.sequential = args.is_on("--sequential");
  if (options.sequential && (!options.error_feedback || options.takes_factors()))
    return invalid_argument(
        "--sequential: allowed with int4_gptq, or with --error_feedback of a qformat other than "
        "int4_awq and int8_sq");
  const int64_t group = args.integer("--awq_block_size");
  if (group < kernels::kGroupUnit || group > (1 << 20) || group % kernels::kGroupUnit != 0)
    return invalid_argument("--awq_block_size: {} is not a multiple of {} from {} to {}", group,
                            kernels::kGroupUnit, kernels::kGroupUnit, 1 << 20);
  if (options.format.group > 0) options.format.group = static_cast<int32_t>(group);
  if (args.is_on("--zero_point")) {
    if (options.format.bits != 4)
      return invalid_argument(
          "--zero_point: {} has none; allowed with int4_wo, int4_awq, int4_gptq", name);
    options.format.zeros = true;
  }
  return ok();
}

StatusOr<convert::QuantizeOptions> read_options(const Args& args) {
  convert::QuantizeOptions options;
  if (!args.given("--model_dir"))
    return invalid_argument("--model_dir: is missing; give a Hugging Face directory");
  options.model_dir = args.text("--model_dir");
  RETURN_IF_ERROR(check_exists("--model_dir", options.model_dir.string()));
  options.output_dir = args.text("--output_dir");
  RETURN_IF_ERROR(set_format(args, options));
  if (args.given("--kv_cache_dtype"))
    options.cache = args.text("--kv_cache_dtype") == "int8" ? DType::kI8 : DType::kF8E4M3;
  options.damping = args.number("--damping");
  if (!(options.damping > 0) || options.damping > 1)
    return invalid_argument("--damping: {} is not above 0 and at most 1", options.damping);
  options.act_order = !args.is_on("--no_act_order");
  if (args.given("--exclude_modules"))
    options.exclude = absl::StrSplit(args.text("--exclude_modules"), ' ', absl::SkipEmpty());
  options.more_bits = options.format.bits == 4 && !args.given("--int8_modules");
  if (args.given("--int8_modules")) {
    if (options.format.bits != 4)
      return invalid_argument(
          "--int8_modules: allowed with int4_wo, int4_awq, int4_gptq; --qformat {} has no 4 bits",
          args.text("--qformat"));
    if (args.text("--int8_modules") != "none")
      options.int8_modules = absl::StrSplit(args.text("--int8_modules"), ' ', absl::SkipEmpty());
  }
  options.statistics_bytes = static_cast<uint64_t>(args.integer("--statistics_mib")) << 20;
  return options;
}

// Adapts `quantize` to the layout of ranks; refuses options that it cannot represent.
StatusOr<convert::ConvertOptions> for_ranks(const Args& args, convert::QuantizeOptions& quantize) {
  const std::string& name = args.text("--qformat");
  convert::ConvertOptions out;
  out.output_dir = quantize.output_dir;
  out.dtype = args.text("--dtype");
  const auto ranks = [&](std::string_view flag) {
    return static_cast<int32_t>(std::clamp<int64_t>(args.integer(flag), -1, models::kMaxRanks + 1));
  };
  out.ranks = {.tp = ranks("--tp_size"), .pp = ranks("--pp_size"), .moe_tp = -1, .moe_ep = -1};
  RETURN_IF_ERROR(models::check_ranks(out.ranks).status());
  out.weights = std::ranges::find(kFormats, name, &NamedFormat::name)->weights;
  out.cache = quantize.cache;
  out.smoothing = quantize.smoothing.value_or(out.smoothing);
  if (!quantize.int8_modules.empty())
    return invalid_argument(
        "--int8_modules: a TensorRT-LLM checkpoint has one type for all; allowed with "
        "--export_format tensorrt_llm: none");
  quantize.more_bits = false;
  if (quantize.quantize_head && name != "int8_wo" && name != "w8a8")
    return invalid_argument(
        "--quantize_lm_head: allowed with --export_format tensorrt_llm: int8_wo, w8a8");
  if (name == "int4_wo") {
    // W4A16 has scales of whole rows; groups need the layouts of AWQ and GPTQ.
    const bool has_groups = args.given("--awq_block_size") || quantize.format.zeros;
    if (!has_groups) quantize.format.group = 0;
    if (has_groups) out.weights = quantize.format.zeros ? "int4_gptq" : "int4_awq";
  }
  if (name == "int4_awq" && quantize.format.zeros)
    return invalid_argument("--zero_point: W4A16_AWQ has none; allowed with int4_gptq and int4_wo");
  quantize.one_scale = name == "fp8";
  if (quantize.one_scale && quantize.error_feedback)
    return invalid_argument(
        "--error_feedback: not supported for quant_algo FP8, with one scale for a matrix; leave it "
        "out, or --export_format tensorrt_llm");
  return out;
}

Status check_for_one_directory(const Args& args) {
  for (const auto& [flag, only] :
       {std::pair("--dtype", "auto"), std::pair("--tp_size", "1"), std::pair("--pp_size", "1")})
    if (args.text(flag) != only)
      return unsupported(
          "{}: '{}' is for --export_format tensorrt_llm; allowed with hf, whose directory is for "
          "any number of ranks: {}",
          flag, args.text(flag), only);
  return ok();
}

// The text of --calib_dataset, if a format calibrates or a checkpoint has static
// factors; else nullopt.
StatusOr<std::optional<CalibrationText>> text_of(const Args& args,
                                                 const convert::QuantizeOptions& options,
                                                 const convert::ConvertOptions* ranks) {
  const std::string reader = fmt::format("--qformat {}", args.text("--qformat"));
  const bool is_needed =
      options.takes_factors() || options.error_feedback ||
      (ranks && (convert::has_static_inputs(ranks->weights) || options.cache == DType::kI8));
  const bool is_used = is_needed || (ranks && options.cache != DType::kBF16);
  if (!is_needed && !(is_used && args.given("--calib_dataset")))
    return std::optional<CalibrationText>();
  ASSIGN_OR_RETURN(CalibrationText text, read_calibration_text(args, reader));
  return std::optional(std::move(text));
}

int64_t peak_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss >> 10;
}

Status quantize(const Args& args) {
  ASSIGN_OR_RETURN(convert::QuantizeOptions options, read_options(args));
  std::optional<convert::ConvertOptions> ranks;
  if (is_for_ranks(args)) {
    ASSIGN_OR_RETURN(ranks, for_ranks(args, options));
  } else {
    RETURN_IF_ERROR(check_for_one_directory(args));
  }
  ASSIGN_OR_RETURN(const DraftHeads heads, read_draft_heads(args, std::array{kMedusaFlag}));
  ASSIGN_OR_RETURN(const std::optional<CalibrationText> text,
                   text_of(args, options, ranks ? &*ranks : nullptr));
  ASSIGN_OR_RETURN(const kernels::OpenedDevice device, open_processors(args.integer("--threads")));
  convert::QuantizeReport report;
  std::string where = options.output_dir.string();
  if (ranks) {
    ASSIGN_OR_RETURN(const RoundedRanks done, round_for_ranks(options, *ranks, text, device));
    report = done.rounded;
    report.bytes_after = done.converted.bytes;
    where += fmt::format(" ({} ranks)", ranks->ranks.num_files());
  } else {
    ASSIGN_OR_RETURN(report, round_model(options, text, device));
  }
  RETURN_IF_ERROR(heads.write(options.output_dir));
  const std::string others =
      report.num_int8 > 0 ? fmt::format(" ({} of them int8)", report.num_int8) : "";
  fmt::print("{}: {} matrices as {}{}, {} left as they are; {} KiB of {} KiB; peak memory {} MiB\n",
             where, report.num_matrices, kernels::text_of(options.format), others, report.num_left,
             report.bytes_after >> 10, report.bytes_before >> 10, peak_mib());
  return ok();
}

}  // namespace

int quantize_main(int argc, char** argv) {
  return run_tool({"quantize", kQuantizeFlags}, argc, argv, [](const Args& args) {
    return run_timed(args, "Total time of quantizing", quantize);
  });
}

}  // namespace nereid::cli
