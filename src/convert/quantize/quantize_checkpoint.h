// `nereid quantize`: rounds products of a Hugging Face model into compressed-tensors' layout.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/api/weight_format.h"
#include "quant/input_statistics.h"
#include "tensor/thread_pool.h"

namespace nereid::convert {

// Runs the calibration text and adds product inputs to the statistics by weight
// ("layers.0.attn.q"); for a mixture by expert ("layers.0.mlp.gate[3]").
using CollectInputs =
    std::function<Status(const std::map<std::string, quant::InputStatistics*>& wanted)>;

// Replaces a weight by its rounded matrix, row-major [n, k], in the model that statistics with
// drift are collected from.
using UseRounded =
    std::function<Status(const std::string& weight, std::span<const BF16> matrix, int64_t k)>;

struct QuantizeProgress {
  int32_t layers_done = 0, num_layers = 0;
  int64_t matrices_done = 0;
  int64_t num_unseen = 0;  // part of num_matrices: experts with too few rows for calibration
};

struct QuantizeOptions {
  std::filesystem::path model_dir;   // Hugging Face directory with safetensors or PyTorch files
  std::filesystem::path output_dir;  // see quantize_checkpoint()
  // Format of product weights: 4- or 8-bit integers in groups or rows, optionally with zero points
  // or i8 inputs; or f8e4m3.
  kernels::WeightFormat format = kernels::kInt8PerRow;
  bool one_scale = false;           // one scale per 8-bit matrix; f8e4m3: per input
  bool search_scales = false;       // AWQ; requires `collect`
  bool quantize_head = false;       // plain rounding, see head_format()
  std::optional<double> smoothing;  // SmoothQuant strength (0 to 1); requires `collect`
  DType cache = DType::kBF16;       // KV cache type in config.json: bf16, i8, f8e4m3
  bool error_feedback = false;      // GPTQ; requires `collect`
  double damping = 0.01;            // error feedback: damping
  bool act_order = true;            // error feedback: activation order
  // Product after product: each is calibrated on inputs from the rounded model before it, and
  // compensates the difference to the float model. With `error_feedback`, without factors, for
  // models without experts; requires `use_rounded`.
  bool sequential = false;
  // Whether norms and preceding products take column factors.
  bool takes_factors() const { return search_scales || smoothing.has_value(); }
  // Integer formats: 8 bits with a scale per row.
  kernels::WeightFormat head_format() const {
    const bool integers =
        format.scheme == kernels::Scheme::kInteger && format.inputs == DType::kBF16;
    return integers ? kernels::kInt8PerRow : format;
  }
  // Modules that are not rounded: patterns of names without ".weight"; "*" matches any characters.
  std::vector<std::string> exclude;
  // Modules with kInt8PerRow in place of `format` (which must be integers with bf16 inputs):
  // patterns as above.
  std::vector<std::string> int8_modules;
  // kInt8PerRow for value and down projections, experts included (GGUF's "Q4_K_M" has more bits for
  // the same tensors). Not for tensors shared with other weights.
  bool more_bits = false;
  std::set<std::string, std::less<>> int8_tensors;  // from more_bits; set by quantize_checkpoint()
  kernels::WeightFormat format_of(std::string_view tensor) const;
  CollectInputs collect;
  std::string calibration;  // identifies everything that `collect` depends on
  UseRounded use_rounded;
  uint64_t statistics_bytes = uint64_t{1} << 30;  // memory for statistics of layers calibrated
                                                  // together; at least one layer
  std::function<void(const QuantizeProgress&)> progress;  // called after each layer
};

struct QuantizeReport {
  int64_t num_matrices = 0;  // rounded matrices
  int64_t num_int8 = 0;      // of those: by int8_modules and more_bits
  int64_t num_unseen = 0;    // of those: QuantizeProgress::num_unseen
  int64_t num_left = 0;      // product matrices not rounded: excluded, or unsupported layout
  uint64_t bytes_before = 0, bytes_after = 0;
};

// Writes config.json, model.safetensors, tokenizer files and generation_config.json. The embedding
// is unchanged, and the head unless requested (impossible if tied or not stored as float rows).
// With `search_scales` or `smoothing`, norms and preceding products take the inverse factors,
// routers the factors. Stacked experts become one tensor each. Memory: the matrices of one layer or
// expert, and the statistics. Experts with too few rows are rounded plainly. The directory appears
// when complete, replacing an older one. After a failure or kill, `output_dir` + ".partial" stays;
// a later call with the same options and model resumes with the same bytes, another call restarts.
// InvalidArgument: fault of the model, or already quantised; no matrix to round; output_dir is
// model_dir or has other files. Unimplemented: another layout. Unavailable: cannot write. Other
// errors: those of `collect`.
StatusOr<QuantizeReport> quantize_checkpoint(const QuantizeOptions& options, ThreadPool& pool);

// Whether `name` matches a pattern, see QuantizeOptions::exclude.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace nereid::convert
