// The encoder of a model that takes pictures, as a graph of the decoder's layers with bidirectional
// attention:
//
//   patch                                 product of a patch's pixel values
//   class                                 added to the first row of a picture, which has no patch
//   positions, embed.norm, layers, norm   as in decoder.h
//   proj.norm, proj.merge,                of the rows of a block of patches side by side, or of
//   proj.up, proj.down                    their mean
//   taps.N.norm, .up, .down               likewise behind tapped layer N: a feature's further
//   columns
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "models/decoder.h"

namespace nereid::models {

// Rows of patches in place of an embedding table's, bf16; `patch`: the weight that reads them.
graph::ValueId patch_rows(graph::Builder& builder, const Traits& traits,
                          const graph::Weight& patch);

// `facts`: of the encoder; its hidden_size is a feature's width, further columns included.
StatusOr<graph::Graph> build_picture_encoder(const Traits& traits, const DecoderWeights& weights,
                                             io::ModelFacts facts);

// The encoder of pictures in tiles that a decoder reads by cross attention: layers, and behind them
// layers with gates, among all tiles of a picture. It ends with the decoder's keys and values.
//
//   patch, class                        as above
//   positions, positions.gate, positions.tiles     of a place, and of a place in an arrangement
//   tiles.before, tiles.behind, .gate   of a tile in an arrangement, in front of all layers and
//                                       behind the last norm
//   embed.norm, layers, norm            as in decoder.h
//   proj                                of hidden states of the last layer and of tapped ones
//   cross.N.k, .k.norm, .v              of the decoder's cross layer N
struct TileEncoderWeights {
  DecoderWeights own, global;         // `global`: layers alone
  std::string_view cross_layers;      // prefix of the decoder's layer tensors
  std::span<const WeightRule> cross;  // of each of its cross layers
};

StatusOr<graph::Graph> build_tile_encoder(const Traits& traits, const TileEncoderWeights& weights,
                                          const Traits& decoder, io::ModelFacts facts);

// A tensor's name in the encoder's tables, from "vision_tower.", "visual.", "vision_model.",
// "multi_modal_projector." or "connector." on, or in the stand-alone decoder for keys and values of
// cross attention; empty: a tensor of the decoder.
std::string name_in_picture_part(const std::string& tensor);

// Whether a tensor belongs to layers behind the encoder's last one.
bool picture_encoder_ignores(const Traits& traits, std::string_view tensor);

}  // namespace nereid::models
