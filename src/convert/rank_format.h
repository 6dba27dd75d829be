// Weight formats of products in a TensorRT-LLM checkpoint: `quantization` of config.json, and the
// tensors of each matrix. Codes are the source's, or rounded here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "convert/quantize/rank_rounding.h"
#include "io/checkpoint.h"
#include "io/safetensors_writer.h"
#include "models/formats/trtllm.h"

namespace nereid::convert {

struct RankAlgorithm;

// Largest magnitudes in a calibration text, by weight ("layers.0.attn.q").
struct Magnitudes {
  std::map<std::string, float> inputs;   // of the product's inputs
  std::map<std::string, float> outputs;  // of the product's results
};

// Whether format `weights` (RankFormatOptions) has static input factors, which need magnitudes.
bool has_static_inputs(std::string_view weights);

struct RankFormatOptions {
  std::string weights;  // see ConvertOptions
  DType dtype = DType::kBF16;
  DType cache = DType::kBF16;  // KV cache type: bf16, i8 or f8e4m3
  double smoothing = 0.5;      // SmoothQuant strength of the source
  const Magnitudes* magnitudes = nullptr;
  bool rounds = true;
  int32_t group = 0;
};

class RankFormat {
 public:
  // `graph` has stored formats (models::use_stored_formats()); graph, checkpoint and magnitudes
  // must outlive this. `ranks`: the tensors of all ranks. InvalidArgument: unknown format; the
  // source has no such codes, or others too (with a tensor); static factors without magnitudes.
  static StatusOr<RankFormat> create(const RankFormatOptions& options, const graph::Graph& graph,
                                     const io::Checkpoint& checkpoint,
                                     std::span<const std::vector<models::RankTensor>> ranks);

  enum class Use : uint8_t { kFloats, kRounded, kTaken };
  Use use_of(const models::RankTensor& tensor) const;
  RankType rounding() const;

  // Tensors of the file for a rank's tensor: its numbers or codes first. InvalidArgument: an odd
  // number of 4-bit rows, or columns that are not whole groups.
  StatusOr<std::vector<io::TensorInfo>> infos(const models::RankTensor& tensor) const;

  using Append = std::function<Status(std::span<const std::byte>)>;
  // Appends the source's codes, in pieces of some rows.
  Status append_codes(const models::RankTensor& tensor, const Append& append) const;
  // Numbers of one of the further infos. `rounded`: scales of rounded rows. InvalidArgument:
  // different scales where the layout has one.
  StatusOr<std::vector<float>> numbers(const models::RankTensor& tensor, const io::TensorInfo& part,
                                       std::span<const float> rounded) const;

  // Whether products add their biases before ranks are summed, so that further ranks store zeros.
  bool adds_biases() const;
  json::object quantization() const;

 private:
  RankFormat(const RankFormatOptions& options, const graph::Graph& graph,
             const io::Checkpoint& checkpoint)
      : options_(options), graph_(graph), checkpoint_(checkpoint) {}

  Status check(const models::RankTensor& tensor);
  Status check_shape(const models::RankTensor& tensor) const;
  std::vector<int64_t> shape_of_scales(const models::RankTensor& tensor) const;
  Status find_group(const models::RankTensor& tensor);
  // One scale or offset per row and group, [rows, groups].
  StatusOr<std::vector<float>> stored(const models::RankTensor& tensor, bool offsets) const;
  int64_t group_of(const models::RankTensor& tensor) const;  // columns; 0: one scale per row
  int64_t groups_of(const models::RankTensor& tensor) const;
  bool rounds() const;
  int64_t group_size() const { return group_ > 0 ? group_ : widest_; }
  float largest(const models::RankTensor& tensor, const std::map<std::string, float>& of) const;
  // SmoothQuant plugins: integer steps per unit of the input; value of one step of the result.
  float input_steps(const models::RankTensor& tensor) const;
  float result_step(const models::RankTensor& tensor) const;
  bool has_cache_factor(const models::RankTensor& tensor) const;

  const RankFormatOptions options_;
  const graph::Graph& graph_;
  const io::Checkpoint& checkpoint_;
  const RankAlgorithm* algorithm_ = nullptr;  // null: floats
  int64_t group_ = 0;                         // columns, of matrices with several groups
  int64_t widest_ = 0;                        // columns, of matrices with one group
  bool head_has_codes_ = false;
  std::vector<std::string> excluded_;  // modules
};

}  // namespace nereid::convert
