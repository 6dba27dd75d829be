// A Hugging Face directory to one whose products have rounded weights, in the layout of
// compressed-tensors: what `nereid quantize` does.
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

// Runs the calibration text and adds what the products read to the statistics of those weights of
// the graph as its family built it ("layers.0.attn.q"); of a mixture to those of the experts that
// it is routed to ("layers.0.mlp.gate[3]").
using CollectInputs =
    std::function<Status(const std::map<std::string, quant::InputStatistics*>& wanted)>;

// Tells what collects that a weight, row-major [n, k], is rounded: what it sees for statistics that
// keep drift comes from a model with this matrix.
using UseRounded =
    std::function<Status(const std::string& weight, std::span<const BF16> matrix, int64_t k)>;

struct QuantizeProgress {
  int32_t layers_done = 0, num_layers = 0;
  int64_t matrices_done = 0;
  int64_t num_unseen = 0;  // of them those of experts that saw too few rows to be calibrated
};

struct QuantizeOptions {
  std::filesystem::path model_dir;   // Hugging Face directory, safetensors or PyTorch files
  std::filesystem::path output_dir;  // see quantize_checkpoint()
  // Of the products' weights: integers of 4 or 8 bits in groups or whole rows, perhaps with zero
  // points, or with inputs of i8; or f8e4m3.
  kernels::WeightFormat format = kernels::kInt8PerRow;
  bool one_scale = false;           // for a matrix of 8 bits; f8e4m3: for all that read one input
  bool search_scales = false;       // AWQ; needs `collect`
  bool quantize_head = false;       // plainly; see head_format()
  std::optional<double> smoothing;  // SmoothQuant, of this strength (0 to 1); needs `collect`
  DType cache =
      DType::kBF16;  // what config.json asks for of cached keys and values: bf16, i8, f8e4m3
  bool error_feedback = false;  // GPTQ; needs `collect`
  double damping = 0.01;        // of error feedback
  bool act_order = true;        // likewise
  // Layer after layer, product after product: each is calibrated on what it reads when all in front
  // of it is rounded, and makes up for how that differs from what the float model gives it. With
  // `error_feedback`, without factors, of models without experts; needs `use_rounded` too.
  bool sequential = false;
  // Whether norms, and products in front of others, take factors.
  bool takes_factors() const { return search_scales || smoothing.has_value(); }
  // Integers of the head have 8 bits and a scale for each row.
  kernels::WeightFormat head_format() const {
    const bool integers =
        format.scheme == kernels::Scheme::kInteger && format.inputs == DType::kBF16;
    return integers ? kernels::kInt8PerRow : format;
  }
  // Modules that stay as they are: patterns of names without ".weight", * for any characters.
  std::vector<std::string> exclude;
  // Modules that become kInt8PerRow in the place of `format`, which are integers with inputs of
  // bf16: patterns likewise.
  std::vector<std::string> int8_modules;
  // Likewise of the layers' value projections and down projections, experts' too: GGUF's "Q4_K_M"
  // has more bits for the same. Not where a tensor has other weights as well.
  bool more_bits = false;
  std::set<std::string, std::less<>> int8_tensors;  // by more_bits; quantize_checkpoint() sets them
  kernels::WeightFormat format_of(std::string_view tensor) const;
  CollectInputs collect;
  std::string calibration;  // whatever `collect` depends on, as a text of any form
  UseRounded use_rounded;
  uint64_t statistics_bytes = uint64_t{1} << 30;  // for layers calibrated together; one at least
  std::function<void(const QuantizeProgress&)> progress;  // after each layer
};

struct QuantizeReport {
  int64_t num_matrices = 0;  // that were rounded
  int64_t num_int8 = 0;      // of them by QuantizeOptions::int8_modules and more_bits
  int64_t num_unseen = 0;    // of them by QuantizeProgress::num_unseen
  int64_t num_left = 0;      // of products, that were not: excluded, or not of this layout
  uint64_t bytes_before = 0, bytes_after = 0;
};

// Writes config.json, model.safetensors and copies of the tokenizer's files and
// generation_config.json. The embedding stays as it is, and so does the head unless it is asked
// for, which it cannot where it is the embedding or is not stored as rows of floats. With
// `search_scales` or `smoothing` norms, and products in front of others, take the inverse of the
// factors; matrices that choose experts take the factors themselves. Experts that lie stacked in
// one tensor become a tensor each. One layer's matrices are in memory at a time, of its experts
// one's, and the statistics. Experts that the text showed too few rows are rounded plainly. The
// directory appears when it is complete, in place of an older one. What was done before a failure,
// or the process's end, stays in output_dir and ".partial"; a later call with the same options and
// model goes on there and gives the same bytes, one with others begins anew. InvalidArgument: the
// model is at fault, or is quantised already; no matrix is left to round; output_dir is model_dir
// or has other files. Unimplemented: another layout. Unavailable: cannot write. Errors of
// `collect`.
StatusOr<QuantizeReport> quantize_checkpoint(const QuantizeOptions& options, ThreadPool& pool);

// Whether `name` matches a pattern, see QuantizeOptions::exclude.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace nereid::convert
