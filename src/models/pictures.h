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

#include <string>
#include <string_view>

#include "base/status.h"
#include "models/decoder.h"

namespace nereid::models {

// `facts`: of the encoder; its hidden_size is a feature's width, further columns included.
StatusOr<graph::Graph> build_picture_encoder(const Traits& traits, const DecoderWeights& weights,
                                             io::ModelFacts facts);

// A tensor's name in the encoder's tables, from "vision_tower.", "visual.", "vision_model.",
// "multi_modal_projector." or "connector." on; empty: a tensor of the decoder.
std::string name_in_picture_part(const std::string& tensor);

// Whether a tensor belongs to layers behind the encoder's last one.
bool picture_encoder_ignores(const Traits& traits, std::string_view tensor);

}  // namespace nereid::models
