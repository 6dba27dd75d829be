// Model family: reader of config.json, weight table, graph.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "graph/ir.h"
#include "io/safetensors.h"
#include "models/config.h"
#include "models/decoder.h"
#include "models/encoder.h"
#include "models/formats/quantized.h"
#include "models/pictures.h"
#include "models/traits.h"
#include "models/weights.h"

namespace nereid::models {

struct Family {
  std::string_view architecture;  // config.json's architectures[0]
  // Errors are kept in config.status().
  Traits (*read_traits)(Config& config) = nullptr;
  const DecoderWeights* weights = nullptr;
  // Prefix of all tensor names; a checkpoint may omit it in all of them.
  std::string_view optional_prefix = "";
  Ignores ignores = decoder_ignores;
  // Encoder-decoder models: the encoder's traits and weights.
  Traits (*read_encoder_traits)(Config& config) = nullptr;
  const EncoderWeights* encoder = nullptr;
};

// A model of text and pictures: a decoder (`text_config`) and an encoder of pictures.
struct PictureFamily {
  std::string_view architecture;  // config.json's architectures[0]
  std::string_view kind;          // `model_type` of `vision_config`, if it decides
  // The encoder's traits, of the whole config.json and the decoder's traits.
  Traits (*read_traits)(Config& config, const Traits& decoder) = nullptr;
  const DecoderWeights* weights = nullptr;
  const TileEncoderWeights* tiles = nullptr;  // in place of `weights`, see pictures.h
};

// Halves of a model with an encoder; other models have a decoder alone.
enum class Half : uint8_t { kDecoder, kEncoder };

// All families (all.cc).
std::span<const Family> families();

// Models of pictures (all.cc).
std::span<const PictureFamily> picture_families();

// InvalidArgument for an unknown architecture, with the supported ones.
StatusOr<const Family*> find_family(std::string_view architecture);

// Checkpoint layouts.
enum class Layout : uint8_t {
  kHuggingFace,  // config.json with `architectures`, model*.safetensors
  kTrtLlm,       // config.json with `architecture` and `dtype`, rankN.safetensors
  kGguf,         // one file
  kMeta,         // params.json, consolidated.NN.pth
  kOpenAi,       // one PyTorch file of Whisper
};

// Partition of a TensorRT-LLM checkpoint.
struct Ranks {
  int32_t tp = 1, pp = 1;           // ranks per layer (tensor parallelism); pipeline stages
  int32_t moe_tp = 1, moe_ep = 1;   // of experts: moe_tp * moe_ep = tp
  bool parallel_embedding = false;  // token and position tables are partitioned too,
  int32_t embedding_dim = 0;        // by rows (0) or by columns (1)
  int32_t num_files() const { return tp * pp; }
  bool operator==(const Ranks&) const = default;
};

// Partition of a Llama in Meta's files.
struct MetaShares {
  int32_t num_files = 1;
  bool embed_columns = false;  // the embedding is split by columns, not rows
};

// A folder of ranks' tensors in the TensorRT-LLM layout.
struct RankFolder {
  std::filesystem::path dir;
  graph::Graph graph;  // its weights, read from the ranks' tensors
  Ranks ranks;
  Quantization quantization;
  bool in_engines = false;  // tensors are in rankN.engine
  bool is_tied = false;     // a head may be present all the same
};

// Contents of a GGUF file.
struct GgufLayout {
  std::string architecture;
  std::set<std::string, std::less<>> tensors;
  // One-element vectors stored as metadata, by tensor name.
  std::map<std::string, float, std::less<>> numbers;
  int32_t num_layers = 0, num_mtp_layers = 0;  // num_mtp_layers: MTP layers
};

// config.json and generation_config.json of a model directory, or GGUF metadata; no weights.
struct Model {
  const Family* family = nullptr;
  Layout layout = Layout::kHuggingFace;
  Ranks ranks;                // kTrtLlm
  bool in_engines = false;    // kTrtLlm: tensors are in rankN.engine
  MetaShares meta;            // kMeta
  GgufLayout gguf;            // kGguf
  bool is_text_part = false;  // kHuggingFace: the text part of a larger model, see text_part.h
  const PictureFamily* pictures = nullptr;  // null: the model takes none
  json::object whole;                       // config.json of a model that takes pictures
  Half half = Half::kDecoder;
  std::vector<RankFolder> folders;  // kTrtLlm: of an encoder-decoder model's halves, its own first
  Quantization quantization;        // kHuggingFace and kTrtLlm
  json::object config;              // config.json, unchanged or converted
  Traits traits;
  graph::Graph graph;  // built by the family and verified; graph.model has the facts
};

// Reads `dir`/config.json (and generation_config.json), or Meta's params.json; `dir` may be a GGUF
// file. Errors have file, field, value and what is allowed. An engine directory of several ranks is
// read as its checkpoint; one of a single rank is refused. kEncoder: the encoder of an
// encoder-decoder model, or of one that takes pictures, with its traits and graph; InvalidArgument:
// another model. `dir` is the decoder's folder of a model in two folders, or the encoder's, whose
// half is always the encoder.
StatusOr<Model> read_model(const std::filesystem::path& dir, Half half = Half::kDecoder);

// Takes out of a decoder what it has for pictures alone, as other layouts have it.
Status leave_text_part(Model& model);

// The tensors of the checkpoint that the model does not need.
Ignores ignores_of(const Model& model);

// Weights of a model directory, named as in model.graph, in any layout; `model` = read_model(dir).
// Errors as Checkpoint::open(); InvalidArgument: a tensor cannot be split as configured.
StatusOr<io::Checkpoint> open_checkpoint(const Model& model, const std::filesystem::path& dir);

}  // namespace nereid::models
