// Text part of models of text and pictures: a decoder, which mostly also exists on its own.
#pragma once

#include <string>
#include <string_view>

#include "models/config.h"

namespace nereid::models {

// Replaces config.json by that of the text part: `text_config`, completed from the top level, with
// the decoder's architecture. False without a change: other architectures. InvalidArgument naming
// `text_config`: missing, or no object.
StatusOr<bool> take_text_part(json::object& config, const std::string& where);

// Tensor name in the stand-alone decoder; empty: image tensor. Both prefix orders are known
// (transformers before and since 4.52).
std::string name_in_text_part(const std::string& tensor);

// name_in_text_part() for tensors of the text part alone: an image tensor gets a name, too.
std::string decoder_name(const std::string& tensor);
// Whether a tensor makes the keys or values of a layer of cross attention to pictures, which are in
// the encoder's graph.
bool is_cross_key(std::string_view tensor);

}  // namespace nereid::models
