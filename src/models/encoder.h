// The encoder of an encoder-decoder model, as a graph of the decoder's layers with bidirectional
// attention. It ends with the keys and values of the decoder's cross attention:
//
//   embed; or of audio features:  conv1, conv2    (see build_encoder)
//   positions, embed.norm, layers, norm           as in decoder.h
//   layers.N.cross.k, .cross.v                    of decoder layer N
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "models/decoder.h"

namespace nereid::models {

struct Model;

struct EncoderWeights {
  DecoderWeights own;
  std::string_view cross_layers;      // prefix of the decoder's layer tensors
  std::span<const WeightRule> cross;  // of each decoder layer
};

// Frames in a row of an encoder's audio features: the row of position t has frames 2t - 1 to 2t +
// 2, side by side, zeros outside of the input.
inline constexpr int32_t kFramesPerRow = 4;

// `facts`: of the encoder. Audio: two convolutions over three frames, the second with stride 2
// (Radford et al. 2022, "Robust speech recognition via large-scale weak supervision").
StatusOr<graph::Graph> build_encoder(const Traits& encoder, const EncoderWeights& weights,
                                     const Traits& decoder, io::ModelFacts facts);

// Whether a tensor belongs to the other half of the model, or decoder_ignores().
bool encoder_decoder_ignores(const Traits& traits, std::string_view tensor);

// Unimplemented for an encoder-decoder model; `instead`: what the user can do.
Status refuse_encoder_decoder(const Model& model, std::string_view instead);

}  // namespace nereid::models
