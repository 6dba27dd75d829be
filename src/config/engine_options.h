// The options of an Executor, each declared once.
#pragma once

#include "config/option.h"
#include "nereid/config.h"

namespace nereid::config {

// All of `config` but lora_directories, in the order in which they are shown. Checks that look at
// several options or at the model are in src/runtime.
Options engine_options(ExecutorConfig& config);

// What command lines and parameters begin with: what the engine was built with, on any device.
ExecutorConfig served_defaults();

// Those of lookahead alone, which requests have, too. Names begin with "lookahead.".
Options lookahead_options(LookaheadConfig& config);

}  // namespace nereid::config
