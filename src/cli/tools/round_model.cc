#include "cli/tools/round_model.h"

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "convert/new_directory.h"

namespace nereid::cli {

StatusOr<CalibrationText> read_calibration_text(const Args& args, std::string_view reader) {
  CalibrationText text;
  if (!args.given("--calib_dataset"))
    return invalid_argument(
        "--calib_dataset: is missing; {} calibrates on a text, so give a file of it", reader);
  text.file = args.text("--calib_dataset");
  std::error_code error;
  if (!std::filesystem::is_regular_file(text.file, error))
    return invalid_argument("--calib_dataset: '{}' is not a file; give a text file",
                            text.file.string());
  text.num_sequences = args.integer("--calib_size");
  text.sequence_tokens = static_cast<int32_t>(args.integer("--calib_max_seq_length"));
  return text;
}

StatusOr<kernels::OpenedDevice> open_processors(int64_t threads) {
  return kernels::open_device("cpu", {.num_threads = static_cast<int>(threads)});
}

StatusOr<convert::QuantizeReport> round_model(convert::QuantizeOptions options,
                                              const std::optional<CalibrationText>& text,
                                              const kernels::OpenedDevice& device) {
  ThreadPool pool(std::max(device.device->info().num_units, 1));
  std::unique_ptr<Calibration> calibration;
  if (options.takes_factors() || options.error_feedback) {
    if (!text) return internal_error("calibration without a text");
    ASSIGN_OR_RETURN(calibration, Calibration::open(options.model_dir, *text, device));
    log_info("calibration on {} tokens of {}", calibration->num_tokens(), text->file.string());
    options.calibration = calibration->key();
    options.collect = [&](const auto& wanted) { return calibration->collect(wanted); };
    options.use_rounded = [&](const std::string& weight, std::span<const BF16> matrix, int64_t k) {
      return calibration->use_rounded(weight, matrix, k);
    };
  }
  const Time start = now();
  ProgressBar bar("quantizing layers", 0, ProgressUnit::kCount);
  bool is_first = true;  // a run that goes on begins with layers that are done
  options.progress = [&](const convert::QuantizeProgress& p) {
    bar.set_total(p.num_layers);
    if (std::exchange(is_first, false)) bar.add_before(p.layers_done - 1);
    bar.add(p.layers_done - bar.done());
    if (has_progress_bars()) return;
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
  return report;
}

StatusOr<RoundedRanks> round_for_ranks(convert::QuantizeOptions quantize,
                                       convert::ConvertOptions convert,
                                       const std::optional<CalibrationText>& text,
                                       const kernels::OpenedDevice& device) {
  RoundedRanks out;
  // Unwritable results are refused before hours of work.
  RETURN_IF_ERROR(
      convert::NewDirectory::create(convert.output_dir, convert::is_checkpoint_file).status());
  quantize.output_dir = convert.output_dir;
  quantize.output_dir += ".hf";
  ASSIGN_OR_RETURN(out.rounded, round_model(quantize, text, device));
  convert.model_dir = quantize.output_dir;
  convert.rounds = false;
  const bool has_cache = convert.cache.value_or(DType::kBF16) != DType::kBF16;
  if (text && (convert::has_static_inputs(convert.weights) || has_cache)) {
    const std::filesystem::path engines = quantize.output_dir / "engines";
    ASSIGN_OR_RETURN(const auto calibration,
                     Calibration::open(quantize.output_dir, *text, device, engines));
    ASSIGN_OR_RETURN(convert.magnitudes, calibration->magnitudes());
  }
  ASSIGN_OR_RETURN(out.converted, convert::convert_checkpoint(convert));
  std::error_code error;
  std::filesystem::remove_all(quantize.output_dir, error);
  return out;
}

}  // namespace nereid::cli
