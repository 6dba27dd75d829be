// The TensorRT-LLM checkpoint layout: config.json with `architecture` and `dtype`, one
// rankN.safetensors for each rank. Source: docs/source/legacy/architecture/checkpoint.md of
// NVIDIA/TensorRT-LLM. Read and written here; after that only traits and our weights exist.
//
// One table (trtllm_layout.cc) says for every family what each tensor of a rank holds of the
// graph's weights. Writing walks it forwards, reading and merging backwards.
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

// The ranks with the experts' defaults filled in (-1: not given). InvalidArgument naming the field,
// its value and what is allowed.
StatusOr<Ranks> check_ranks(Ranks ranks);

// "rank3.safetensors", or "rank3.engine"
std::string rank_file_name(int32_t rank, bool in_engine = false);

bool is_trtllm_config(const json::object& config);

// The architecture of a `gpt_variant`; empty for one that is not supported. Those that are, "a, b".
std::string_view architecture_of_gpt(std::string_view variant);
std::string gpt_variants();

// `mapping` and how the embedding is cut. Errors name file, field, value and what is allowed.
StatusOr<Ranks> read_ranks(const json::object& config, const std::string& where);

// What `quantization` says of the tensors. InvalidArgument naming the field, its value and what is
// allowed.
StatusOr<Quantization> read_trtllm_quantization(const json::object& config,
                                                const std::string& where);

// Whether such a checkpoint's tensor of this name (in a rank's file) belongs to a weight or scales
// activations or the cache.
bool is_quantization_part(std::string_view name);

// Puts matrices in place of the tensors that they are made of and leaves out the other parts.
// `shapes` has the shape of every weight by its name, which may end in "@rankN". InvalidArgument
// naming the tensor and what does not fit.
using TensorShapes = std::map<std::string, std::vector<int64_t>, std::less<>>;
Status join_rank_tensors(const Quantization& quantization, const TensorShapes& shapes,
                         io::Checkpoint& checkpoint);

// Whether convert_checkpoint's weight-only types apply to a rank's tensor of this name.
bool is_weight_only_name(std::string_view name);

// Refuses what this layout can say and we cannot run, naming file, field, value
// and what is allowed; then adds the fields that readers need and this layout gives defaults of its
// own: `architectures`, norm epsilon, activation, sizes, experts.
Status complete_trtllm_config(json::object& config, const std::string& where);

// The traits that the family's reader finds in a completed config; fields that change the numbers
// and that no reader looks at are refused.
StatusOr<Traits> read_trtllm_traits(const json::object& config, const std::string& where,
                                    const Family& family);

// Whether config.json says that the weights were left out: engines are built from such a directory
// that get theirs later.
bool is_pruned(const json::object& config);

// Sets `tie_word_embeddings` as the last stage's file has a head of its own or not.
Status find_trtllm_head(json::object& config, const std::filesystem::path& last_stage);

// Fields that only the built graph can be compared with: positions, norms of heads, experts.
Status check_trtllm_config(const json::object& config, const std::string& where,
                           const Model& model);

// config.json of a checkpoint whose tensors are stored as `dtype` (bfloat16, float16, float32) by
// `ranks`. Special token ids are there as extra fields, and so are fields of the model's own
// config.json that this layout has no name for. Unimplemented when the family's reader would not
// find the same model in it.
StatusOr<json::object> trtllm_config(const Model& model, std::string_view dtype,
                                     const Ranks& ranks);

// Rows [row, row + rows) and columns [col, col + cols) of a weight [experts * n, k]; the elements
// of a vector are rows of one column.
struct RankBlock {
  graph::WeightId weight = graph::kNone;
  int64_t row = 0, rows = 0, col = 0, cols = 0;
  bool turned = false;  // the tensor has its columns as rows
  int64_t tensor_rows() const { return turned ? cols : rows; }
};

// A tensor of a rank: blocks one above the other, then rows of zeros up to its shape.
struct RankTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<RankBlock> blocks;
  bool is_f32 = false;      // whatever the checkpoint's type
  bool is_stacked = false;  // of experts, along the first dimension; as rows, below each other
};

// What rank `rank` of `ranks` has, in file order. InvalidArgument: sizes that cannot be divided,
// naming the field, its value and what is allowed; Unimplemented: a weight that the layout has no
// name for.
StatusOr<std::vector<RankTensor>> rank_tensors(const graph::Graph& graph, const Ranks& ranks,
                                               int32_t rank);

// Makes the weights' parts those of the ranks' tensors; with several files a tensor's name is
// followed by "@rankN". Errors as rank_tensors().
Status use_rank_tensors(graph::Graph& graph, const Ranks& ranks);

}  // namespace nereid::models
