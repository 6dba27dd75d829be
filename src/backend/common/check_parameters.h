// Checks of a model's parameters against the table of all known ones.
#pragma once

#include <string_view>

#include "backend/common/triton.h"
#include "base/status.h"

namespace nereid::backend {

// Errors name the model and the parameter.
Status check_parameters(const ModelSettings& settings, std::string_view backend);

// Logs one warning that names the set parameters without effect. To be called once for each load.
void warn_without_effect(const ModelSettings& settings, std::string_view backend);

}  // namespace nereid::backend
