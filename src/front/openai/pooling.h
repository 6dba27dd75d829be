// The pooling method of an embedding checkpoint. Internal to front/openai.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"

namespace nereid::front {

// "last" or "mean", by the files of sentence-transformers in `dir` (modules.json and the
// config.json of the module Pooling, by default in 1_Pooling); "last" without them. Unimplemented,
// naming file and module or mode, for others. Source: the layout that SentenceTransformer.save() of
// that package writes.
StatusOr<std::string> pooling_of(const std::filesystem::path& dir);

}  // namespace nereid::front
