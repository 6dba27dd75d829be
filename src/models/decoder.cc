#include "models/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/builder.h"
#include "models/score_head.h"

namespace nereid::models {
namespace {

using graph::Builder;
using graph::kNone;
using graph::ValueId;
using graph::WeightId;

Builder::NormKind norm_kind(const Traits& t) {
  return {.eps = t.norm_eps, .weight_offset = t.norm_weight_offset, .centered = t.layer_norm};
}

// Rounded to bf16, as products read it.
ValueId rounded(Builder& b, const std::string& name, ValueId x) {
  return b.emit(name, graph::Activate{.x = x, .activation = kernels::Activation::kNone}).out;
}

constexpr std::string_view kRowEndTensor = "image_newline";

// A decoder layer; weights are looked up by name in all rule sets.
class DecoderLayer {
 public:
  DecoderLayer(Builder& b, const Traits& t, const DecoderWeights& weights, int32_t index)
      : b_(b),
        t_(layer_traits(t, index - weights.first_layer)),
        index_(index),
        name_(fmt::format("layers.{}.", index)) {
    if (is_left_out()) return;
    const std::string scope =
        fmt::format(fmt::runtime(weights.layers), index - weights.first_layer);
    for (const std::span<const WeightRule> rules : weights.layer)
      weights_.emplace_back(b, t_, rules, name_, scope);
  }

  ValueId run(ValueId x, ValueId attended) {
    if (is_left_out()) return x;
    if (t_.is_cross_layer) return run_cross(x);
    const ValueId h = attended == kNone ? read_residual("attn.norm", x) : attended;
    const ValueId attention = norm_out("attn.out.norm", gated_rows("attn.out", attend(h)));
    if (!t_.parallel) {
      x = sum("attn.sum", x, attention);
      if (weight("cross.q") != kNone) {
        const ValueId queries = product("cross.q", read_residual("cross.norm", x));
        const ValueId seen = b_.cross_attention(name_ + "cross", queries, index_, score_scale());
        x = sum("cross.sum", x, product("cross.out", seen));
      }
      const ValueId read = read_residual("mlp.norm", x);
      return sum("mlp.sum", x, norm_out("mlp.out.norm", gated_rows("mlp.out", mlp(read))));
    }
    const ValueId out = mlp(weight("mlp.norm") == kNone ? h : norm("mlp.norm", x));
    return b_.add(name_ + "mlp.sum", b_.add(name_ + "attn.sum", x, attention), out);
  }

 private:
  // Cross attention in place of self-attention. Tokens that see no key keep their residual.
  ValueId run_cross(ValueId x) {
    const ValueId queries = heads("cross.q", read_residual("attn.norm", x));
    const ValueId seen =
        b_.cross_attention(name_ + "cross", queries, num_crosses_before(), score_scale());
    x = sum("attn.sum", x, gated_rows("attn.out", product("cross.out", seen)));
    const ValueId read = read_residual("mlp.norm", x);
    return sum("mlp.sum", x, gated_rows("mlp.out", mlp(read), /*needs_keys=*/true));
  }
  // An addend of the residual, with its gate.
  ValueId gated_rows(const std::string& part, ValueId x, bool needs_keys = false) {
    const WeightId gate = weight(part + ".gate");
    if (gate == kNone && !needs_keys) return x;
    return emit(part + ".gated", graph::GateRows{.x = x, .gate = gate, .needs_keys = needs_keys});
  }
  bool is_left_out() const { return t_.is_cross_layer && t_.leaves_cross; }

  int32_t num_crosses_before() const {
    if (t_.crosses.empty()) return 0;
    return static_cast<int32_t>(std::count(t_.crosses.begin(), t_.crosses.begin() + index_, true));
  }

  WeightId weight(const std::string& part) const {
    for (const Weights& weights : weights_)
      if (const WeightId id = weights[part]; id != kNone) return id;
    return kNone;
  }

  template <class Op>
  ValueId emit(const std::string& part, Op op, int64_t cols = 0, std::optional<DType> type = {}) {
    return b_.emit(name_ + part, op, cols, type).out;
  }
  ValueId product(const std::string& part, ValueId x) {
    return b_.linear(name_ + part, x, weight(part), weight(part + ".bias"));
  }
  // Input of a product: the norm, or without a norm weight the rounding alone.
  ValueId norm(const std::string& part, ValueId x) {
    if (weight(part) == kNone) return rounded(b_, name_ + part, x);
    return b_.norm(name_ + part, x, weight(part), norm_kind(t_), weight(part + ".bias"));
  }
  // norm() of the residual; with normed_residual the norm's result becomes the residual.
  ValueId read_residual(const std::string& part, ValueId& x) {
    if (!t_.normed_residual) return norm(part, x);
    x = norm_f32(part, x);
    return rounded(b_, name_ + part + ".rounded", x);
  }
  ValueId activate(const std::string& part, ValueId x, kernels::Activation activation) {
    return emit(part, graph::Activate{.x = x, .activation = activation});
  }
  // The addend of the residual: scaled and normed.
  ValueId norm_out(const std::string& part, ValueId x) {
    if (t_.residual_scale != 1) x = emit(part, graph::SoftCap{.x = x, .scale = t_.residual_scale});
    return norm_f32(part, x);
  }
  ValueId norm_f32(const std::string& part, ValueId x) {
    if (weight(part) == kNone) return x;
    return b_.norm(name_ + part, x, weight(part), norm_kind(t_), weight(part + ".bias"),
                   DType::kF32);
  }
  ValueId sum(const std::string& part, ValueId x, ValueId y) {
    return norm_f32(part + ".norm", b_.add(name_ + part, x, y));
  }
  ValueId heads(const std::string& part, ValueId h) { return norm_heads(part, product(part, h)); }
  ValueId norm_heads(const std::string& part, ValueId x) {
    const WeightId norm = weight(part + ".norm");
    if (norm == kNone) return x;
    Builder::NormKind kind = norm_kind(t_);
    if (t_.head_norms) kind.piece = t_.head_dim;
    return b_.head_norm(name_ + part + ".norm", x, norm, kind);
  }

  bool has_rope() const { return t_.has_rope.empty() || t_.has_rope[static_cast<size_t>(index_)]; }
  ValueId grown(ValueId q) {
    if (t_.query_growth == 0 || (!t_.has_rope.empty() && has_rope())) return q;
    return emit("attn.q.grown", graph::ScaleByPosition{.x = q,
                                                       .growth = t_.query_growth,
                                                       .period = t_.query_period,
                                                       .offset = t_.query_offset});
  }

  // QK norms between RoPE and attention; queries, keys and values stay in one buffer.
  ValueId heads_behind_rope(ValueId h) {
    const ValueId q = product("attn.q", h), k = product("attn.k", h), v = product("attn.v", h);
    const int64_t queries = b_.cols(q), keys = b_.cols(k), values = b_.cols(v);
    const ValueId turned = b_.rope(name_ + "attn.rope", b_.concat(name_ + "attn.heads", {q, k, v}),
                                   0, t_.rope_interleaved);
    const ValueId turned_q = b_.slice(name_ + "attn.q.turned", turned, 0, queries);
    const ValueId turned_k = b_.slice(name_ + "attn.k.turned", turned, queries, keys);
    const ValueId kept_v = b_.slice(name_ + "attn.v.kept", turned, queries + keys, values);
    return b_.concat(name_ + "attn.qkv",
                     {norm_heads("attn.q", turned_q), norm_heads("attn.k", turned_k), kept_v});
  }

  // MLA: queries are projected into the latent space of the keys.
  ValueId latent_heads(ValueId h) {
    const ValueId from =
        weight("attn.q.latent") == kNone ? h : latent_norm("attn.q.latent", h, DType::kBF16);
    const ValueId q =
        head_products("attn.k.up", product("attn.q", from), t_.rotary_dims, DType::kF32);
    return b_.concat(name_ + "attn.qk",
                     {q, product("attn.k.turning", h), latent_norm("attn.k", h, DType::kF32)});
  }
  ValueId head_products(const std::string& part, ValueId x, int32_t kept, DType type) {
    const graph::Weight& w = b_.weight(weight(part));
    return emit(part, graph::HeadLinear{.x = x, .weight = weight(part), .kept = kept},
                w.experts * (kept + w.n), type);
  }
  ValueId latent_norm(const std::string& part, ValueId h, DType out) {
    return b_.norm(name_ + part + ".norm", product(part, h), weight(part + ".norm"),
                   {.eps = t_.latent_norm_eps}, kNone, out);
  }

  ValueId attend(ValueId h) {
    ValueId qkv = t_.latent > 0          ? latent_heads(h)
                  : t_.norms_behind_rope ? heads_behind_rope(h)
                  : weight("attn.qkv") != kNone
                      ? product("attn.qkv", h)
                      : b_.concat(name_ + "attn.qkv", {grown(heads("attn.q", h)),
                                                       heads("attn.k", h), product("attn.v", h)});
    if (t_.qkv_limit > 0) qkv = emit("attn.limit", graph::SoftCap{.x = qkv, .limit = t_.qkv_limit});
    const bool window = t_.has_window.empty() || t_.has_window[static_cast<size_t>(index_)];
    const int32_t angles = t_.ropes.size() > 1 && window ? 1 : 0;
    if (!t_.ropes.empty() && has_rope() && !t_.norms_behind_rope)
      qkv = b_.rope(name_ + "attn.rope", qkv, angles, t_.rope_interleaved);
    // An encoder's layers share a cache, whose contents live for one step.
    const int32_t layer = t_.bidirectional ? 0 : index_ - num_crosses_before();
    const ValueId out =
        b_.attention(name_ + "attn", qkv, layer, score_scale(), window ? t_.sliding_window : 0,
                     {.chunked = window && t_.chunked,
                      .cap = t_.attention_cap,
                      .alibi = t_.alibi,
                      .alibi_scale = t_.alibi_scale,
                      .sinks = weight("attn.sinks"),
                      .bidirectional = t_.bidirectional,
                      .in_windows = window && t_.pictures.window > 0,
                      .bias = weight("attn.bias"),
                      .bias_first = distances_of(t_).first});
    if (t_.latent == 0) return product("attn.out", out);
    return product("attn.out", head_products("attn.v.up", out, 0, DType::kBF16));
  }

  float score_scale() const {
    const float scale = t_.attention_scale > 0 ? t_.attention_scale
                                               : 1 / std::sqrt(static_cast<float>(t_.head_dim));
    return t_.scale_by_layer ? scale / static_cast<float>(index_ + 1) : scale;
  }

  ValueId mlp(ValueId h) { return weight("mlp.router") == kNone ? dense("mlp", h) : mixture(h); }

  ValueId gated(const std::string& name, ValueId gate_up) {
    return b_.glu(name_ + name, gate_up, t_.activation, t_.glu_limit, t_.glu_up_offset);
  }

  ValueId dense(const std::string& mlp, ValueId h) {
    const auto part = [&](const char* what) { return fmt::format("{}.{}", mlp, what); };
    if (weight(part("gate_up")) != kNone) {
      h = gated(part("act"), product(part("gate_up"), h));
    } else if (weight(part("gate")) != kNone) {
      const ValueId gate = product(part("gate"), h), up = product(part("up"), h);
      h = gated(part("act"), b_.concat(name_ + part("gate_up"), {gate, up}));
    } else if (const WeightId positive = weight(part("act.positive")); positive != kNone) {
      h = emit(part("act"), graph::Xielu{.x = product(part("up"), h),
                                         .positive = positive,
                                         .negative = weight(part("act.negative"))});
    } else {
      h = activate(part("act"), product(part("up"), h), t_.activation);
    }
    return product(part("down"), h);
  }

  ValueId mixture(ValueId h) {
    const graph::Route routed = b_.emit(name_ + "mlp.route",
                                        graph::Route{.x = product("mlp.router", h),
                                                     .bias = weight("mlp.router.correction"),
                                                     .scoring = t_.expert_scoring,
                                                     .groups = t_.expert_groups,
                                                     .groups_kept = t_.expert_groups_kept,
                                                     .group_best = t_.expert_group_best,
                                                     .renormalise = t_.renormalise_experts,
                                                     .scale = t_.expert_scale,
                                                     .jitter_eps = t_.expert_jitter_eps},
                                        t_.experts_per_token);
    const auto products = [&](const std::string& part, ValueId x) {
      return emit(part,
                  graph::ExpertLinear{.x = x,
                                      .experts = routed.experts,
                                      .weight = weight(part),
                                      .bias = weight(part + ".bias")},
                  t_.experts_per_token * b_.weight(weight(part)).n);
    };
    const ValueId gate = products("mlp.gate", h), up = products("mlp.up", h);
    ValueId gate_up = b_.concat(name_ + "mlp.gate_up", {gate, up});
    if (t_.experts_read_weighted) gate_up = weighted_sum("mlp.weighted", gate_up, routed.weights);
    ValueId out = products("mlp.down", gated("mlp.act", gate_up));
    if (!t_.experts_read_weighted) out = weighted_sum("mlp.out", out, routed.weights);
    return weight("mlp.shared.down") == kNone ? out : b_.add(name_ + "mlp.all", out, shared(h));
  }

  // The shared expert, with its sigmoid gate if it has one.
  ValueId shared(ValueId h) {
    const ValueId out = dense("mlp.shared", h);
    if (weight("mlp.shared.score") == kNone) return out;
    const graph::Route score = b_.emit(
        name_ + "mlp.shared.weight",
        graph::Route{.x = product("mlp.shared.score", h), .scoring = kernels::Scoring::kSigmoid},
        1);
    return weighted_sum("mlp.shared.out", out, score.weights);
  }

  ValueId weighted_sum(const std::string& part, ValueId x, ValueId weights) {
    return emit(part, graph::WeightedSum{.x = x, .weights = weights},
                b_.cols(x) / b_.cols(weights));
  }

  Builder& b_;
  const Traits t_;
  const int32_t index_;
  const std::string name_;
  std::vector<Weights> weights_;
};

}  // namespace

ValueId add_layers(Builder& b, const Traits& t, const DecoderWeights& weights, const Weights& w,
                   ValueId x, DType out, const std::function<void(int32_t, ValueId)>& behind) {
  if (w["positions"] != kNone)
    x = b.emit("positions",
               graph::AddPositions{.x = x, .table = w["positions"], .side = t.position_side})
            .out;
  if (w["embed.norm"] != kNone)
    x = b.norm("embed.norm", x, w["embed.norm"], norm_kind(t), w["embed.norm.bias"], DType::kF32);
  for (int32_t i = 0; i < t.num_layers; ++i) {
    b.add_residual(x);
    x = add_decoder_layer(b, t, weights, i, x);
    if (i < t.deep_layers)
      x = b.emit(fmt::format("layers.{}.deep", i),
                 graph::AddFeatures{.x = x, .column = (i + 1) * t.hidden_size})
              .out;
    if (behind) behind(i, x);
  }
  if (w["norm"] == kNone) return out == DType::kF32 ? x : rounded(b, "norm", x);
  Builder::NormKind last = norm_kind(t);
  if (t.last_norm_eps > 0) last.eps = t.last_norm_eps;
  return b.norm("norm", x, w["norm"], last, w["norm.bias"], out);
}

StatusOr<graph::Graph> build_decoder(const Traits& t, const DecoderWeights& weights,
                                     io::ModelFacts facts) {
  Builder b(std::move(facts));
  const Weights w(b, t, weights.model);
  const WeightId row_end = t.extra_row_end ? w["embed.row_end"]
                           : t.row_end
                               ? b.vector("embed.row_end", std::string(kRowEndTensor), t.embed_size)
                               : WeightId(kNone);
  ValueId x =
      b.emit("embed", graph::Embed{.table = w["embed"], .row_end = row_end, .scale = t.embed_scale},
             t.embed_size)
          .out;
  if (w["embed.up"] != kNone)
    x = b.linear("embed.up", rounded(b, "embed.rounded", x), w["embed.up"]);
  ValueId hidden = add_layers(b, t, weights, w, x);
  if (w["head.down"] != kNone)
    hidden = rounded(b, "head.down.rounded", b.linear("head.down", hidden, w["head.down"]));
  x = add_logits(b, t, hidden, w["head"], w["head.bias"]);
  return std::move(b).finish(b.sampled_rows("logits", x), hidden);
}

ValueId add_decoder_layer(Builder& b, const Traits& t, const DecoderWeights& weights, int32_t index,
                          ValueId x, ValueId attended) {
  return DecoderLayer(b, t, weights, index).run(x, attended);
}

ValueId add_logits(Builder& b, const Traits& t, ValueId hidden, WeightId head, WeightId bias) {
  const ValueId x = b.linear("head", hidden, head, bias);
  if (t.logits_scale == 1 && t.logits_cap <= 0) return x;
  return b.emit("head.cap", graph::SoftCap{.x = x, .scale = t.logits_scale, .cap = t.logits_cap})
      .out;
}

bool decoder_ignores(const Traits& t, std::string_view tensor) {
  for (const std::string_view end : {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias",
                                     ".attention.bias", ".attention.masked_bias"})
    if (tensor.ends_with(end)) return true;
  if (!t.row_end && tensor == kRowEndTensor) return true;
  if (t.leaves_cross)
    for (size_t i = 0; i < t.crosses.size(); ++i)
      if (t.crosses[i] && tensor.starts_with(fmt::format("model.layers.{}.", i))) return true;
  return is_of_extra_layer(t, tensor) || (t.tied_embedding && tensor.ends_with("lm_head.weight")) ||
         (t.scores && tensor == kScoreTensor);
}

}  // namespace nereid::models
