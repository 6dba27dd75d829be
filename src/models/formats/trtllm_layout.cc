// Mapping between the tensors of the TensorRT-LLM layout and the graph's weights. The format fixes
// each tensor's partition: some weights that could be sharded are whole.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "models/formats/trtllm.h"

namespace nereid::models {
namespace {

constexpr int64_t kMaxShares = 1 << 20;  // matrices of all ranks

// Partition of a matrix among the ranks of a stage. A bias is partitioned if rows are.
enum class MatrixSharding : uint8_t {
  kNone,
  kRows,
  kColumns,
  kHeads,          // queries, keys and values, each by heads
  kTable,          // whole, or as the embedding
  kHead,           // rows, padded with zeros to a multiple of the ranks
  kSwappedHalves,  // rows of the lower half, then of the upper half
  kExpertRows,     // experts, and rows of each
  kExpertColumns,  // experts, and columns of each
  kConvolution,    // whole, as [n, channels, window, 1]
  kRotaryHeads,    // MLA queries by heads, rotary columns last
  kLatentHeads,    // MLA by heads: key up-projections transposed, then value up-projections
};

// `.weight` and `.bias` are appended; a weight's bias is "<weight>.bias".
struct LayoutRow {
  std::string_view name;
  std::vector<std::string_view> parts;  // graph weights in order
  MatrixSharding cut = MatrixSharding::kNone;
  bool is_whole_name = false;  // nothing is appended
};

const LayoutRow kFirstRows[] = {
    {"transformer.vocab_embedding", {"embed"}, MatrixSharding::kTable},
    {"transformer.embedding_projection", {"embed.up"}},
    {"transformer.position_embedding", {"positions"}, MatrixSharding::kTable},
    {"transformer.conv1", {"conv1"}, MatrixSharding::kConvolution},
    {"transformer.conv2", {"conv2"}, MatrixSharding::kConvolution},
    {"transformer.ln_embed", {"embed.norm"}}};
const LayoutRow kLastRows[] = {{"transformer.ln_f", {"norm"}},
                               {"transformer.head_projection", {"head.down"}},
                               {"lm_head", {"head"}, MatrixSharding::kHead}};
const LayoutRow kAttentionRows[] = {
    {"input_layernorm", {"attn.norm"}},
    {"input_layernorm", {"attn.sum.norm"}},
    {"attention.qkv", {"attn.qkv"}, MatrixSharding::kHeads},
    {"attention.qkv", {"attn.q", "attn.k", "attn.v"}, MatrixSharding::kHeads},
    {"attention.q_layernorm", {"attn.q.norm"}},
    {"attention.k_layernorm", {"attn.k.norm"}},
    {"attention.sinks", {"attn.sinks"}, MatrixSharding::kRows, true},
    {"attention.dense", {"attn.out"}, MatrixSharding::kColumns}};
// MLA as in TensorRT-LLM's DeepSeek. Key projections are stored twice; the second copy is not read.
const LayoutRow kLatentRows[] = {
    {"input_layernorm", {"attn.norm"}},
    {"attention.q_a_layernorm", {"attn.q.latent.norm"}},
    {"attention.kv_a_layernorm", {"attn.k.norm"}},
    {"attention.q_b_proj", {"attn.q"}, MatrixSharding::kRotaryHeads, true},
    {"attention.kv_b_proj", {"attn.k.up", "attn.v.up"}, MatrixSharding::kLatentHeads, true},
    {"attention.k_b_proj_trans", {"attn.k.up"}, MatrixSharding::kRows, true},
    {"attention.dense", {"attn.out"}, MatrixSharding::kColumns}};
const LayoutRow kCompressedQueries = {"attention.fused_a",
                                      {"attn.q.latent", "attn.k", "attn.k.turning"}};
const LayoutRow kPlainQueries = {"attention.fused_a", {"attn.k", "attn.k.turning"}};
const LayoutRow kNormRows[] = {{"post_layernorm", {"mlp.norm"}},
                               {"post_layernorm", {"mlp.sum.norm"}}};
// Other names of the norm before the MLP: GPT-NeoX; Falcon with parallel layers.
const LayoutRow kNeoxNorm = {"post_attention_layernorm", {"mlp.norm"}};
const LayoutRow kFalconNorm = {"mlp_layernorm", {"mlp.norm"}};
const LayoutRow kSandwichNormRows[] = {{"post_layernorm", {"attn.out.norm"}},
                                       {"pre_feedforward_layernorm", {"mlp.norm"}},
                                       {"post_feedforward_layernorm", {"mlp.out.norm"}}};
const LayoutRow kPlainMlpRows[] = {
    {"mlp.fc", {"mlp.up"}, MatrixSharding::kRows},
    {"mlp.xielu_positive", {"mlp.act.positive"}, MatrixSharding::kNone, true},
    {"mlp.xielu_negative", {"mlp.act.negative"}, MatrixSharding::kNone, true},
    {"mlp.proj", {"mlp.down"}, MatrixSharding::kColumns}};
const LayoutRow kGatedMlpRows[] = {
    {"mlp.fc", {"mlp.gate"}, MatrixSharding::kRows},  // activated branch
    {"mlp.gate", {"mlp.up"}, MatrixSharding::kRows},  // multiplier
    {"mlp.proj", {"mlp.down"}, MatrixSharding::kColumns}};
const LayoutRow kFusedMlpRows[] = {{"mlp.fc", {"mlp.gate_up"}, MatrixSharding::kSwappedHalves},
                                   {"mlp.proj", {"mlp.down"}, MatrixSharding::kColumns}};
const LayoutRow kExpertRows[] = {
    {"mlp.router", {"mlp.router"}},
    {"mlp.e_score_correction_bias", {"mlp.router.correction"}, MatrixSharding::kNone, true},
    {"mlp.fc", {"mlp.up", "mlp.gate"}, MatrixSharding::kExpertRows},
    {"mlp.proj", {"mlp.down"}, MatrixSharding::kExpertColumns},
    {"mlp.shared_expert.fc", {"mlp.shared.up", "mlp.shared.gate"}, MatrixSharding::kRows},
    {"mlp.shared_expert.proj", {"mlp.shared.down"}, MatrixSharding::kColumns},
    {"mlp.shared_expert_gate", {"mlp.shared.score"}}};
// Encoder-decoder models. "attn.table": the position bias of heads and buckets.
const LayoutRow kEncoderRows[] = {
    {"attention_layernorm", {"attn.norm"}},
    {"attention_layernorm", {"attn.sum.norm"}},
    {"attention.qkv", {"attn.q", "attn.k", "attn.v"}, MatrixSharding::kHeads},
    {"attention.dense", {"attn.out"}, MatrixSharding::kColumns},
    {"attention.rel_attn_table", {"attn.table"}, MatrixSharding::kRows, true}};
const LayoutRow kCrossDecoderRows[] = {
    {"self_attention_layernorm", {"attn.norm"}},
    {"self_attention_layernorm", {"attn.sum.norm"}},
    {"self_attention.qkv", {"attn.q", "attn.k", "attn.v"}, MatrixSharding::kHeads},
    {"self_attention.dense", {"attn.out"}, MatrixSharding::kColumns},
    {"self_attention.rel_attn_table", {"attn.table"}, MatrixSharding::kRows, true},
    {"cross_attention_layernorm", {"cross.norm"}},
    {"cross_attention_layernorm", {"cross.sum.norm"}},
    {"cross_attention.qkv", {"cross.q", "cross.k", "cross.v"}, MatrixSharding::kHeads},
    {"cross_attention.dense", {"cross.out"}, MatrixSharding::kColumns}};
const LayoutRow kCrossNormRows[] = {{"mlp_layernorm", {"mlp.norm"}},
                                    {"mlp_layernorm", {"mlp.sum.norm"}}};
// A decoder's table once more, in every rank.
const LayoutRow kSharedTable = {
    kSharedTableName, {"layers.0.attn.table"}, MatrixSharding::kRows, true};
constexpr std::string_view kKinds[] = {".weight", ".bias"};

int64_t rows_of(const graph::Weight& w) { return w.experts * (w.is_vector ? w.k : w.n); }
int64_t cols_of(const graph::Weight& w) { return w.is_vector ? 1 : w.k; }

// Builds the tensors of one rank from the table.
class RankLayout {
 public:
  RankLayout(const graph::Graph& graph, const Ranks& ranks, int32_t rank)
      : graph_(graph), ranks_(ranks), tp_rank_(rank % ranks.tp), pp_rank_(rank / ranks.tp) {
    for (size_t i = 0; i < graph.weights.size(); ++i)
      by_name_.emplace(graph.weights[i].name, static_cast<graph::WeightId>(i));
  }

  StatusOr<std::vector<RankTensor>> build() && {
    const int32_t layers = graph_.model.num_layers;
    int64_t num_matrices = 0;
    for (const graph::Weight& weight : graph_.weights) num_matrices += weight.experts;
    if (num_matrices * ranks_.tp > kMaxShares)
      return invalid_argument("tp_size: {} ranks of {} matrices are too many", ranks_.tp,
                              num_matrices);
    if (ranks_.pp > layers)
      return invalid_argument("pp_size: {} is more than the {} layers", ranks_.pp, layers);
    const bool is_last = pp_rank_ == ranks_.pp - 1;
    if (pp_rank_ == 0)
      for (const LayoutRow& row : kFirstRows) add(row, "", "");
    const int32_t each = layers / ranks_.pp, more = layers % ranks_.pp;
    const int32_t first = pp_rank_ * each + std::min(pp_rank_, more);
    const int32_t count = each + (pp_rank_ < more ? 1 : 0);
    for (int32_t i = 0; i < count; ++i)
      for (const LayoutRow& row : rows_of_layer(first + i))
        add(row, fmt::format("transformer.layers.{}.", i), fmt::format("layers.{}.", first + i));
    if (is_last)
      for (const LayoutRow& row : kLastRows) {
        const bool has_matrix = row.parts[0] != "head" || ranks_.pp > 1 || !is_tied();
        add(row, "", "", std::span(kKinds).subspan(has_matrix ? 0 : 1));
      }
    if (graph_.model.num_cross_layers > 0 && !graph_.model.is_encoder) add(kSharedTable, "", "");
    RETURN_IF_ERROR(status_);
    return std::move(out_);
  }

  // Fails for weights that no row of any rank names.
  Status check_names() {
    for (int32_t i = 0; i < graph_.model.num_layers; ++i) name_layer(i);
    for (const LayoutRow& row : kFirstRows) name(row, "");
    for (const LayoutRow& row : kLastRows) name(row, "");
    for (const auto& [weight, id] : by_name_)
      if (!named_.contains(weight))
        return unsupported("weight '{}' has no name in the TensorRT-LLM layout", weight);
    return ok();
  }

 private:
  const graph::Weight& weight(graph::WeightId id) const { return graph_.weights[id]; }
  graph::WeightId find(const std::string& name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? graph::kNone : it->second;
  }
  bool is_tied() const {
    const graph::WeightId head = find("head"), embed = find("embed");
    return head != graph::kNone && embed != graph::kNone &&
           weight(head).parts == weight(embed).parts;
  }
  std::vector<LayoutRow> rows_of_layer(int32_t layer) const {
    const auto has = [&](std::string_view name) {
      return find(fmt::format("layers.{}.{}", layer, name)) != graph::kNone;
    };
    std::vector<LayoutRow> rows;
    const auto append = [&](std::span<const LayoutRow> more) {
      rows.insert(rows.end(), more.begin(), more.end());
    };
    if (graph_.model.num_cross_layers > 0) {
      append(graph_.model.is_encoder ? std::span<const LayoutRow>(kEncoderRows)
                                     : kCrossDecoderRows);
      append(kCrossNormRows);
      append(has("mlp.gate") ? std::span<const LayoutRow>(kGatedMlpRows) : kPlainMlpRows);
      return rows;
    }
    if (has("attn.k.turning")) {
      append(kLatentRows);
      rows.push_back(has("attn.q.latent") ? kCompressedQueries : kPlainQueries);
    } else {
      append(kAttentionRows);
    }
    if (graph_.model.architecture == "GPTNeoXForCausalLM")
      rows.push_back(kNeoxNorm);
    else if (graph_.model.architecture == "FalconForCausalLM" && has_norms_beside(layer))
      rows.push_back(kFalconNorm);
    else
      has("attn.out.norm") ? append(kSandwichNormRows) : append(kNormRows);
    append(has("mlp.router")    ? std::span<const LayoutRow>(kExpertRows)
           : has("mlp.gate_up") ? kFusedMlpRows
           : has("mlp.gate")    ? kGatedMlpRows
                                : std::span<const LayoutRow>(kPlainMlpRows));
    return rows;
  }
  // Whether the layer's norms before attention and MLP read the same value.
  bool has_norms_beside(int32_t layer) const {
    const auto read_by = [&](std::string_view norm) -> graph::ValueId {
      const graph::WeightId id = find(fmt::format("layers.{}.{}", layer, norm));
      for (const graph::Node& node : graph_.nodes)
        if (const auto* op = std::get_if<graph::Norm>(&node.op); op && op->weight == id)
          return op->x;
      return graph::kNone;
    };
    return read_by("attn.norm") == read_by("mlp.norm");
  }
  void name(const LayoutRow& row, const std::string& scope) {
    for (const std::string_view part : row.parts) {
      named_.insert(fmt::format("{}{}", scope, part));
      named_.insert(fmt::format("{}{}.bias", scope, part));
    }
  }
  void name_layer(int32_t layer) {
    for (const LayoutRow& row : rows_of_layer(layer)) name(row, fmt::format("layers.{}.", layer));
  }

  // Adds the row's matrix and bias, if the graph has them.
  void add(const LayoutRow& row, const std::string& theirs, const std::string& ours,
           std::span<const std::string_view> kinds = kKinds) {
    for (const std::string_view kind : kinds) {
      std::vector<graph::WeightId> parts;
      for (const std::string_view part : row.parts)
        parts.push_back(find(fmt::format("{}{}{}", ours, part, kind == ".bias" ? kind : "")));
      // Keys may have no bias beside queries and values; zeros are written.
      const bool lacks_any = std::ranges::count(parts, graph::kNone) > 0;
      const bool has_zeros = row.cut == MatrixSharding::kHeads && parts.size() == 3 &&
                             parts[0] != graph::kNone && parts[2] != graph::kNone;
      if (lacks_any && !has_zeros) continue;
      RankTensor tensor{
          fmt::format("{}{}{}", theirs, row.name, row.is_whole_name ? "" : kind), {}, {}};
      tensor.is_f32 = weight(parts[0]).name.find(".mlp.router") != std::string::npos;
      cut(kind == ".bias" && row.cut == MatrixSharding::kColumns ? MatrixSharding::kNone : row.cut,
          parts, tensor);
      out_.push_back(std::move(tensor));
    }
  }

  void cut(MatrixSharding how, const std::vector<graph::WeightId>& parts, RankTensor& tensor) {
    const graph::Weight& first = weight(parts[0]);
    const int64_t rows = rows_of(first), cols = cols_of(first);
    if (how == MatrixSharding::kTable && ranks_.parallel_embedding)
      how = ranks_.embedding_dim == 0 ? MatrixSharding::kHead : MatrixSharding::kColumns;
    switch (how) {
      case MatrixSharding::kNone:
      case MatrixSharding::kTable: {
        int64_t sum = 0;
        for (const graph::WeightId part : parts) {
          tensor.blocks.push_back({part, 0, rows_of(weight(part)), 0, cols});
          sum += rows_of(weight(part));
        }
        return set_shape(sum, cols, first.is_vector, tensor);
      }
      case MatrixSharding::kConvolution:
        tensor.blocks.push_back({parts[0], 0, rows, 0, cols});
        if (first.is_vector) break;
        tensor.shape = {rows, cols / kConvolutionWindow, kConvolutionWindow, 1};
        return;
      case MatrixSharding::kRows: {
        const int64_t n = divide(rows, ranks_.tp, "tp_size", first.name);
        for (const graph::WeightId part : parts)
          tensor.blocks.push_back({part, tp_rank_ * n, n, 0, cols});
        return set_shape(n * static_cast<int64_t>(parts.size()), cols, first.is_vector, tensor);
      }
      case MatrixSharding::kSwappedHalves: {
        const int64_t n = divide(rows / 2, ranks_.tp, "tp_size", first.name);
        for (const int64_t half : {rows / 2, int64_t{0}})
          tensor.blocks.push_back({parts[0], half + tp_rank_ * n, n, 0, cols});
        return set_shape(2 * n, cols, first.is_vector, tensor);
      }
      case MatrixSharding::kColumns: {
        const int64_t n = divide(cols, ranks_.tp, "tp_size", first.name);
        tensor.blocks.push_back({parts[0], 0, rows, tp_rank_ * n, n});
        break;
      }
      case MatrixSharding::kHeads:
        return cut_heads(parts, tensor);
      case MatrixSharding::kHead: {
        const int64_t n = (rows + ranks_.tp - 1) / ranks_.tp, begin = tp_rank_ * n;
        if (begin < rows)
          tensor.blocks.push_back({parts[0], begin, std::min(n, rows - begin), 0, cols});
        return set_shape(n, cols, first.is_vector, tensor);
      }
      case MatrixSharding::kExpertRows:
      case MatrixSharding::kExpertColumns:
        return cut_experts(how, parts, tensor);
      case MatrixSharding::kRotaryHeads:
        return cut_turning_heads(parts[0], tensor);
      case MatrixSharding::kLatentHeads:
        return cut_latent_heads(parts[0], parts[1], tensor);
    }
    set_shape(tensor.blocks[0].rows, tensor.blocks[0].cols, first.is_vector, tensor);
  }

  static void set_shape(int64_t rows, int64_t cols, bool is_vector, RankTensor& tensor) {
    tensor.shape = {rows};
    if (!is_vector) tensor.shape.push_back(cols);
  }

  // With fewer KV heads than ranks, several ranks have the same KV head.
  void cut_heads(const std::vector<graph::WeightId>& parts, RankTensor& tensor) {
    const io::ModelFacts& m = graph_.model;
    const std::string& name = weight(parts[0]).name;
    const int64_t cols = cols_of(weight(parts[0]));
    const int64_t queries = divide(m.num_heads, ranks_.tp, "tp_size", name);
    const bool repeat = m.num_kv_heads < ranks_.tp && ranks_.tp % m.num_kv_heads == 0;
    const int64_t keys = repeat ? 1 : divide(m.num_kv_heads, ranks_.tp, "tp_size", name);
    const int64_t first_key =
        repeat ? int64_t{tp_rank_} * m.num_kv_heads / ranks_.tp : tp_rank_ * keys;
    int64_t rows = 0;
    for (int64_t i = 0; i < 3; ++i) {
      const bool fused = parts.size() == 1;
      const int64_t base = !fused || i == 0 ? 0 : m.num_heads + (i - 1) * m.num_kv_heads;
      const int64_t head = base + (i == 0 ? tp_rank_ * queries : first_key);
      const int64_t count = i == 0 ? queries : keys;
      tensor.blocks.push_back({parts[fused ? 0 : static_cast<size_t>(i)], head * m.head_dim,
                               count * m.head_dim, 0, cols});
      rows += count * m.head_dim;
    }
    set_shape(rows, cols, weight(parts[0]).is_vector, tensor);
  }

  int64_t heads_of_rank(const std::string& name) {
    return divide(graph_.model.num_heads, ranks_.tp, "tp_size", name);
  }

  void cut_turning_heads(graph::WeightId id, RankTensor& tensor) {
    const graph::Weight& w = weight(id);
    const int64_t heads = heads_of_rank(w.name), dim = w.n / graph_.model.num_heads;
    const int64_t turning = graph_.model.head_dim - graph_.model.latent;
    for (int64_t row = tp_rank_ * heads * dim; row < (tp_rank_ + 1) * heads * dim; row += dim) {
      tensor.blocks.push_back({id, row + turning, dim - turning, 0, w.k});
      tensor.blocks.push_back({id, row, turning, 0, w.k});
    }
    tensor.shape = {heads * dim, w.k};
  }

  void cut_latent_heads(graph::WeightId keys, graph::WeightId values, RankTensor& tensor) {
    const graph::Weight &k = weight(keys), &v = weight(values);
    const int64_t heads = heads_of_rank(k.name), first = tp_rank_ * heads;
    for (int64_t head = first; head < first + heads; ++head)
      tensor.blocks.push_back({keys, head * k.n, k.n, 0, k.k, true});
    tensor.blocks.push_back({values, first * v.n, heads * v.n, 0, v.k});
    tensor.shape = {heads * (k.k + v.n), v.k};
  }

  void cut_experts(MatrixSharding how, const std::vector<graph::WeightId>& parts,
                   RankTensor& tensor) {
    if (weight(parts[0]).is_vector) return cut_expert_biases(how, parts, tensor);
    const graph::Weight& w = weight(parts[0]);
    const int64_t moe_tp_rank = tp_rank_ / ranks_.moe_ep, moe_ep_rank = tp_rank_ % ranks_.moe_ep;
    const int64_t experts = divide(w.experts, ranks_.moe_ep, "moe_ep_size", w.name);
    const bool by_rows = how == MatrixSharding::kExpertRows;
    const int64_t n = by_rows ? divide(w.n, ranks_.moe_tp, "moe_tp_size", w.name) : w.n;
    const int64_t k = by_rows ? w.k : divide(w.k, ranks_.moe_tp, "moe_tp_size", w.name);
    const int64_t row = by_rows ? moe_tp_rank * n : 0, col = by_rows ? 0 : moe_tp_rank * k;
    for (int64_t e = moe_ep_rank * experts; e < (moe_ep_rank + 1) * experts; ++e)
      for (const graph::WeightId part : parts)
        tensor.blocks.push_back({part, e * w.n + row, n, col, k});
    tensor.shape = {experts, static_cast<int64_t>(parts.size()) * n, k};
    tensor.is_stacked = true;
  }

  // Biases of column-split matrices are added to sums: each rank of an expert has the whole bias.
  void cut_expert_biases(MatrixSharding how, const std::vector<graph::WeightId>& parts,
                         RankTensor& tensor) {
    const graph::Weight& w = weight(parts[0]);
    const int64_t experts = divide(w.experts, ranks_.moe_ep, "moe_ep_size", w.name);
    const bool by_rows = how == MatrixSharding::kExpertRows;
    const int64_t n = by_rows ? divide(w.k, ranks_.moe_tp, "moe_tp_size", w.name) : w.k;
    const int64_t row = by_rows ? tp_rank_ / ranks_.moe_ep * n : 0;
    const int64_t first = tp_rank_ % ranks_.moe_ep * experts;
    for (int64_t e = first; e < first + experts; ++e)
      for (const graph::WeightId part : parts)
        tensor.blocks.push_back({part, e * w.k + row, n, 0, 1});
    tensor.shape = {experts, static_cast<int64_t>(parts.size()) * n};
    tensor.is_stacked = true;
  }

  int64_t divide(int64_t size, int32_t ranks, std::string_view field, const std::string& name) {
    if (size % ranks != 0 && status_.ok())
      status_ =
          invalid_argument("{}: {} does not divide the {} of weight '{}'; allowed are divisors",
                           field, ranks, size, name);
    return std::max<int64_t>(size / ranks, 1);
  }

  const graph::Graph& graph_;
  const Ranks ranks_;
  const int32_t tp_rank_, pp_rank_;
  std::map<std::string, graph::WeightId, std::less<>> by_name_;
  std::set<std::string, std::less<>> named_;
  std::vector<RankTensor> out_;
  Status status_;
};

// A block of a weight, with its part.
struct WeightBlock {
  int64_t row, col;
  graph::WeightPart part;
};

void add_places(const std::vector<RankTensor>& tensors, const std::string& suffix,
                const graph::Graph& graph, std::vector<std::vector<WeightBlock>>& places) {
  for (const RankTensor& tensor : tensors) {
    int64_t at = 0, rows = tensor.shape[0];
    if (tensor.is_stacked) rows *= tensor.shape[1];
    for (const RankBlock& block : tensor.blocks) {
      const int64_t first = at;
      at += block.tensor_rows();
      if (block.weight == graph::kNone) continue;
      graph::WeightPart part{.tensor = tensor.name + suffix, .size = block.rows};
      if (block.transposed) {
        part.transposed = true;
        part.first_col = first, part.total_cols = rows;
      } else {
        part.first = first;
        if (rows != block.rows) part.total = rows;
      }
      if (block.cols != cols_of(graph.weights[block.weight])) part.cols = block.cols;
      places[static_cast<size_t>(block.weight)].push_back({block.row, block.col, std::move(part)});
    }
  }
}

}  // namespace

StatusOr<std::vector<RankTensor>> rank_tensors(const graph::Graph& graph, const Ranks& ranks,
                                               int32_t rank) {
  RankLayout layout(graph, ranks, rank);
  RETURN_IF_ERROR(layout.check_names());
  return std::move(layout).build();
}

Status use_rank_tensors(graph::Graph& graph, const Ranks& ranks) {
  std::vector<std::vector<WeightBlock>> places(graph.weights.size());
  for (int32_t rank = 0; rank < ranks.num_files(); ++rank) {
    ASSIGN_OR_RETURN(const auto tensors, rank_tensors(graph, ranks, rank));
    add_places(tensors, ranks.num_files() == 1 ? "" : fmt::format("@rank{}", rank), graph, places);
  }
  const auto find = [&](std::string_view name) {
    return std::ranges::find(graph.weights, name, &graph::Weight::name);
  };
  const auto head = find("head"), embed = find("embed");
  const bool tied =
      head != graph.weights.end() && embed != graph.weights.end() && head->parts == embed->parts;
  for (size_t i = 0; i < graph.weights.size(); ++i) {
    std::stable_sort(places[i].begin(), places[i].end(),
                     [](const WeightBlock& a, const WeightBlock& b) {
                       return std::tie(a.row, a.col) < std::tie(b.row, b.col);
                     });
    std::vector<graph::WeightPart> parts;
    const WeightBlock* before = nullptr;  // replicated blocks are read from the first tensor
    for (const WeightBlock& place : places[i]) {
      if (!before || before->row != place.row || before->col != place.col)
        parts.push_back(place.part);
      before = &place;
    }
    graph.weights[i].parts = std::move(parts);
  }
  if (tied) head->parts = embed->parts;
  return ok();
}

}  // namespace nereid::models
