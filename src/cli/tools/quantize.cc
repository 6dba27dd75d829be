// quantize: a Hugging Face directory becomes one with rounded weights. Flags: those of quantize.py,
// and a few more.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/flags/arg_table.h"
#include "cli/tools/calibrate.h"
#include "cli/tools/draft_heads.h"
#include "cli/tools/tools.h"
#include "convert/quantize_checkpoint.h"

namespace nereid::cli {
namespace {

using enum ArgKind;
using enum ArgUse;

constexpr ArgFlag kQuantizeFlags[] = {
    {"--model_dir", kText, kActed, "", "", "Hugging Face directory"},
    {"--output_dir", kText, kActed, "", "exported_model", "where the checkpoint goes"},
    {"--qformat", kChoice, kActed,
     "fp8 int8_wo int4_wo int4_awq int4_gptq w8a8 int8_sq nvfp4 w4a8_awq full_prec", "full_prec",
     "fp8: f8e4m3 with a scale for each row (GPUs round activations too); int8_wo: integers with "
     "a scale for each row; int4_wo: integers in groups; int4_awq: the same with factors of "
     "columns that a text decides; int4_gptq: each number's error made up for by others; w8a8: "
     "int8_wo with activations of 8 bits; int8_sq: w8a8 smoothed (SmoothQuant); the others are "
     "refused, full_prec too, so a format has to be named"},
    {"--export_format", kChoice, kActed, "hf tensorrt_llm", "hf",
     "hf: a Hugging Face directory in the layout of compressed-tensors"},
    {"--awq_block_size --group_size", kInteger, kActed, "", "128",
     "columns of a group of integers"},
    {"--zero_point", kFlag, kActed, "", "", "groups of four-bit integers have zero points"},
    {"--error_feedback", kFlag, kActed, "", "",
     "make up for errors (GPTQ) with any qformat; int4_gptq and int4_awq have it"},
    {"--smoothquant", kNumber, kActed, "", "0.5",
     "of int8_sq, 0 to 1: how much of what is hard to round goes from activations into weights"},
    {"--damping", kNumber, kActed, "", "0.01",
     "of error feedback: share of the mean that is added to the inputs' squares"},
    {"--no_act_order", kFlag, kActed, "", "",
     "error feedback goes through the columns from left to right, not by the size of their inputs"},
    {"--sequential", kFlag, kActed, "", "",
     "error feedback of each product follows what is rounded in front of it and makes up for that "
     "too; the text is computed eight times for each layer"},
    {"--kv_cache_dtype", kChoice, kActed, "int8 fp8", "",
     "what the checkpoint asks the server to cache keys and values as, with a scale for each "
     "token"},
    {"--quantize_lm_head", kFlag, kActed, "", "",
     "the head too, rounded plainly: int8 with a scale for each row where qformat has integers"},
    {"--exclude_modules", kList, kActed, "", "",
     "modules that stay as they are: names without .weight, * for any characters"},
    {"--int8_modules", kList, kActed, "", "",
     "modules with integers of 8 bits and a scale for each row where qformat has 4: names "
     "likewise, or none; without the flag values and down projections"},
    {"--calib_dataset --calib_file", kText, kActed, "", "", "a text file, UTF-8, to calibrate on"},
    {"--calib_size", kInteger, kActed, "", "512", "sequences of it, spread evenly"},
    {"--calib_max_seq_length", kInteger, kActed, "", "512", "tokens of each"},
    {"--statistics_mib", kInteger, kActed, "", "1024",
     "memory for what calibration keeps of layers that it sees together; one layer at least"},
    {"--threads", kInteger, kActed, "", "0", "0: one for each core"},
    {"--medusa_model_dir", kText, kActed, "", "", "Medusa heads, which go with the model"},
    {"--num_medusa_heads", kInteger, kActed, "", "4", "compared with --medusa_model_dir if given"},
    {"--num_medusa_layers", kInteger, kActed, "", "1", "compared with --medusa_model_dir if given"},
    {"--log_level", kText, kActed, "", "info", "debug, info, warning, error"},
    {"--dtype", kChoice, kOnly, "auto float16 bfloat16 float32", "auto",
     "type of what is not rounded: as it is"},
    {"--tp_size", kInteger, kOnly, "", "1", "ranks; convert has them"},
    {"--pp_size", kInteger, kOnly, "", "1", "ranks; convert has them"},
    {"--cp_size", kInteger, kOnly, "", "1", "ranks"},
    {"--nemo_ckpt_path", kText, kOnly, "", "", "NeMo checkpoint"},
    {"--autoq_format", kText, kOnly, "", "", "a format for each layer by itself"},
    {"--auto_quantize_bits", kNumber, kOnly, "", "", "likewise"},
    {"--quant_medusa_head", kFlag, kOnly, "", "", "Medusa heads stay as they are"},
    {"--medusa_hidden_act", kChoice, kOnly, "silu gelu relu", "silu", "activation of Medusa heads"},
    {"--max_draft_len", kInteger, kIgnored, "", "63", "the server's max_draft_len says"},
    {"--batch_size", kInteger, kIgnored, "", "1", "sequences are computed one by one"},
    {"--calib_tp_size", kInteger, kIgnored, "", "1", "of NeMo"},
    {"--calib_pp_size", kInteger, kIgnored, "", "1", "of NeMo"},
    {"--decoder_type", kChoice, kIgnored, "gptnext llama", "gptnext", "of NeMo"},
    {"--device", kChoice, kIgnored, "cuda cpu", "cuda", "it runs on the CPU"},
    {"--device_map", kChoice, kIgnored, "auto sequential cpu gpu", "auto", "it runs on the CPU"},
    {"--seed", kInteger, kIgnored, "", "1234", "nothing is drawn"},
    {"--tokenizer_max_seq_length", kInteger, kIgnored, "", "2048",
     "--calib_max_seq_length says it"},
};

struct NamedFormat {
  std::string_view name;
  kernels::WeightFormat format;
  bool search_scales = false, error_feedback = false, smoothing = false;
};
constexpr NamedFormat kFormats[] = {{"fp8", kernels::kFp8PerRow},
                                    {"int8_wo", kernels::kInt8PerRow},
                                    {"w8a8", kernels::kInt8Both},
                                    {"int8_sq", kernels::kInt8Both, false, false, true},
                                    {"int4_wo", kernels::kInt4Groups},
                                    {"int4_awq", kernels::kInt4Groups, true, true},
                                    {"int4_gptq", kernels::kInt4Groups, false, true}};

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
  options.output_dir = args.text("--output_dir");
  RETURN_IF_ERROR(set_format(args, options));
  if (args.text("--export_format") != "hf")
    return unsupported("--export_format: '{}' is not supported; allowed: hf",
                       args.text("--export_format"));
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
  const int64_t mib = args.integer("--statistics_mib");
  if (mib < 1 || mib > (int64_t{1} << 30))
    return invalid_argument("--statistics_mib: {} is not from 1 to {}", mib, int64_t{1} << 30);
  options.statistics_bytes = static_cast<uint64_t>(mib) << 20;
  return options;
}

StatusOr<CalibrationText> read_text(const Args& args) {
  CalibrationText text;
  if (!args.given("--calib_dataset"))
    return invalid_argument(
        "--calib_dataset: is missing; --qformat {} calibrates on a text, so give a file of it",
        args.text("--qformat"));
  text.file = args.text("--calib_dataset");
  std::error_code error;
  if (!std::filesystem::is_regular_file(text.file, error))
    return invalid_argument("--calib_dataset: '{}' is not a file; give a text file",
                            text.file.string());
  text.num_sequences = args.integer("--calib_size");
  if (text.num_sequences < 1)
    return invalid_argument("--calib_size: {} is not positive", text.num_sequences);
  const int64_t tokens = args.integer("--calib_max_seq_length");
  if (tokens < 1 || tokens > (1 << 20))
    return invalid_argument("--calib_max_seq_length: {} is not from 1 to {}", tokens, 1 << 20);
  text.sequence_tokens = static_cast<int32_t>(tokens);
  return text;
}

int64_t peak_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss >> 10;
}

Status quantize(const Args& args) {
  ASSIGN_OR_RETURN(convert::QuantizeOptions options, read_options(args));
  ASSIGN_OR_RETURN(const DraftHeads heads, read_draft_heads(args, std::array{kMedusaFlag}));
  const int64_t threads = args.integer("--threads");
  if (threads < 0 || threads > 1024)
    return invalid_argument("--threads: {} is not from 0 to 1024", threads);
  ASSIGN_OR_RETURN(const kernels::OpenedDevice device,
                   kernels::open_device("cpu", {.num_threads = static_cast<int>(threads)}));
  ThreadPool pool(std::max(device.device->info().num_units, 1));
  std::unique_ptr<Calibration> calibration;
  if (options.takes_factors() || options.error_feedback) {
    ASSIGN_OR_RETURN(const CalibrationText text, read_text(args));
    ASSIGN_OR_RETURN(calibration, Calibration::open(options.model_dir, text, device));
    log_info("calibration on {} tokens of {}", calibration->num_tokens(), text.file.string());
    options.calibration = calibration->key();
    options.collect = [&](const auto& wanted) { return calibration->collect(wanted); };
    options.use_rounded = [&](const std::string& weight, std::span<const BF16> matrix, int64_t k) {
      return calibration->use_rounded(weight, matrix, k);
    };
  }
  const Time start = now();
  options.progress = [&](const convert::QuantizeProgress& p) {
    log_info("layer {} of {}: {} matrices so far, {:.1f} s", p.layers_done, p.num_layers,
             p.matrices_done, seconds(now() - start));
  };
  ASSIGN_OR_RETURN(const convert::QuantizeReport report,
                   convert::quantize_checkpoint(options, pool));
  if (report.num_unseen > 0)
    log_warn(
        "{} matrices of experts that saw too little of the text are rounded to the nearest; more "
        "text calibrates more of them",
        report.num_unseen);
  RETURN_IF_ERROR(heads.write(options.output_dir));
  const std::string others =
      report.num_int8 > 0 ? fmt::format(" ({} of them int8)", report.num_int8) : "";
  fmt::print("{}: {} matrices as {}{}, {} left as they are; {} KiB of {} KiB; peak memory {} MiB\n",
             options.output_dir.string(), report.num_matrices, kernels::text_of(options.format),
             others, report.num_left, report.bytes_after >> 10, report.bytes_before >> 10,
             peak_mib());
  return ok();
}

}  // namespace

int quantize_main(int argc, char** argv) {
  return run_tool({"quantize", kQuantizeFlags}, argc, argv, [](const Args& args) {
    return run_timed(args, "Total time of quantizing", quantize);
  });
}

}  // namespace nereid::cli
