// Checks of one configuration's text: tensors, batching and instances.
#pragma once

#include "cli/repository/text_config.h"

namespace nereid::cli {

void check_config_text(const TextField& config, const Report& report);

}  // namespace nereid::cli
