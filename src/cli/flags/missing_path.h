// The error message for a path of a model or a tokenizer that does not exist.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::cli {

// NotFound where `path` is no file or folder here, with what to do about a name of the
// Hugging Face hub or with the path that was meant. `what` is the argument's name; "": none.
Status check_exists(std::string_view what, const std::string& path);

}  // namespace nereid::cli
