// The one decoder that all families are cases of. What a layer does follows from the traits and
// from which weights the family names:
//
//   embed, embed.up, positions, embed.norm        norm, head.down, head
//                                       embed.up, head.down: from the embedding's width and back
//   attn.norm                           without it attention reads the residual itself
//   attn.qkv, or attn.q, attn.k, attn.v with attn.q.norm, attn.k.norm: of each head, or of all, or
//                                       of each head with weights of its own
//   attn.sinks, attn.out, attn.out.norm, attn.sum.norm: of the residual, behind the sum
//   attn.q.latent, attn.q.latent.norm   what attn.q reads, where it does not read the residual
//   attn.k.up                           latent attention: of each head from its query to the latent
//   attn.k.turning, attn.k, attn.k.norm   columns; the one key: those that turn, the latent ones
//   attn.v.up                           of each head from the latent columns to its value
//   mlp.norm                            without it the MLP reads what attention does
//   mlp.gate_up, or mlp.gate, mlp.up    mlp.up alone: without a gate
//   mlp.act.positive, mlp.act.negative  of kernels::Xielu, where that is the activation
//   mlp.down, mlp.out.norm, mlp.sum.norm
//   mlp.router                          a mixture of experts: those of the MLP are per expert
//   mlp.router.correction               added to the scores where experts are picked
//   mlp.shared.gate, .up, .down         an expert for all tokens, mlp.shared.score is its gate
//
// Each with its bias: "attn.q.bias". No fusion here: passes do that.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "graph/builder.h"
#include "models/traits.h"
#include "models/weights.h"

namespace nereid::models {

// The weights of a family. Tensors of layers begin with `layers`, where {} is the layer's number.
struct DecoderWeights {
  std::span<const WeightRule> model;
  std::string_view layers = "model.layers.{}.";
  // Any division; families share parts.
  std::array<std::span<const WeightRule>, 6> layer;
};

StatusOr<graph::Graph> build_decoder(const Traits& traits, const DecoderWeights& weights,
                                     io::ModelFacts facts);

// A layer of it on the residual x, which it returns with the layer's own added. `attended`: what
// attention reads, bf16, where that is not the residual behind attn.norm.
graph::ValueId add_decoder_layer(graph::Builder& builder, const Traits& traits,
                                 const DecoderWeights& weights, int32_t index, graph::ValueId x,
                                 graph::ValueId attended = graph::kNone);

// What the head makes of hidden states, for all of them. `bias` may be kNone.
graph::ValueId add_logits(graph::Builder& builder, const Traits& traits, graph::ValueId hidden,
                          graph::WeightId head, graph::WeightId bias);

// Constants that checkpoints carry along, and a head that is the embedding.
bool decoder_ignores(const Traits& traits, std::string_view tensor);

}  // namespace nereid::models
