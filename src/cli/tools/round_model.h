// What quantize and convert_checkpoint share: weights that are rounded, on a text where that needs
// one, and static factors that a text shows.
#pragma once

#include <optional>
#include <string_view>

#include "base/status.h"
#include "cli/flags/arg_table.h"
#include "cli/tools/calibrate.h"
#include "convert/quantize_checkpoint.h"
#include "convert/trtllm_checkpoint.h"

namespace nereid::cli {

// The file that --calib_dataset names, with --calib_size and --calib_max_seq_length. `reader`: what
// needs it, for the error where it is missing.
StatusOr<CalibrationText> read_calibration_text(const Args& args, std::string_view reader);

StatusOr<kernels::OpenedDevice> open_processors(int64_t threads);

// quantize_checkpoint() with a line for each layer; calibrates on `text` where `options` asks.
StatusOr<convert::QuantizeReport> round_model(convert::QuantizeOptions options,
                                              const std::optional<CalibrationText>& text,
                                              const kernels::OpenedDevice& device);

struct RoundedRanks {
  convert::QuantizeReport rounded;
  convert::ConvertReport converted;
};

// A float model to a checkpoint in the TensorRT-LLM layout: rounds it into a Hugging Face directory
// beside `convert.output_dir`, which is gone in the end, and hands its codes over. `quantize` lacks
// its output_dir, `convert` its model_dir and magnitudes.
StatusOr<RoundedRanks> round_for_ranks(convert::QuantizeOptions quantize,
                                       convert::ConvertOptions convert,
                                       const std::optional<CalibrationText>& text,
                                       const kernels::OpenedDevice& device);

}  // namespace nereid::cli
