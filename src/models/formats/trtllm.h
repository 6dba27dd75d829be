// TensorRT-LLM checkpoint layout: config.json with `architecture` and `dtype`, a rankN.safetensors
// per rank. Source: docs/source/legacy/architecture/checkpoint.md of NVIDIA/TensorRT-LLM. Read and
// written here; all other code uses traits and weights.
//
// One table (trtllm_layout.cc) maps each tensor of a rank to the graph's weights. Writing uses it
// forwards, reading and merging backwards.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "models/family.h"

namespace nereid::models {

inline constexpr int32_t kMaxRanks = 1024;

// The ranks with defaults of the experts (-1: not given). InvalidArgument with field, value and
// what is allowed.
StatusOr<Ranks> check_ranks(Ranks ranks);

// "rank3.safetensors", or "rank3.engine"
std::string rank_file_name(int32_t rank, bool in_engine = false);

bool is_trtllm_config(const json::object& config);

// The architecture of a `gpt_variant`; empty: unsupported. gpt_variants(): a comma-separated list.
std::string_view architecture_of_gpt(std::string_view variant);
std::string gpt_variants();

// `mapping`, and the partition of the embedding. Errors: file, field, value, allowed values.
StatusOr<Ranks> read_ranks(const json::object& config, const std::string& where);

// Null for kNone.
json::value id_or_null(int32_t id);

// `mapping` of a checkpoint for these ranks.
json::object mapping_of(const Ranks& ranks);

// Settings of `quantization`. InvalidArgument with field, value and what is allowed.
StatusOr<Quantization> read_trtllm_quantization(const json::object& config,
                                                const std::string& where);

// Whether a tensor of a rank belongs to a quantised weight, or scales activations or the cache.
bool is_quantization_part(std::string_view name);

// Replaces the tensors of each quantised matrix by the matrix. `shapes`: by weight name, which may
// end in "@rankN". InvalidArgument with tensor and reason.
using TensorShapes = std::map<std::string, std::vector<int64_t>, std::less<>>;
Status join_rank_tensors(const Quantization& quantization, const TensorShapes& shapes,
                         io::Checkpoint& checkpoint);

// Whether weight-only quantisation applies to a rank's tensor of this name.
bool is_weight_only_name(std::string_view name);

// Refuses unsupported settings (file, field, value, what is allowed), then adds fields with
// defaults of this layout: `architectures`, norm epsilon, activation, sizes, experts.
Status complete_trtllm_config(json::object& config, const std::string& where);

// Traits read from a completed config; unread fields that change the computation are refused.
StatusOr<Traits> read_trtllm_traits(const json::object& config, const std::string& where,
                                    const Family& family);

// Whether the engine is pruned by its config.json: weights are left out and refitted later.
bool is_pruned(const json::object& config);

// Sets `tie_word_embeddings` by whether the last stage's file has a head.
Status find_trtllm_head(json::object& config, const std::filesystem::path& last_stage);

// Checks fields against the built graph: positions, head norms, experts.
Status check_trtllm_config(const json::object& config, const std::string& where,
                           const Model& model);

// config.json of a checkpoint with tensors of `dtype` (bfloat16, float16, float32) for `ranks`.
// Extra fields: special token ids, and fields of the model's own config.json without a name in this
// layout. Unimplemented: the family's reader would not read the same model back.
StatusOr<json::object> trtllm_config(const Model& model, std::string_view dtype,
                                     const Ranks& ranks);

// Whether a model that was written in this layout is read as the same model; Unimplemented
// with the first difference of the traits.
Status check_same_traits(std::string_view architecture, const Traits& own, const Traits& read);

// Rows [row, row + rows), columns [col, col + cols) of a weight [experts * n, k]; vectors: k = 1.
// Weight kNone: zeros.
struct RankBlock {
  graph::WeightId weight = graph::kNone;
  int64_t row = 0, rows = 0, col = 0, cols = 0;
  bool transposed = false;  // transposed in the tensor
  int64_t tensor_rows() const { return transposed ? cols : rows; }
};

// Positions that the convolutions of an audio encoder read.
inline constexpr int64_t kConvolutionWindow = 3;
// The position bias of a decoder, which its layers have as well.
inline constexpr std::string_view kSharedTableName = "rel_attn_table";

// A tensor of a rank: blocks on top of each other, then zero rows up to its shape.
struct RankTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<RankBlock> blocks;
  bool is_f32 = false;      // independent of the checkpoint's type
  bool is_stacked = false;  // experts along the first dimension
};

// The tensors of rank `rank` in file order. InvalidArgument: indivisible sizes (field, value, what
// is allowed); Unimplemented: a weight without a name in the layout.
StatusOr<std::vector<RankTensor>> rank_tensors(const graph::Graph& graph, const Ranks& ranks,
                                               int32_t rank);

// Replaces the weights' parts by the ranks' tensors; with several files "@rankN" is appended to
// names. Errors as rank_tensors().
Status use_rank_tensors(graph::Graph& graph, const Ranks& ranks);

}  // namespace nereid::models
