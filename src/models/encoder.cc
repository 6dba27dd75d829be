#include "models/encoder.h"

#include <fmt/format.h>

#include <utility>

#include "graph/builder.h"
#include "models/family.h"

namespace nereid::models {
namespace {

using graph::Builder;
using graph::kNone;
using graph::ValueId;

ValueId activated(Builder& b, const std::string& name, ValueId x, DType type) {
  return b.emit(name, graph::Activate{.x = x, .activation = kernels::Activation::kGelu}, 0, type)
      .out;
}

// Rows of features in place of an embedding table's.
ValueId features(Builder& b, const Traits& t, std::string_view tensor) {
  const int64_t bins = t.mel_bins;
  graph::Weight table{.name = "features", .n = 1, .k = kFramesPerRow * bins};
  graph::WeightPart part{
      .tensor = std::string(tensor), .size = 1, .total = t.hidden_size, .total_cols = 3 * bins};
  part.window = 3, part.cols = 3 * bins;
  table.parts.push_back(part);
  part.cols = bins;
  table.parts.push_back(part);
  const ValueId x = b.embed("features", b.add(std::move(table)));
  return b
      .emit("features.rounded", graph::Activate{.x = x, .activation = kernels::Activation::kNone})
      .out;
}

// Both convolutions. Row t has outputs 2t and 2t + 1 of the first one, row t - 1 output 2t - 1.
ValueId convolve(Builder& b, const Traits& t, const Weights& w) {
  const int64_t bins = t.mel_bins;
  const ValueId x = features(b, t, b.weight(w["conv1"]).parts.front().tensor);
  const auto first = [&](const std::string& name, int64_t frame) {
    const ValueId frames = b.slice(name + ".frames", x, frame * bins, 3 * bins);
    return b.linear(name, frames, w["conv1"], w["conv1.bias"]);
  };
  const ValueId even = first("conv1.even", 0), odd = first("conv1.odd", 1);
  const ValueId before = b.emit("conv1.before", graph::ShiftRows{.x = odd}).out;
  const ValueId three =
      activated(b, "conv1.act", b.concat("conv1", {before, even, odd}), DType::kBF16);
  return activated(b, "conv2.act", b.linear("conv2", three, w["conv2"], w["conv2.bias"]),
                   DType::kF32);
}

}  // namespace

StatusOr<graph::Graph> build_encoder(const Traits& t, const EncoderWeights& weights,
                                     const Traits& decoder, io::ModelFacts facts) {
  Builder b(std::move(facts));
  const Weights w(b, t, weights.own.model);
  const ValueId x =
      t.mel_bins > 0 ? convolve(b, t, w) : b.embed("embed", w["embed"], t.embed_scale);
  const ValueId hidden = add_layers(b, t, weights.own, w, x);
  const graph::Heads heads = {decoder.num_heads, decoder.num_kv_heads, decoder.head_dim};
  for (int32_t i = 0; i < decoder.num_layers; ++i) {
    const std::string scope = fmt::format("cross.{}.", i);
    const Weights cross(b, decoder, weights.cross, scope,
                        fmt::format(fmt::runtime(weights.cross_layers), i));
    const auto product = [&](const char* part) {
      return b.linear(scope + part, hidden, cross[part], cross[std::string(part) + ".bias"]);
    };
    b.store_kv(b.concat(scope + "kv", {product("k"), product("v")}), heads, i);
  }
  return std::move(b).finish(kNone, hidden);
}

bool encoder_decoder_ignores(const Traits& t, std::string_view tensor) {
  const std::string_view other = t.bidirectional ? "decoder." : "encoder.";
  if (tensor.starts_with("model.")) tensor.remove_prefix(6);
  if (tensor.starts_with(other)) return true;
  if (t.bidirectional && (tensor.starts_with("lm_head.") || tensor.starts_with("proj_out.") ||
                          tensor == "final_logits_bias"))
    return true;
  // Keys and values of cross attention are in the encoder's graph.
  for (const std::string_view part : {".EncDecAttention.k.", ".EncDecAttention.v.",
                                      ".encoder_attn.k_proj.", ".encoder_attn.v_proj."})
    if (!t.bidirectional && tensor.find(part) != std::string_view::npos) return true;
  // Copies of the shared embedding, and constant tables of positions.
  if (tensor == "encoder.embed_positions.weight" || tensor == "decoder.embed_positions.weight" ||
      tensor == "encoder.embed_tokens.weight" || tensor == "decoder.embed_tokens.weight" ||
      tensor == "shared.weight" || tensor == "proj_out.weight")
    return true;
  return decoder_ignores(t, tensor);
}

Status refuse_encoder_decoder(const Model& model, std::string_view instead) {
  if (model.graph.model.num_cross_layers == 0) return ok();
  return unsupported("{}: architecture '{}' is an encoder-decoder model; {}",
                     model.graph.model.source_dir, model.graph.model.architecture, instead);
}

}  // namespace nereid::models
