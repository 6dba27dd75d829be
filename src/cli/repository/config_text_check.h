// Checks of one configuration as it is written: what its tensors, batching and instances say.
#pragma once

#include "cli/repository/text_config.h"

namespace nereid::cli {

void check_config_text(const TextField& config, const Report& report);

}  // namespace nereid::cli
