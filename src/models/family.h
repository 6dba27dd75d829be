// A model family: how to read its config.json, which tensors it has, how its graph is built.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "graph/ir.h"
#include "io/safetensors.h"
#include "models/config.h"
#include "models/decoder.h"
#include "models/quantized.h"
#include "models/traits.h"
#include "models/weights.h"

namespace nereid::models {

struct Family {
  std::string_view architecture;  // config.json's architectures[0]
  // Errors are left in config.status().
  Traits (*read_traits)(Config& config) = nullptr;
  const DecoderWeights* weights = nullptr;
  // Begins every tensor's name, except in checkpoints that leave it out of all.
  std::string_view optional_prefix = "";
  Ignores ignores = decoder_ignores;
};

// All families (all.cc).
std::span<const Family> families();

// InvalidArgument for an unknown architecture, naming those that are supported.
StatusOr<const Family*> find_family(std::string_view architecture);

// How a model is written down.
enum class Layout : uint8_t {
  kHuggingFace,  // config.json with `architectures`, model*.safetensors
  kTrtLlm,       // config.json with `architecture` and `dtype`, rankN.safetensors
  kGguf,         // one file
  kMeta,         // params.json, consolidated.NN.pth
};

// How a TensorRT-LLM checkpoint is shared out.
struct Ranks {
  int32_t tp = 1, pp = 1;           // ranks that share a layer; stages
  int32_t moe_tp = 1, moe_ep = 1;   // of experts: moe_tp * moe_ep = tp
  bool parallel_embedding = false;  // tables of tokens and positions are shared out too,
  int32_t embedding_dim = 0;        // by rows (0) or by columns (1)
  int32_t num_files() const { return tp * pp; }
  bool operator==(const Ranks&) const = default;
};

// How Meta's files share the weights of a Llama.
struct MetaShares {
  int32_t num_files = 1;
  bool embed_columns = false;  // of the embedding each has columns, not rows
};

// What a GGUF file has.
struct GgufLayout {
  std::string architecture;
  std::set<std::string, std::less<>> tensors;
  // Vectors of one number that stand in the metadata, under the names of tensors.
  std::map<std::string, float, std::less<>> numbers;
  int32_t num_layers = 0, num_extra_layers = 0;  // the latter predict further tokens
};

// A model directory's config.json and generation_config.json, or a GGUF file's metadata,
// understood; no weights.
struct Model {
  const Family* family = nullptr;
  Layout layout = Layout::kHuggingFace;
  Ranks ranks;                // of kTrtLlm
  bool in_engines = false;    // of kTrtLlm: the tensors are in rankN.engine
  MetaShares meta;            // of kMeta
  GgufLayout gguf;            // of kGguf
  bool is_text_part = false;  // of kHuggingFace: the files hold more, see text_part.h
  Quantization quantization;  // of kHuggingFace and kTrtLlm
  json::object config;        // config.json as it is, or what stands for it
  Traits traits;
  graph::Graph graph;  // as built by the family, verified; graph.model holds the facts
};

// Reads `dir`/config.json (and generation_config.json when there), or Meta's params.json; `dir` may
// be a GGUF file. Errors name file, field, value and what is allowed. An engine directory of
// several ranks is read as the checkpoint that it was made of; one of one rank is refused as such.
StatusOr<Model> read_model(const std::filesystem::path& dir);

// The weights of a model directory under the names that the model's graph uses, whatever the
// layout; `model` is what read_model(dir) gave. Errors as Checkpoint::open(), and InvalidArgument
// for a tensor that cannot be cut as config.json says.
StatusOr<io::Checkpoint> open_checkpoint(const Model& model, const std::filesystem::path& dir);

}  // namespace nereid::models
