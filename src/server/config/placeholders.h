// Template placeholders that nobody filled in, outside the strings of a config.pbtxt.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::server {

// `text` with each bare ${name} replaced: names that end with "data_type" or "datatype" become a
// type (TYPE_FP32 for logits, TYPE_FP16 for features and prompt tables), others 0, as the
// deployments that leave them so expect. Strings and comments stay as they are. Lines keep their
// numbers. InvalidArgument, with `path` and the line, for ${triton_max_batch_size}: no default is
// right for it.
StatusOr<std::string> fill_placeholders(std::string_view text, std::string_view path);

}  // namespace nereid::server
