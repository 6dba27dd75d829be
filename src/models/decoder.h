// The decoder of all families. A layer is determined by the traits and the present weights:
//
//   embed, embed.up, positions, embed.norm        norm, head.down, head
//   embed.row_end                       stands behind a row of a picture's tokens
//                                       embed.up, head.down: projections from and to embed width
//   attn.norm                           absent: attention reads the residual
//   attn.qkv, or attn.q, attn.k, attn.v with attn.q.norm, attn.k.norm (per head, or over all heads,
//                                       or with weights per head)
//   attn.sinks, attn.out, attn.out.norm, attn.sum.norm (post-norm of the residual)
//   attn.bias                           relative position bias
//   cross.norm, cross.q, cross.out, cross.sum.norm   attention to an encoder's output
//   attn.q.latent, attn.q.latent.norm   compressed queries, the input of attn.q
//   attn.k.up                           MLA: W_UK^T per head, from query to latent space
//   attn.k.turning, attn.k, attn.k.norm MLA: rotary and latent columns of the single key head
//   attn.v.up                           MLA: W_UV per head, from latent space to value
//   mlp.norm                            absent: the MLP reads attention's input
//   mlp.gate_up, or mlp.gate, mlp.up    mlp.up alone: ungated
//   mlp.act.positive, mlp.act.negative  parameters of kernels::Xielu
//   mlp.down, mlp.out.norm, mlp.sum.norm
//   attn.out.gate, mlp.out.gate         factors tanh(gate) of the residual's addends
//   cross.q, cross.q.norm, cross.out    without attn.q: of a layer of Traits::crosses, whose MLP
//                                       adds to tokens that see keys alone
//   mlp.router                          mixture of experts: MLP weights are per expert
//   mlp.router.correction               added to the scores for selection only
//   mlp.shared.gate, .up, .down         shared expert; mlp.shared.score: its gate
//
// Each with a bias: "attn.q.bias". Fusion is left to passes.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>

#include "graph/builder.h"
#include "models/traits.h"
#include "models/weights.h"

namespace nereid::models {

// The weights of a family. `layers`: prefix of layer tensors, {} is the layer index.
struct DecoderWeights {
  std::span<const WeightRule> model;
  std::string_view layers = "model.layers.{}.";
  int32_t first_layer = 0;  // whose index is 0
  // Divided so that families can share rule sets.
  std::array<std::span<const WeightRule>, 6> layer;
  // Encoders of pictures: of each of Traits::tapped_layers, {} is its index among them.
  std::string_view taps = "";
  std::span<const WeightRule> tap = {};
};

StatusOr<graph::Graph> build_decoder(const Traits& traits, const DecoderWeights& weights,
                                     io::ModelFacts facts);

// Adds positions, norm of the embeddings, all layers and the last norm; returns its output, of type
// `out`. `model`: the weights outside layers. `behind`: sees the residual behind each layer.
graph::ValueId add_layers(graph::Builder& builder, const Traits& traits,
                          const DecoderWeights& weights, const Weights& model, graph::ValueId x,
                          DType out = DType::kBF16,
                          const std::function<void(int32_t, graph::ValueId)>& behind = {});

// Adds a decoder layer; returns the residual behind it. `attended`: input of attention, bf16, if it
// is not attn.norm of the residual.
graph::ValueId add_decoder_layer(graph::Builder& builder, const Traits& traits,
                                 const DecoderWeights& weights, int32_t index, graph::ValueId x,
                                 graph::ValueId attended = graph::kNone);

// Logits of all rows of `hidden`. `bias` may be kNone.
graph::ValueId add_logits(graph::Builder& builder, const Traits& traits, graph::ValueId hidden,
                          graph::WeightId head, graph::WeightId bias);

// Whether a tensor is a constant buffer, or the head of a tied embedding.
bool decoder_ignores(const Traits& traits, std::string_view tensor);

}  // namespace nereid::models
