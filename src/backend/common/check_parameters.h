// A model's parameters against the table of all of them.
#pragma once

#include <string_view>

#include "backend/common/triton.h"
#include "base/status.h"

namespace nereid::backend {

// Errors name the model and the parameter. Those that change nothing are named in one warning.
Status check_parameters(const ModelSettings& settings, std::string_view backend);

}  // namespace nereid::backend
