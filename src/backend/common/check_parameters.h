// A model's parameters against the table of all of them.
#pragma once

#include <string_view>

#include "backend/common/triton.h"
#include "base/status.h"

namespace nereid::backend {

// Errors name the model and the parameter.
Status check_parameters(const ModelSettings& settings, std::string_view backend);

// Names the set parameters that change nothing in one warning. Once for each load.
void warn_without_effect(const ModelSettings& settings, std::string_view backend);

}  // namespace nereid::backend
