// The engine's plan: a flat list of kernel calls over two planned arenas and a table of weights.
// It is what the compiler hands to exec, and the header of an engine file.
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

// What the rows of a value are: all tokens of a step, or only the positions whose logits are
// wanted. Each extent has an arena of its own.
enum class Extent : uint8_t { kTokens = 0, kSampled = 1 };
inline constexpr int kNumExtents = 2;

// A token-packed matrix [rows of extent, cols] in the arena of its extent. The plan does not know
// how many rows a server will allow, so offsets are per row. Element (row, col) is at
//   arena + offset * max_rows + (row * stride + column + col) * size_of(dtype)
// with max_rows = the most rows of that extent (tokens per step, or rows of logits per step). With
// an arena aligned to 64 bytes every value's first row (column 0) is aligned to 64 bytes. Values
// whose lives do not overlap share memory; slices (column > 0 or stride > cols) are parts of a
// wider matrix that is also in the table.
struct Value {
  std::string name;  // for people: "layers.0.attn.qkv"
  Extent extent = Extent::kTokens;
  DType dtype = DType::kF32;
  int64_t cols = 0;
  int64_t stride = 0;      // elements between rows, >= column + cols
  int64_t column = 0;      // first element within a row of the wider matrix
  int64_t offset = kNone;  // bytes per row, a multiple of 64; in a graph kNone until it is planned
};

// A part of a weight in the weight blob.
struct Plane {
  kernels::PlaneShape shape;
  uint64_t offset = 0;    // bytes from the start of the blob, a multiple of 64
  uint64_t checksum = 0;  // weight_checksum() of the stored bytes
};

// A matrix [n, k] (vectors: n = 1).
struct Weight {
  std::string name;  // "layers.0.attn.qkv"
  kernels::WeightFormat format;
  int64_t n = 0, k = 0;
  kernels::WeightLayout layout = kernels::WeightLayout::kRowMajor;  // of all planes
  std::vector<Plane> planes;  // those that kernels::planes_of() lists, in its order
  int64_t experts = 1;        // matrices in each plane
};

// A weight as a kernel gets it, its blob at `blob`; null: without addresses.
kernels::WeightView view_of(const Weight& weight, const std::byte* blob);

// One kernel call: an op of kernels/api/ops.h. Operands are read or updated exactly as the op's
// contract says; an output in place of an input is a value with the same place. A call whose extent
// has no rows in a step is skipped.
using Op = kernels::OpIn<kernels::Ids>;
struct Call {
  Op op;
  std::string kernel;  // the row chosen for it; "" = chosen when the plan is bound (Role::kCache)
};

// Angles of rotary position embedding: at position p the table row is
//   attention_factor * cos(p * inverse_frequencies[i]), then attention_factor * sin(...),
// computed in f32.
struct RopeTable {
  std::vector<float> inverse_frequencies;
  float attention_factor = 1;
};

// What the runtime must know about the model apart from the calls.
struct ModelFacts {
  std::string name;          // last component of the model directory
  std::string architecture;  // "LlamaForCausalLM"
  std::string source_dir;    // absolute; tokenizer files are there
  int32_t vocab_size = 0;    // ids the model knows: columns of the logits
  int32_t hidden_size = 0;   // columns of what the head reads
  int32_t num_layers = 0;    // layers with a KV cache
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t latent = 0;            // see kernels::Heads
  int32_t max_positions = 0;     // longest sequence, prompt and output together
  std::vector<RopeTable> ropes;  // what the calls' angles name
  int32_t bos_id = kNone;        // kNone = the model has none
  int32_t pad_id = kNone;        // likewise
  std::vector<int32_t> end_ids;  // generation_config.json's eos ids, then config.json's
  DType kv_dtype = DType::kBF16;
};

// Rows first, first + step, ... of a matrix, `size` of them.
struct RowRun {
  int64_t first = 0, size = 0, step = 1;
  bool operator==(const RowRun&) const = default;
};

// Columns of a product that an adapter may add to: those that one weight of the family makes. An
// adapter is made for a Hugging Face checkpoint, whatever layout the engine was made from.
struct AdapterModule {
  std::string name;  // of the weight: "layers.0.attn.q"; of an expert: "layers.0.mlp.gate[3]"
  int64_t k = 0, n = 0;
  int64_t column = 0;      // the first one in the product's output, or in an expert's piece of it
  bool of_tokens = false;  // an embedding: k tokens in place of a row of k numbers
  // The matrix in Hugging Face's layout of the family, without ".weight". Of several in one tensor:
  // "name[3]", where it is every other row of one "name[3][0::2]" or "name[3][1::2]".
  std::string source;
  int64_t source_rows = 0;   // of that matrix; 0: n, in order
  std::vector<RowRun> rows;  // of them those of the module, in its order; with source_rows alone

  // The matrix has other rows, or has them in another order.
  bool has_rows() const { return source_rows > 0; }
  int64_t num_source_rows() const { return has_rows() ? source_rows : n; }
  // For each row of the module the matrix's. Calls `visit` with both numbers.
  template <class Visit>
  void for_rows(Visit&& visit) const {
    int64_t row = 0;
    if (!has_rows())
      for (; row < n; ++row) visit(row, row);
    for (const RowRun& run : rows)
      for (int64_t i = 0; i < run.size; ++i) visit(row++, run.first + i * run.step);
  }
};

struct Plan {
  ModelFacts model;
  std::vector<Value> values;
  std::vector<Weight> weights;
  std::vector<Call> calls;             // in order
  std::vector<AdapterModule> modules;  // those of the low_rank calls, in order, by expert
  ValueId logits = kNone;              // f32 [sampled, vocab_size]
  // bf16 [sampled, hidden_size] each: what the last norm hands to the head, then what some layers
  // read; empty: there are none.
  std::vector<ValueId> hidden;
  int64_t arena_bytes_per_row[kNumExtents] = {};  // by Extent, multiples of 64
  uint64_t blob_bytes = 0;                        // of all weights
  std::string device;                             // "cpu" or "cuda"
  std::string target;                             // instruction set or SM it was chosen for, then
                                                  // the CPU where kernels were measured on one
  kernels::ProductChoices choices;                // of a GPU's library of products
};

// "embed", "norm", ...: kName of the op.
std::string_view name_of(const Op& op);

// Checksum of one plane's stored bytes: XXH3 chained over pieces of kChecksumPiece bytes, so that
// it can be computed while streaming.
inline constexpr size_t kChecksumPiece = size_t{1} << 20;
uint64_t weight_checksum(const void* data, size_t bytes);

// Proves that a plan is safe to run: ids, shapes and types of every call, memory ranges, formats of
// weights, sizes of their planes and their ranges within the blob. InvalidArgument naming the call
// or table row. Every plan read from a file has passed it.
Status check_plan(const Plan& plan);

// The plan as JSON and back (the header of an engine file). from_json: InvalidArgument naming the
// field; the result has passed check_plan().
json::value plan_to_json(const Plan& plan);
StatusOr<Plan> plan_from_json(const json::value& value);

}  // namespace nereid::io
