// The error for a missing path of a model or tokenizer.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::cli {

// NotFound when `path` does not exist, with advice for a name of the Hugging Face hub or with the
// nearest path. `what`: the argument's name; "": none.
Status check_exists(std::string_view what, const std::string& path);

}  // namespace nereid::cli
