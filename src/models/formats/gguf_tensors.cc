// Mapping from a graph's weights to the tensors of a GGUF file.
#include <algorithm>
#include <iterator>

#include "models/formats/gguf.h"
#include "models/formats/gguf_architectures.h"

namespace nereid::models {
namespace {

using graph::Weight;
using graph::WeightPart;

// (graph weight, word in the tensor name behind the layer number).
constexpr GgufPair kWords[] = {{"embed", "token_embd"},
                               {"embed.norm", "token_embd_norm"},
                               {"positions", "position_embd"},
                               {"norm", "output_norm"},
                               {"head", "output"},
                               {"attn.norm", "attn_norm"},
                               {"attn.q.norm", "attn_q_norm"},
                               {"attn.k.norm", "attn_k_norm"},
                               {"attn.sinks", "attn_sinks"},
                               {"attn.out", "attn_output"},
                               {"attn.out.norm", "post_attention_norm"},
                               {"mlp.norm", "ffn_norm"},
                               {"mlp.gate", "ffn_gate"},
                               {"mlp.up", "ffn_up"},
                               {"mlp.gate_up", "ffn_up"},
                               {"mlp.down", "ffn_down"},
                               {"mlp.out.norm", "post_ffw_norm"},
                               {"mlp.router", "ffn_gate_inp"},
                               {"mlp.shared.gate", "ffn_gate_shexp"},
                               {"mlp.shared.up", "ffn_up_shexp"},
                               {"mlp.shared.down", "ffn_down_shexp"},
                               {"mlp.shared.score", "ffn_gate_inp_shexp"}};
// MLA.
constexpr GgufPair kLatentWords[] = {{"attn.q.latent", "attn_q_a"},
                                     {"attn.q.latent.norm", "attn_q_a_norm"},
                                     {"attn.k", "attn_kv_a_mqa"},
                                     {"attn.k.turning", "attn_kv_a_mqa"},
                                     {"attn.k.norm", "attn_kv_a_norm"}};

std::string_view find_word(std::span<const GgufPair> words, std::string_view weight) {
  const auto it = std::ranges::find(words, weight, &GgufPair::first);
  return it == words.end() ? "" : it->second;
}

// A weight's name: layer prefix, name in the layer, suffix of tensors of its kind.
struct WeightName {
  std::string prefix;
  std::string_view base;
  std::string_view kind = ".weight";

  explicit WeightName(std::string_view name) : base(name) {
    if (base.starts_with("layers.")) {
      const size_t dot = base.find('.', 7);
      prefix = fmt::format("blk.{}.", base.substr(7, dot - 7));
      base.remove_prefix(dot + 1);
    }
    if (base.ends_with(".bias")) kind = ".bias", base.remove_suffix(5);
  }
  std::string tensor(std::string_view word) const {
    return fmt::format("{}{}{}", prefix, word, kind);
  }
};

class GgufTensors {
 public:
  GgufTensors(const Traits& traits, const GgufLayout& layout) : t_(traits), layout_(layout) {
    const GgufArchitecture* row = find_gguf_architecture(layout.architecture);
    words_ = row->words;
    numbers_ = row->numbers;
    // Falcon's first layers have one norm, under the common name.
    if (layout.architecture == "falcon" && !has("blk.0.attn_norm_2.weight")) words_ = {};
    pairs_ = row->is_paired ? t_.head_dim / 2 : 0;
  }

  // Empty: the weight has no name in GGUF.
  std::vector<WeightPart> parts(const Weight& weight) const {
    const WeightName name(weight.name);
    const int64_t rows = weight.experts * (weight.is_vector ? weight.k : weight.n);
    if (t_.latent > 0 && name.base.starts_with("attn."))
      if (std::vector<WeightPart> latent = latent_parts(weight, name, rows); !latent.empty())
        return latent;
    if (name.base == "mlp.router.correction")
      return {{.tensor = name.prefix + "exp_probs_b.bias", .size = rows}};
    const bool is_whole = name.base == "attn.qkv";
    if (is_whole && pairs_ == 0 && has(name.tensor("attn_qkv")))
      return {{.tensor = name.tensor("attn_qkv"), .size = rows}};
    std::vector<WeightPart> heads;
    if (is_whole || name.base == "attn.q")
      heads.push_back(of_heads(name, "attn_q", 0, query_rows(), pairs_));
    if (is_whole || name.base == "attn.k")
      heads.push_back(of_heads(name, "attn_k", query_rows(), key_rows(), pairs_));
    if (is_whole || name.base == "attn.v")
      heads.push_back(of_heads(name, "attn_v", query_rows() + key_rows(), key_rows(), 0));
    if (!heads.empty()) return heads;
    if (name.base == "mlp.gate_up" && has(name.tensor("ffn_gate")))
      return {{.tensor = name.tensor("ffn_gate"), .size = rows / 2},
              {.tensor = name.tensor("ffn_up"), .size = rows / 2}};
    const auto number = std::ranges::find(numbers_, name.base, &GgufLayerNumber::weight);
    std::string_view word = number == numbers_.end() ? find_word(words_, name.base) : number->word;
    if (word.empty()) word = find_word(kWords, name.base);
    if (word.empty()) return {};
    if (weight.experts > 1) return expert_parts(weight, name, std::string(word), rows);
    WeightPart part{.tensor = name.tensor(word), .size = rows};
    if (name.base.ends_with("norm") && name.kind == ".weight") part.added = -t_.norm_weight_offset;
    return {std::move(part)};
  }

 private:
  bool has(const std::string& tensor) const { return layout_.tensors.contains(tensor); }
  int64_t query_rows() const { return int64_t{t_.num_heads} * t_.head_dim; }
  int64_t key_rows() const { return int64_t{t_.num_kv_heads} * t_.head_dim; }

  // A projection, which may be a part of a fused tensor.
  WeightPart of_heads(const WeightName& name, std::string_view word, int64_t first, int64_t rows,
                      int64_t pairs) const {
    const std::string own = name.tensor(word), fused = name.tensor("attn_qkv");
    if (has(own) || !has(fused)) return {.tensor = own, .size = rows, .pairs = pairs};
    return {.tensor = fused,
            .size = rows,
            .first = first,
            .total = query_rows() + 2 * key_rows(),
            .pairs = pairs};
  }
  // All experts in one tensor; in older files one per expert, or gate and up fused.
  std::vector<WeightPart> expert_parts(const Weight& weight, const WeightName& name,
                                       const std::string& word, int64_t rows) const {
    const std::string stacked = name.tensor(word + "_exps");
    const std::string both = name.tensor("ffn_gate_up_exps");
    const bool is_half = word == "ffn_gate" || word == "ffn_up";
    if (has(stacked)) return {{.tensor = stacked, .size = rows}};
    std::vector<WeightPart> parts;
    for (int64_t e = 0; e < weight.experts; ++e) {
      WeightPart& part = parts.emplace_back();
      part.size = rows / weight.experts;
      part.tensor = fmt::format("{}{}.{}{}", name.prefix, word, e, name.kind);
      if (!is_half || !has(both)) continue;
      part.tensor = both;
      part.first = (2 * e + (word == "ffn_up" ? 1 : 0)) * part.size;
      part.total = 2 * rows;
    }
    if (!has(parts.front().tensor)) return {{.tensor = stacked, .size = rows}};
    return parts;
  }

  std::vector<WeightPart> latent_parts(const Weight& weight, const WeightName& name,
                                       int64_t rows) const {
    std::string_view word = find_word(kLatentWords, name.base);
    if (name.base == "attn.q") word = t_.query_latent > 0 ? "attn_q_b" : "attn_q";
    for (const auto& [up, apart] :
         {GgufPair("attn.k.up", "attn_k_b"), GgufPair("attn.v.up", "attn_v_b")}) {
      if (name.base != up) continue;
      // A matrix per head, of keys transposed, as in the graph.
      if (has(name.tensor(apart))) return {{.tensor = name.tensor(apart), .size = rows}};
      word = "attn_kv_b";
    }
    std::vector<WeightPart> parts;
    if (word.empty()) return parts;
    parts = weight.parts;
    for (WeightPart& part : parts) part.tensor = name.tensor(word);
    return parts;
  }

  const Traits& t_;
  const GgufLayout& layout_;
  std::span<const GgufPair> words_;
  std::span<const GgufLayerNumber> numbers_;
  int64_t pairs_ = 0;
};

}  // namespace

Status use_gguf_tensors(graph::Graph& graph, const Traits& traits, const GgufLayout& layout) {
  const GgufTensors tensors(traits, layout);
  const auto find = [&](std::string_view name) {
    return std::ranges::find(graph.weights, name, &Weight::name);
  };
  const auto head = find("head"), embed = find("embed");
  const bool tied =
      head != graph.weights.end() && embed != graph.weights.end() && head->parts == embed->parts;
  for (Weight& weight : graph.weights) {
    const bool divides = !weight.parts.empty() && weight.parts.front().unit_rows;
    weight.parts = tensors.parts(weight);
    if (weight.parts.empty())
      return unsupported("weight '{}' has no name in GGUF files", weight.name);
    for (WeightPart& part : weight.parts) part.unit_rows = divides;
  }
  if (tied) head->parts = embed->parts;
  return ok();
}

bool is_gguf_extra(std::string_view tensor, const GgufLayout& layout) {
  for (int32_t i = 0; i < layout.num_mtp_layers; ++i)
    if (tensor.starts_with(fmt::format("blk.{}.", layout.num_layers + i))) return true;
  if (tensor.starts_with("rope_f") || tensor.ends_with(".attn_rot_embd.weight")) return true;
  constexpr std::string_view kWhole = "attn_kv_b.weight";
  if (!tensor.ends_with(kWhole)) return false;
  const std::string prefix(tensor.substr(0, tensor.size() - kWhole.size()));
  return layout.tensors.contains(prefix + "attn_k_b.weight") &&
         layout.tensors.contains(prefix + "attn_v_b.weight");
}

}  // namespace nereid::models
