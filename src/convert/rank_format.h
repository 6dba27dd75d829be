// What products' weights are in a TensorRT-LLM checkpoint: `quantization` of config.json, and the
// tensors that stand for each matrix. Their codes are rounded here, or those that the source has.
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
#include "convert/rank_rounding.h"
#include "io/checkpoint.h"
#include "io/safetensors_writer.h"
#include "models/trtllm.h"

namespace nereid::convert {

struct RankAlgorithm;

// The largest numbers that a calibration text showed, by weight ("layers.0.attn.q").
struct Magnitudes {
  std::map<std::string, float> inputs;   // of what its product reads
  std::map<std::string, float> outputs;  // of what its product makes
};

// Whether what `weights` of RankFormatOptions names has factors of static inputs, which need
// magnitudes.
bool has_static_inputs(std::string_view weights);

struct RankFormatOptions {
  std::string weights;  // see ConvertOptions
  DType dtype = DType::kBF16;
  DType cache = DType::kBF16;  // bf16, i8 or f8e4m3
  double smoothing = 0.5;      // that the source was made with
  const Magnitudes* magnitudes = nullptr;
  bool rounds = true;
  int32_t group = 0;
};

class RankFormat {
 public:
  // `graph` knows what is stored (models::use_stored_formats()); it, the checkpoint and the
  // magnitudes outlive this. `ranks`: the tensors of all ranks. InvalidArgument: no such word, or
  // one for which the source has no codes, or others as well, naming a tensor; static factors
  // without magnitudes.
  static StatusOr<RankFormat> create(const RankFormatOptions& options, const graph::Graph& graph,
                                     const io::Checkpoint& checkpoint,
                                     std::span<const std::vector<models::RankTensor>> ranks);

  enum class Use : uint8_t { kFloats, kRounded, kTaken };
  Use use_of(const models::RankTensor& tensor) const;
  RankType rounding() const;

  // What a tensor becomes in the file: its numbers or codes, then what belongs to it.
  // InvalidArgument: an odd number of rows of four bits, or columns that are no whole groups.
  StatusOr<std::vector<io::TensorInfo>> infos(const models::RankTensor& tensor) const;

  using Append = std::function<Status(std::span<const std::byte>)>;
  // The codes of a taken tensor, some rows at a time.
  Status append_codes(const models::RankTensor& tensor, const Append& append) const;
  // The numbers of one of the infos behind the first. `rounded`: the scales of rounded rows.
  // InvalidArgument: scales that differ where the layout has one.
  StatusOr<std::vector<float>> numbers(const models::RankTensor& tensor, const io::TensorInfo& part,
                                       std::span<const float> rounded) const;

  // Whether products add their biases themselves, so that ranks behind the first have zeros.
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
  // Of one scale or offset for each row and group, [rows, groups].
  StatusOr<std::vector<float>> stored(const models::RankTensor& tensor, bool offsets) const;
  int64_t group_of(const models::RankTensor& tensor) const;  // columns; 0: rows have one
  int64_t groups_of(const models::RankTensor& tensor) const;
  bool rounds() const;
  int64_t group_size() const { return group_ > 0 ? group_ : widest_; }
  float largest(const models::RankTensor& tensor, const std::map<std::string, float>& of) const;
  // Of SmoothQuant's plugins: integers for an input of 1, and the number that is 1 in a result.
  float input_steps(const models::RankTensor& tensor) const;
  float result_step(const models::RankTensor& tensor) const;
  bool has_cache_factor(const models::RankTensor& tensor) const;

  const RankFormatOptions options_;
  const graph::Graph& graph_;
  const io::Checkpoint& checkpoint_;
  const RankAlgorithm* algorithm_ = nullptr;  // null: floats
  int64_t group_ = 0;                         // columns, of matrices that have several
  int64_t widest_ = 0;                        // likewise of those that have one
  bool head_has_codes_ = false;
  std::vector<std::string> excluded_;  // modules
};

}  // namespace nereid::convert
