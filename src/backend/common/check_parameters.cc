#include "backend/common/check_parameters.h"

#include "backend/parameters/parameters.h"

namespace nereid::backend {

Status check_parameters(const ModelSettings& settings, std::string_view backend) {
  for (const auto& parameter : parameters_of(backend)) {
    const auto value = settings.parameter(parameter.key);
    if (!value) continue;
    RETURN_IF_ERROR(
        annotate(check_parameter(parameter, *value), fmt::format("model '{}'", settings.name)));
  }
  return ok();
}

void warn_without_effect(const ModelSettings& settings, std::string_view backend) {
  const std::string unused =
      without_effect(backend, [&](const char* key) { return settings.parameter(key); });
  if (!unused.empty()) {
    log_warning(
        fmt::format("model '{}': parameters without effect here: {}", settings.name, unused));
  }
}

}  // namespace nereid::backend
