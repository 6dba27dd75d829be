// Models of text and images whose text part is served: a decoder that other checkpoints have alone.
#pragma once

#include <string>

#include "models/config.h"

namespace nereid::models {

// Makes of config.json that of the text part: `text_config` with the fields of the whole that it
// lacks, under the decoder's architecture. False, and nothing is done, for other architectures.
// InvalidArgument naming `text_config` where it is missing or no object.
StatusOr<bool> take_text_part(json::object& config, const std::string& where);

// What the decoder alone calls a tensor of the whole; empty for those of images. Files have either
// of two orders of prefixes, as transformers before and since 4.52 write them.
std::string name_in_text_part(const std::string& tensor);

}  // namespace nereid::models
