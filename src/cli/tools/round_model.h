// Rounding shared by quantize and convert_checkpoint: of weights, calibrated on a text where a
// format needs it, and of static factors measured on a text.
#pragma once

#include <optional>
#include <string_view>

#include "base/status.h"
#include "cli/flags/arg_table.h"
#include "cli/tools/calibrate.h"
#include "convert/quantize/quantize_checkpoint.h"
#include "convert/trtllm_checkpoint.h"

namespace nereid::cli {

// The file of --calib_dataset, with --calib_size and --calib_max_seq_length. `reader`: the option
// that needs it, for the error when it is missing.
StatusOr<CalibrationText> read_calibration_text(const Args& args, std::string_view reader);

StatusOr<kernels::OpenedDevice> open_processors(int64_t threads);

// quantize_checkpoint() with a log line for each layer; calibrates on `text` if `options` need it.
StatusOr<convert::QuantizeReport> round_model(convert::QuantizeOptions options,
                                              const std::optional<CalibrationText>& text,
                                              const kernels::OpenedDevice& device);

struct RoundedRanks {
  convert::QuantizeReport rounded;
  convert::ConvertReport converted;
};

// From a float model to a checkpoint in the TensorRT-LLM layout: rounds it into a temporary Hugging
// Face directory beside `convert.output_dir`, and takes its codes over. `quantize` lacks its
// output_dir, `convert` its model_dir and magnitudes.
StatusOr<RoundedRanks> round_for_ranks(convert::QuantizeOptions quantize,
                                       convert::ConvertOptions convert,
                                       const std::optional<CalibrationText>& text,
                                       const kernels::OpenedDevice& device);

}  // namespace nereid::cli
