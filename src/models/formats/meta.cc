#include "models/formats/meta.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/ranges.h>

#include "io/checkpoint.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr int32_t kMaxFiles = 64;
constexpr const char* kEmbedding = "tok_embeddings.weight";

// Known fields of params.json; unknown ones may change the computation.
constexpr std::string_view kFields[] = {
    "dim",        "n_layers",     "n_heads",         "n_kv_heads",  "head_dim",
    "norm_eps",   "vocab_size",   "multiple_of",     "hidden_dim",  "ffn_dim_multiplier",
    "rope_theta", "rope_scaling", "use_scaled_rope", "max_seq_len", "max_batch_size"};

enum class MatrixAxis : uint8_t { kNone, kRows, kColumns };

// (graph weight, tensor name, cut among files).
struct TensorRow {
  std::string_view weight, tensor;
  MatrixAxis cut;
};
constexpr TensorRow kTensors[] = {{"embed", "tok_embeddings", MatrixAxis::kRows},
                                  {"norm", "norm", MatrixAxis::kNone},
                                  {"head", "output", MatrixAxis::kRows},
                                  {"attn.norm", "attention_norm", MatrixAxis::kNone},
                                  {"attn.q", "attention.wq", MatrixAxis::kRows},
                                  {"attn.k", "attention.wk", MatrixAxis::kRows},
                                  {"attn.v", "attention.wv", MatrixAxis::kRows},
                                  {"attn.out", "attention.wo", MatrixAxis::kColumns},
                                  {"mlp.norm", "ffn_norm", MatrixAxis::kNone},
                                  {"mlp.gate", "feed_forward.w1", MatrixAxis::kRows},
                                  {"mlp.up", "feed_forward.w3", MatrixAxis::kRows},
                                  {"mlp.down", "feed_forward.w2", MatrixAxis::kColumns}};

StatusOr<int32_t> count_files(const std::filesystem::path& dir) {
  std::error_code error;
  int32_t last = 0, count = 0;
  for (int32_t i = 0; i < kMaxFiles; ++i)
    if (std::filesystem::exists(dir / meta_file_name(i), error)) last = i, ++count;
  for (int32_t i = 0; i < last; ++i)
    if (!std::filesystem::exists(dir / meta_file_name(i), error))
      return not_found("{}: is missing; {} is there", (dir / meta_file_name(i)).string(),
                       meta_file_name(last));
  return count;
}

// MLP width: 2/3 of 4 * dim, rounded up to a multiple.
int64_t intermediate_size(Config& c, int64_t dim) {
  if (c.has("hidden_dim")) return c.integer("hidden_dim", 1, kMaxIntermediate);
  const int64_t multiple = c.integer("multiple_of", 1, kMaxIntermediate, 256);
  const double factor = c.number("ffn_dim_multiplier", 1e-3, 1e3, 1);
  const auto size = static_cast<int64_t>(factor * static_cast<double>(8 * dim / 3));
  return (size + multiple - 1) / multiple * multiple;
}

// params.json lacks the context length unless a user added `max_seq_len`. Published models are
// recognised by these fields: Llama 3.1 and later, Code Llama, Llama 3, Llama 1 (except its
// largest, which equals Llama 2), Llama 2.
int64_t usual_context(Config& c) {
  const double theta = c.number("rope_theta", 1.001, 1e12, 10000);
  if (c.boolean("use_scaled_rope", false)) return 131072;
  if (theta >= 1e6) return 16384;
  if (theta >= 5e5) return 8192;
  return c.number("norm_eps", 0, 1, 1e-5) < 5e-6 ? 2048 : 4096;
}

// Llama 3.2's small models have a larger factor than Llama 3.1, which params.json lacks.
json::value rope_scaling(Config& c, int64_t dim) {
  if (!c.boolean("use_scaled_rope", false)) {
    const json::object* own = c.object("rope_scaling");
    return own ? json::value(*own) : json::value(nullptr);
  }
  return {{"rope_type", "llama3"},
          {"factor", dim < 4096 ? 32.0 : 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
}

// Special ids of Meta's tokenizers: Llama 3 or SentencePiece.
void set_special_ids(int64_t vocab_size, json::object& config) {
  const bool is_llama3 = vocab_size == 128256;
  config["bos_token_id"] = is_llama3 ? 128000 : 1;
  config["eos_token_id"] = is_llama3 ? json::array{128001, 128008, 128009} : json::array{2};
}

// Rows of the embedding over all files, split by rows (Llama 3) or columns.
void read_vocabulary(Config& c, const io::TensorFile& first, int64_t dim, MetaShares& shares,
                     json::object& config) {
  const auto find = [&](std::string_view name) {
    return std::ranges::find(first.tensors(), name, &io::StoredTensor::name);
  };
  const auto embed = find(kEmbedding);
  const int64_t files = shares.num_files;
  const bool is_matrix = embed != first.tensors().end() && embed->shape.size() == 2;
  shares.embed_columns = is_matrix && embed->shape[1] != dim;
  if (!is_matrix || embed->shape[1] * (shares.embed_columns ? files : 1) != dim)
    return c.fail("dim", fmt::format("{}, but {} has no '{}' of as many columns, nor of an {}th of "
                                     "them",
                                     dim, first.path().filename().string(), kEmbedding, files));
  const int64_t vocab = embed->shape[0] * (shares.embed_columns ? 1 : files);
  const int32_t named = c.integer("vocab_size", -1, kMaxVocab, -1);
  if (named > 0 && named != vocab)
    c.fail("vocab_size", fmt::format("{}, but '{}' has {} rows", named, kEmbedding, vocab));
  config["vocab_size"] = vocab;
  config["tie_word_embeddings"] = find("output.weight") == first.tensors().end();
  set_special_ids(vocab, config);
}

// The parts of a weight in `files` files, in order.
std::vector<graph::WeightPart> shared_parts(const graph::Weight& weight, const std::string& tensor,
                                            MatrixAxis cut, int32_t files, int64_t pairs) {
  const int64_t rows = weight.is_vector ? weight.k : weight.n;
  if (cut == MatrixAxis::kNone) files = 1;
  std::vector<graph::WeightPart> parts;
  for (int32_t i = 0; i < files; ++i) {
    graph::WeightPart& part = parts.emplace_back();
    part.tensor = tensor + (files > 1 ? fmt::format("@rank{}", i) : "");
    part.size = cut == MatrixAxis::kRows ? rows / files : rows;
    part.pairs = pairs;
    if (cut == MatrixAxis::kColumns && files > 1) part.cols = weight.k / files;
  }
  return parts;
}

}  // namespace

bool is_meta_dir(const std::filesystem::path& dir) {
  std::error_code error;
  const auto has = [&](const std::string& name) {
    return std::filesystem::exists(dir / name, error);
  };
  return has("params.json") && has(meta_file_name(0)) && !has("config.json");
}

std::string meta_file_name(int32_t file) { return fmt::format("consolidated.{:02}.pth", file); }

StatusOr<json::object> read_meta_config(const std::filesystem::path& dir, MetaShares& shares) {
  const std::filesystem::path path = dir / "params.json";
  ASSIGN_OR_RETURN(const json::object params, read_object(path));
  Config c(params, path.string());
  for (const auto& [key, value] : params)
    if (std::ranges::find(kFields, std::string_view(key)) == std::end(kFields))
      c.fail(std::string_view(key).substr(0, 60),
             fmt::format("is not known; these are: {}", fmt::join(kFields, ", ")));
  ASSIGN_OR_RETURN(shares.num_files, count_files(dir));
  const int64_t dim = c.integer("dim", 1, kMaxHidden);
  const int32_t heads = c.integer("n_heads", 1, kMaxHeads);
  const int32_t kv_heads = c.integer("n_kv_heads", 1, kMaxHeads, heads);
  for (const auto& [key, number] : {std::pair("n_heads", heads), std::pair("n_kv_heads", kv_heads)})
    if (number % shares.num_files != 0)
      c.fail(key, fmt::format("{} cannot be shared by {} files", number, shares.num_files));
  json::object config = {{"architectures", json::array{"LlamaForCausalLM"}},
                         {"hidden_size", dim},
                         {"num_hidden_layers", c.integer("n_layers", 1, kMaxLayers)},
                         {"num_attention_heads", heads},
                         {"num_key_value_heads", kv_heads},
                         {"intermediate_size", intermediate_size(c, dim)},
                         {"rms_norm_eps", c.number("norm_eps", 0, 1, 1e-5)},
                         {"rope_theta", c.number("rope_theta", 1.001, 1e12, 10000)},
                         {"rope_scaling", rope_scaling(c, dim)}};
  config["max_position_embeddings"] = c.integer("max_seq_len", 1, kMaxPositions, usual_context(c));
  if (c.has("head_dim")) config["head_dim"] = c.integer("head_dim", 2, kMaxHeadDim);
  RETURN_IF_ERROR(c.status());
  ASSIGN_OR_RETURN(const io::TensorFile first, io::TensorFile::open(dir / meta_file_name(0)));
  read_vocabulary(c, first, dim, shares, config);
  RETURN_IF_ERROR(c.status());
  return config;
}

Status use_meta_tensors(graph::Graph& graph, const MetaShares& shares, bool tied_head) {
  for (graph::Weight& weight : graph.weights) {
    std::string_view name = weight.name;
    std::string layer;
    if (name.starts_with("layers.")) {
      const size_t dot = name.find('.', 7) + 1;
      layer = name.substr(0, dot);
      name.remove_prefix(dot);
    }
    if (name == "head" && tied_head) name = "embed";
    const auto* row = std::ranges::find(kTensors, name, &TensorRow::weight);
    if (row == std::end(kTensors))
      return unsupported("weight '{}' has no name in Meta's files", weight.name);
    const MatrixAxis cut =
        name == "embed" && shares.embed_columns ? MatrixAxis::kColumns : row->cut;
    const int64_t whole = cut == MatrixAxis::kColumns || weight.is_vector ? weight.k : weight.n;
    if (cut != MatrixAxis::kNone && whole % shares.num_files != 0)
      return invalid_argument("weight '{}' [{}, {}] cannot be shared by {} files", weight.name,
                              weight.n, weight.k, shares.num_files);
    const bool turns = name == "attn.q" || name == "attn.k";
    weight.parts = shared_parts(weight, fmt::format("{}{}.weight", layer, row->tensor), cut,
                                shares.num_files, turns ? graph.model.head_dim / 2 : 0);
  }
  return ok();
}

bool is_meta_extra(std::string_view tensor, size_t file) {
  return tensor.ends_with("rope.freqs") || (file > 0 && tensor.ends_with("norm.weight"));
}

}  // namespace nereid::models
