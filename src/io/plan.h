// Plan: a flat list of kernel calls over two arenas and a table of weights; output of the compiler,
// input of exec, header of an engine file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "kernels/api/ops.h"
#include "kernels/api/pack.h"
#include "kernels/api/product_choices.h"
#include "tensor/dtype.h"

namespace nereid::io {

using ValueId = int32_t;   // index in Plan::values
using WeightId = int32_t;  // index in Plan::weights
using kernels::kNone;

// Row dimension of a value: all tokens of a step, or the positions with logits. One arena each.
enum class RowCount : uint8_t { kTokens = 0, kSampled = 1 };
inline constexpr int kNumExtents = 2;

// A token-packed matrix [rows of extent, cols] in its extent's arena. Offsets are per row, because
// the number of rows is a server limit. Element (row, col) is at
//   arena + offset * max_rows + (row * stride + column + col) * size_of(dtype)
// with max_rows = maximum rows of that extent (tokens, or rows of logits, per step). With a 64-byte
// aligned arena, row 0 of every value (column 0) is 64-byte aligned. Values with disjoint lifetimes
// share memory; slices (column > 0 or stride > cols) are parts of a wider matrix in the table.
struct Value {
  std::string name;  // for people: "layers.0.attn.qkv"
  RowCount extent = RowCount::kTokens;
  DType dtype = DType::kF32;
  int64_t cols = 0;
  int64_t stride = 0;      // elements between rows, >= column + cols
  int64_t column = 0;      // first column in the wider matrix
  int64_t offset = kNone;  // bytes per row, a multiple of 64; in a graph kNone until planned
};

// A plane of a weight in the blob.
struct Plane {
  kernels::PlaneShape shape;
  uint64_t offset = 0;    // in the blob, a multiple of 64 bytes
  uint64_t checksum = 0;  // weight_checksum() of the stored bytes
};

// A matrix [n, k]; vectors: n = 1.
struct PlanWeight {
  std::string name;  // "layers.0.attn.qkv"
  kernels::WeightFormat format;
  int64_t n = 0, k = 0;
  kernels::WeightLayout layout = kernels::WeightLayout::kRowMajor;  // of all planes
  std::vector<Plane> planes;  // in the order of kernels::planes_of()
  int64_t experts = 1;        // matrices per plane
};

// The weight argument of a kernel, with the blob at `blob`; null: without addresses.
kernels::WeightView view_of(const PlanWeight& weight, const std::byte* blob);

// A kernel call: an op of kernels/api/ops.h with operands by id, read and updated as the op
// defines. An in-place output is a value at the input's position. Calls whose extent has no rows in
// a step are skipped.
using Op = kernels::PlanOpIn<kernels::Ids>;
struct Call {
  Op op;
  // Chosen kernel; "": chosen when the plan is bound (Role::kCache), or an op of exchange.
  std::string kernel;
};

// RoPE table: row p =
struct RopeTable {
  std::vector<float> inverse_frequencies;
  float attention_factor = 1;
  // Component of the position by frequency (kernels::kPositionComponents); empty: the position.
  std::vector<int32_t> components;
};

inline constexpr int32_t kMaxDeepLayers = 16;

// Pictures that a model takes. An encoder's input are the patches of a picture, rows of pixel
// values; its output a row of features for each block of merge x merge patches.
struct PictureFacts {
  int32_t patch_width = 0;      // numbers of a patch; 0: the model takes no pictures
  int32_t merge = 1;            // side of a block, in patches
  int32_t class_tokens = 0;     // rows in front of a picture's patches, which have no features
  int32_t grid = 0;             // side of every picture, in patches; 0: pictures of any size
  int32_t max_frames = 1;       // of a picture, or tiles
  int32_t frame_positions = 1;  // positions from a frame to the next, of a text with components
  int32_t window = 0;           // side of the windows of some layers, in patches; 0: none
  bool in_raster = false;       // patches come row by row; else block by block
  bool row_breaks = false;      // a text token stands behind each row of tokens
  bool has_components = false;  // the encoder's positions are those of patches in the plane
  // The decoder's attention: a picture's tokens, or all of a prompt, attend to one another.
  bool whole_pictures = false, whole_prompts = false;
  // A picture is its frame 0, and again the other frames: tiles in rows and columns, whose rows of
  // tokens end with one for the decoder's kernels::Embed::row_end.
  bool tiles_in_plane = false;
  // Planes of more than this many tiles' features are blended into as many as these have; the
  // encoder gives the features that tokens read, in order. 0: planes stay, whole.
  int32_t blended_tiles = 0;
  // A picture is tiles in rows and columns, max_frames of them at most; the encoder attends among
  // all of these, of which missing ones are zeros, and `frame_padding` rows of zeros in each. The
  // decoder reads them by cross attention; one token stands for them, kernels::Embed::row_end.
  bool in_cross = false;
  int32_t frame_padding = 0;
  // Layers of the decoder, from the first one on, behind which a feature's further columns are
  // added: a feature has 1 + deep_layers times the embedding's columns.
  int32_t deep_layers = 0;
  bool attends_ahead() const { return whole_pictures || whole_prompts; }
  bool operator==(const PictureFacts&) const = default;
};

// Model facts for the runtime.
struct ModelFacts {
  std::string name;          // last component of the model directory
  std::string architecture;  // "LlamaForCausalLM"
  std::string source_dir;    // absolute; directory of tokenizer files
  int32_t vocab_size = 0;    // columns of the logits
  int32_t hidden_size = 0;   // width of the head's input
  int32_t num_layers = 0;    // with a KV cache
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t latent = 0;            // see kernels::Heads
  int32_t max_positions = 0;     // maximum sequence length
  std::vector<RopeTable> ropes;  // indexed by the calls' `angles`
  int32_t bos_id = kNone;        // kNone: none
  int32_t pad_id = kNone;        // kNone: none
  std::vector<int32_t> end_ids;  // eos ids of generation_config.json, then of config.json
  DType kv_dtype = DType::kBF16;
  // Models with an encoder are two plans: a decoder and its encoder.
  int32_t num_cross_layers = 0;      // layers with cross attention; 0: no encoder
  int32_t decoder_start_id = kNone;  // first token of a decoder's prompt; kNone: none
  int32_t forced_bos_id = kNone;     // second token of that prompt; kNone: none
  bool is_encoder = false;           // no logits: `hidden` is the output, a row for each token
  int32_t encoder_positions = 0;     // a decoder's: maximum length of its encoder's input
  bool reads_features = false;       // the encoder's input is numbers, not token ids
  PictureFacts pictures;             // of both plans
};

// A KV cache of a layer.
struct LayerCache {
  int32_t layer = 0;
  int32_t window = 0;  // the model's; 0: full attention
  int32_t num_kv = 0;  // heads on each rank
  int32_t dim = 0, latent = 0;
  bool operator==(const LayerCache&) const = default;
};

// Division of a model among tp * pp ranks: rank = stage * tp + tensor rank. Within a stage, experts
// are divided by index among `ep` groups of tensor ranks (tensor rank % ep) and inside among the
// tp / ep ranks of a group (tensor rank / ep).
struct Mapping {
  int32_t tp = 1, pp = 1, ep = 1;
  int32_t rank = 0;
  // Results have the bits of one rank with this option: sums of k-divided products are those of
  // kInvariantParts parts for any tp.
  bool invariant = false;

  int32_t world() const { return tp * pp; }
  int32_t stage() const { return rank / tp; }
  int32_t tensor_rank() const { return rank % tp; }
  bool is_last_stage() const { return stage() == pp - 1; }
  bool draws() const { return is_last_stage() && tensor_rank() == 0; }  // samples tokens
  bool is_single() const { return world() == 1; }
  bool operator==(const Mapping&) const = default;
};
inline constexpr int32_t kMaxRanks = 64;
inline constexpr int32_t kInvariantParts = 8;

// "tp 4, pp 2, rank 3".
std::string text_of(const Mapping& mapping);
// InvalidArgument: a number out of range, tp no multiple of ep, a rank outside the world.
Status check_mapping(const Mapping& mapping);

// Rows first, first + step, ... of a matrix, `size` of them.
struct RowRun {
  int64_t first = 0, size = 0, step = 1;
  bool operator==(const RowRun&) const = default;
};

// Adapter module: columns of a product computed by one weight of the family. Adapters refer to the
// Hugging Face checkpoint, independent of the engine's source layout.
struct AdapterModule {
  std::string name;  // "layers.0.attn.q"; of an expert: "layers.0.mlp.gate[3]"
  int64_t k = 0, n = 0;
  int64_t column = 0;      // first column in the product's output, or in an expert's piece of it
  bool of_tokens = false;  // embedding: input is one of k tokens
  // The family's matrix in Hugging Face's layout, without ".weight". Stacked: "name[3]"; every
  // second row: "name[3][0::2]" or "name[3][1::2]".
  std::string source;
  int64_t source_rows = 0;   // rows of that matrix; 0: n, in order
  std::vector<RowRun> rows;  // with source_rows: the module's rows, in order

  // Whether the module's rows differ from the matrix's, or are reordered.
  bool has_rows() const { return source_rows > 0; }
  int64_t num_source_rows() const { return has_rows() ? source_rows : n; }
  // Calls visit(module row, matrix row) for each row.
  template <class Visit>
  void for_rows(Visit&& visit) const {
    int64_t row = 0;
    if (!has_rows())
      for (; row < n; ++row) visit(row, row);
    for (const RowRun& run : rows)
      for (int64_t i = 0; i < run.size; ++i) visit(row++, run.first + i * run.step);
  }
};

// A module on one rank of several: the `runs` of its n columns, side by side from `column` of the
// rank's product (or of an expert's piece) on.
struct ModulePart {
  int32_t module = 0;  // of Plan::modules
  int64_t column = 0;
  std::vector<RowRun> runs;  // step 1
  int64_t n() const {
    int64_t size = 0;
    for (const RowRun& run : runs) size += run.size;
    return size;
  }
  bool operator==(const ModulePart&) const = default;
};

struct Plan {
  ModelFacts model;
  Mapping mapping;  // whose rank the plan is
  // Caches of all layers of the model, in order, if pp > 1; else empty: those of the calls.
  std::vector<LayerCache> caches;
  std::vector<Value> values;
  std::vector<PlanWeight> weights;
  std::vector<Call> calls;             // in order
  std::vector<AdapterModule> modules;  // of the low_rank calls, in order, by expert
  // Module parts of this rank's low_rank calls, with several ranks; calls index them.
  std::vector<ModulePart> module_parts;
  ValueId logits = kNone;  // f32 [sampled, vocab_size]; kNone: not the last stage
  // bf16 [sampled, hidden_size] each: input of the head, then of selected layers; may be empty. An
  // encoder has one: of [tokens, hidden_size], or the features of pictures [sampled, hidden_size].
  std::vector<ValueId> hidden;
  int64_t arena_bytes_per_row[kNumExtents] = {};  // by RowCount, multiples of 64
  uint64_t blob_bytes = 0;                        // of all weights
  std::string device;                             // "cpu" or "cuda"
  std::string target;                             // instruction set or SM; for measured kernels
                                                  // also the CPU
  kernels::AlgorithmChoices choices;              // of a GPU's product library
};

// Whether an op's cache layers are those of cross attention.
template <class Op>
inline constexpr bool kIsCross =
    std::is_same_v<kernels::in_form<Op, kernels::Ids>, kernels::ids::CrossAttention> ||
    std::is_same_v<kernels::in_form<Op, kernels::Ids>, kernels::ids::StoreKv>;

// "embed", "norm", ...: kName of the op.
std::string_view name_of(const Op& op);

// Checksum of a plane's bytes: XXH3 chained over pieces of kChecksumPiece bytes, for streaming.
inline constexpr size_t kChecksumPiece = size_t{1} << 20;
uint64_t weight_checksum(const void* data, size_t bytes);

// Proves that a plan is safe to run: ids, shapes and types of calls, memory ranges, weight formats,
// plane sizes and ranges. InvalidArgument: call or table row. Files' plans have passed it.
Status check_plan(const Plan& plan);

// Conversion to and from JSON (engine file header). from_json: InvalidArgument with the field; the
// result has passed check_plan().
json::value plan_to_json(const Plan& plan);
StatusOr<Plan> plan_from_json(const json::value& value);

}  // namespace nereid::io
