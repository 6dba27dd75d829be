// Test only: writes a Hugging Face model as GGUF as convert_hf_to_gguf.py of ggml-org/llama.cpp
// does, from tensor names only.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/test_gguf.h"
#include "models/family.h"
#include "tensor/floats.h"

namespace nereid::convert {

// f32 rows; `shape` as in the checkpoint.
struct GgufMatrix {
  std::vector<int64_t> shape;
  std::vector<float> values;

  int64_t rows() const { return shape[0]; }
  int64_t row_size() const { return std::ssize(values) / shape[0]; }
  GgufMatrix part(int64_t first, int64_t count) const {
    GgufMatrix out{shape, {}};
    out.shape[0] = count;
    const auto begin = values.begin() + first * row_size();
    out.values.assign(begin, begin + count * row_size());
    return out;
  }
  // Row i of the result is row from(i).
  template <class From>
  GgufMatrix reordered(From from) const {
    GgufMatrix out{shape, {}};
    for (int64_t i = 0; i < rows(); ++i) {
      const auto begin = values.begin() + from(i) * row_size();
      out.values.insert(out.values.end(), begin, begin + row_size());
    }
    return out;
  }
  GgufMatrix transposed() const {
    GgufMatrix out{{shape[1], shape[0]}, {}};
    for (int64_t col = 0; col < shape[1]; ++col)
      for (int64_t row = 0; row < shape[0]; ++row)
        out.values.push_back(values[static_cast<size_t>(row * shape[1] + col)]);
    return out;
  }
  void append(const GgufMatrix& other) {
    values.insert(values.end(), other.values.begin(), other.values.end());
    shape[0] += other.shape[0];
  }
};

struct GgufWriterOptions {
  bool permutes = false;                 // rows of rotary pairs become adjacent
  bool splits_keys = true;               // MLA: kv_b is split into k_b and v_b
  bool fuses = false;                    // fuses q, k and v; gate and up of experts
  std::string norm_of_mlp = "ffn_norm";  // name of post_attention_layernorm
};

class GgufModelWriter {
 public:
  GgufModelWriter(const models::Model& model, const io::Checkpoint& checkpoint,
                  GgufWriterOptions options)
      : t_(model.traits), options_(std::move(options)) {
    is_gpt2_ = model.family->architecture == "GPT2LMHeadModel";
    for (const io::Checkpoint::Entry& entry : checkpoint.entries())
      if (entry.tensor->type) add(entry.tensor->name, read(*entry.tensor));
    for (auto& [word, stacked] : stacked_) {
      GgufMatrix all = stacked.begin()->second;
      all.shape.insert(all.shape.begin(), 0);
      all.values.clear();
      for (const auto& [index, one] : stacked) {
        all.values.insert(all.values.end(), one.values.begin(), one.values.end());
        ++all.shape[0];
      }
      out_.emplace(word, std::move(all));
    }
    if (options_.fuses) fuse();
  }

  std::vector<testing_only::GgufBlob> blobs() const {
    std::vector<testing_only::GgufBlob> blobs;
    for (const auto& [name, matrix] : out_) {
      // Vectors and small tensors are f32, matrices bf16.
      const bool is_vector =
          matrix.shape.size() == 1 || name.ends_with("norm.weight") || name.ends_with(".bias");
      testing_only::GgufBlob blob{name, is_vector ? 0u : 30u, matrix.shape, ""};
      for (const float x : matrix.values) {
        const BF16 rounded = to_bf16(x);
        if (is_vector)
          blob.bytes.append(reinterpret_cast<const char*>(&x), 4);
        else
          blob.bytes.append(reinterpret_cast<const char*>(&rounded), 2);
      }
      blobs.push_back(std::move(blob));
    }
    return blobs;
  }

  // Metadata arrays in place of tensors: key -> one number per layer.
  json::object numbers() const {
    json::object out;
    for (const auto& [key, values] : numbers_) out[key] = values;
    return out;
  }

 private:
  static GgufMatrix read(const io::StoredTensor& tensor) {
    GgufMatrix out{tensor.shape, {}};
    const size_t size = tensor.type == DType::kF32 ? 4 : 2;
    for (size_t i = 0; i < tensor.data.size(); i += size) {
      BF16 rounded;
      float exact = 0;
      if (size == 4)
        std::memcpy(&exact, tensor.data.data() + i, 4);
      else
        std::memcpy(&rounded, tensor.data.data() + i, 2), exact = to_float(rounded);
      out.values.push_back(exact);
    }
    return out;
  }

  // A head's rows in llama's GGUF order: 2i is row i of the first half, 2i + 1 of the second.
  GgufMatrix paired(const GgufMatrix& x) const {
    if (!options_.permutes) return x;
    const int64_t half = t_.head_dim / 2;
    return x.reordered([half](int64_t i) {
      const int64_t in_head = i % (2 * half);
      return i - in_head + in_head % 2 * half + in_head / 2;
    });
  }

  // Q, K and V from heads stored by groups.
  GgufMatrix ungrouped(const GgufMatrix& x) const {
    const int64_t d = t_.head_dim, group = t_.num_heads / t_.num_kv_heads, run = group + 2;
    const int64_t queries = int64_t{t_.num_heads} * d, keys = int64_t{t_.num_kv_heads} * d;
    return x.reordered([=](int64_t i) {
      if (i < queries) return i / (group * d) * run * d + i % (group * d);
      const int64_t of = i < queries + keys ? group : group + 1;
      const int64_t at = (i - queries) % keys;
      return (at / d * run + of) * d + at % d;
    });
  }

  void put(const std::string& name, GgufMatrix matrix) { out_.emplace(name, std::move(matrix)); }

  void add(const std::string& name, const GgufMatrix& x) {
    static const std::map<std::string, std::string> kModel = {
        {"model.embed_tokens", "token_embd"},
        {"transformer.word_embeddings", "token_embd"},
        {"transformer.wte", "token_embd"},
        {"gpt_neox.embed_in", "token_embd"},
        {"transformer.wpe", "position_embd"},
        {"transformer.word_embeddings_layernorm", "token_embd_norm"},
        {"model.norm", "output_norm"},
        {"model.final_layernorm", "output_norm"},
        {"transformer.ln_f", "output_norm"},
        {"transformer.norm_f", "output_norm"},
        {"gpt_neox.final_layer_norm", "output_norm"},
        {"lm_head", "output"},
        {"embed_out", "output"},
    };
    static const std::regex kLayer(R"((?:.*\.)?(?:layers|h|blocks)\.(\d+)\.(.*))");
    const size_t dot = name.rfind('.');
    std::smatch match;
    if (std::regex_match(name, match, kLayer))
      return add_of_layer("blk." + match[1].str() + ".", match[2].str(), x);
    const std::string word = kModel.at(name.substr(0, dot));
    put(word + name.substr(dot), shifted(word, name.substr(dot), x));
  }

  GgufMatrix shifted(const std::string& word, const std::string& kind, GgufMatrix x) const {
    if (word.ends_with("norm") && kind == ".weight")
      for (float& value : x.values) value += t_.norm_weight_offset;
    return x;
  }

  void add_of_layer(const std::string& prefix, std::string name, const GgufMatrix& x) {
    static const std::map<std::string, std::string> kWords = {
        {"input_layernorm", "attn_norm"},
        {"ln_1", "attn_norm"},
        {"norm_1", "attn_norm"},
        {"ln_mlp", "attn_norm"},
        {"ln_attn", "attn_norm_2"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.dense", "attn_output"},
        {"self_attention.dense", "attn_output"},
        {"attention.dense", "attn_output"},
        {"attn.c_proj", "attn_output"},
        {"attn.out_proj", "attn_output"},
        {"self_attn.qkv_proj", "attn_qkv"},
        {"self_attention.query_key_value", "attn_qkv"},
        {"attention.query_key_value", "attn_qkv"},
        {"attn.c_attn", "attn_qkv"},
        {"attn.Wqkv", "attn_qkv"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"self_attn.q_a_proj", "attn_q_a"},
        {"self_attn.q_a_layernorm", "attn_q_a_norm"},
        {"self_attn.q_b_proj", "attn_q_b"},
        {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
        {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
        {"self_attn.kv_b_proj", "attn_kv_b"},
        {"post_self_attn_layernorm", "post_attention_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"ln_2", "ffn_norm"},
        {"norm_2", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"},
        {"post_mlp_layernorm", "post_ffw_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"mlp.gate_up_proj", "ffn_up"},
        {"mlp.fc1", "ffn_up"},
        {"mlp.fc2", "ffn_down"},
        {"mlp.c_fc", "ffn_up"},
        {"mlp.c_proj", "ffn_down"},
        {"mlp.dense_h_to_4h", "ffn_up"},
        {"mlp.dense_4h_to_h", "ffn_down"},
        {"ffn.up_proj", "ffn_up"},
        {"ffn.down_proj", "ffn_down"},
        {"mlp.gate", "ffn_gate_inp"},
        {"mlp.router", "ffn_gate_inp"},
        {"block_sparse_moe.gate", "ffn_gate_inp"},
        {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
        {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
        {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
        {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
        {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
        {"attention_layernorm", "attn_norm"},
        {"feedforward_layernorm", "ffn_norm"},
        {"self_attn.query_layernorm", "attn_q_norm"},
        {"self_attn.key_layernorm", "attn_k_norm"},
        {"mlp.gate.wg", "ffn_gate_inp"},
        {"mlp.shared_mlp.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_mlp.up_proj", "ffn_up_shexp"},
        {"mlp.shared_mlp.down_proj", "ffn_down_shexp"},
        {"block_sparse_moe.router.layer", "ffn_gate_inp"},
        {"block_sparse_moe.output_linear", "ffn_down_exps"},
        {"shared_mlp.output_linear", "ffn_down_shexp"},
        {"feed_forward.gate_proj", "ffn_gate"},
        {"feed_forward.up_proj", "ffn_up"},
        {"feed_forward.down_proj", "ffn_down"},
        {"feed_forward.router", "ffn_gate_inp"},
        {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
        {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
        {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"},
    };
    static const std::regex kExpert(R"((?:mlp|block_sparse_moe)\.experts\.(\d+)\.(.*)\.weight)");
    static const std::regex kHeadNorm(R"(self_attn\.([qk])_layernorm\.norms\.(\d+)\.weight)");
    static const std::map<std::string, std::string> kExpertWords = {
        {"gate_proj", "ffn_gate_exps"}, {"w1", "ffn_gate_exps"},        {"up_proj", "ffn_up_exps"},
        {"w3", "ffn_up_exps"},          {"down_proj", "ffn_down_exps"}, {"w2", "ffn_down_exps"}};
    std::smatch match;
    if (std::regex_match(name, match, kExpert)) {
      stacked_[prefix + kExpertWords.at(match[2]) + ".weight"][std::stoi(match[1])] = x;
      return;
    }
    if (std::regex_match(name, match, kHeadNorm)) {
      stacked_[prefix + "attn_" + match[1].str() + "_norm.weight"][std::stoi(match[2])] = x;
      return;
    }
    if (name == "self_attn.sinks") return put(prefix + "attn_sinks.weight", x);
    if (name.ends_with(".e_score_correction_bias")) return put(prefix + "exp_probs_b.bias", x);
    if (name.starts_with("mlp.act_fn.")) {
      numbers_["xielu." + name.substr(11)].emplace_back(x.values[0]);
      return;
    }
    if (name.starts_with("mlp.experts."))
      return add_stacked(prefix, name.substr(12), x, kTurned | kInTurn);
    if (name.starts_with("feed_forward.experts."))
      return add_stacked(prefix, name.substr(21), x, kTurned);
    if (name == "block_sparse_moe.input_linear.weight") return add_stacked(prefix, "gate_up", x, 0);
    if (name == "shared_mlp.input_linear.weight") {
      put(prefix + "ffn_gate_shexp.weight", x.part(0, x.rows() / 2));
      return put(prefix + "ffn_up_shexp.weight", x.part(x.rows() / 2, x.rows() / 2));
    }
    const size_t dot = name.rfind('.');
    const std::string kind = name.substr(dot);
    name.resize(dot);
    if (name == "post_attention_layernorm")
      return put(prefix + options_.norm_of_mlp + kind, shifted("norm", kind, x));
    const std::string word = kWords.at(name);
    if (word == "attn_q" || word == "attn_k") return put(prefix + word + kind, paired(x));
    if (word == "attn_qkv" && name.ends_with("query_key_value"))
      return put(prefix + word + kind, ungrouped(x));
    if (word == "attn_kv_b" && options_.splits_keys) return add_up(prefix, x);
    if (is_gpt2_ && x.shape.size() == 2) return put(prefix + word + kind, x.transposed());
    put(prefix + word + kind, shifted(word, kind, x));
  }

  // Stacked experts: optionally transposed, rows of gate and up interleaved or concatenated.
  static constexpr unsigned kTurned = 1, kInTurn = 2;
  void add_stacked(const std::string& prefix, const std::string& name, const GgufMatrix& x,
                   unsigned order) {
    const bool is_bias = name.ends_with("_bias"), is_both = name.starts_with("gate_up");
    for (const int which : {0, 1}) {
      if (!is_both && which == 1) break;
      GgufMatrix out{{x.shape[0]}, {}};
      for (int64_t e = 0; e < x.shape[0]; ++e) {
        GgufMatrix one = x.part(e, 1);
        one.shape.erase(one.shape.begin());
        if (!is_bias && (order & kTurned)) one = one.transposed();
        const int64_t rows = one.shape[0] / (is_both ? 2 : 1);
        const int64_t step = is_both && (order & kInTurn) ? 2 : 1;
        const int64_t first = step == 2 ? which : which * rows;
        const GgufMatrix every =
            one.reordered([&](int64_t i) { return i < rows ? i * step + first : i; });
        const GgufMatrix half = every.part(0, rows);
        out.values.insert(out.values.end(), half.values.begin(), half.values.end());
        if (e == 0) out.shape.insert(out.shape.end(), half.shape.begin(), half.shape.end());
      }
      const std::string word = !is_both     ? "ffn_down_exps"
                               : which == 1 ? "ffn_up_exps"
                                            : "ffn_gate_exps";
      put(prefix + word + (is_bias ? ".bias" : ".weight"), std::move(out));
    }
  }

  // MLA: per head the transposed keys, and the values.
  void add_up(const std::string& prefix, const GgufMatrix& x) {
    const int64_t non_rotary_dims = t_.head_dim - t_.rotary_dims,
                  both = non_rotary_dims + t_.value_dim;
    GgufMatrix keys{{t_.num_heads, t_.latent, non_rotary_dims}, {}};
    GgufMatrix values{{t_.num_heads, t_.value_dim, t_.latent}, {}};
    for (int64_t head = 0; head < t_.num_heads; ++head) {
      const GgufMatrix key = x.part(head * both, non_rotary_dims).transposed();
      const GgufMatrix value = x.part(head * both + non_rotary_dims, t_.value_dim);
      keys.values.insert(keys.values.end(), key.values.begin(), key.values.end());
      values.values.insert(values.values.end(), value.values.begin(), value.values.end());
    }
    put(prefix + "attn_k_b.weight", std::move(keys));
    put(prefix + "attn_v_b.weight", std::move(values));
  }

  void fuse() {
    for (int32_t layer = 0; layer < t_.num_layers; ++layer) {
      const std::string prefix = fmt::format("blk.{}.", layer);
      for (const std::string kind : {".weight", ".bias"}) {
        const auto q = out_.find(prefix + "attn_q" + kind);
        if (q != out_.end()) {
          GgufMatrix all = q->second;
          for (const char* word : {"attn_k", "attn_v"}) all.append(out_.at(prefix + word + kind));
          for (const char* word : {"attn_q", "attn_k", "attn_v"}) out_.erase(prefix + word + kind);
          put(prefix + "attn_qkv" + kind, std::move(all));
        }
        const auto gate = out_.find(prefix + "ffn_gate_exps" + kind);
        if (gate == out_.end()) continue;
        GgufMatrix both{gate->second.shape, {}};
        for (int64_t e = 0; e < both.shape[0]; ++e)
          for (const char* word : {"ffn_gate_exps", "ffn_up_exps"}) {
            const GgufMatrix one = out_.at(prefix + word + kind).part(e, 1);
            both.values.insert(both.values.end(), one.values.begin(), one.values.end());
          }
        both.shape[1] *= 2;
        for (const char* word : {"ffn_gate_exps", "ffn_up_exps"}) out_.erase(prefix + word + kind);
        put(prefix + "ffn_gate_up_exps" + kind, std::move(both));
      }
    }
  }

  const models::Traits& t_;
  GgufWriterOptions options_;
  bool is_gpt2_ = false;
  std::map<std::string, GgufMatrix> out_;
  std::map<std::string, std::map<int, GgufMatrix>> stacked_;
  std::map<std::string, json::array> numbers_;
};

}  // namespace nereid::convert
