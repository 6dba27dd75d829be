// How a checkpoint makes an embedding of a text. Internal to front/openai.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"

namespace nereid::front {

// "last" or "mean", as the files of sentence-transformers in `dir` say (modules.json and the
// config.json of the module Pooling, by default in 1_Pooling); "last" without them. Unimplemented,
// naming file and module or mode, when they ask for something else.
// Source: the layout that SentenceTransformer.save() of that package writes.
StatusOr<std::string> pooling_of(const std::filesystem::path& dir);

}  // namespace nereid::front
