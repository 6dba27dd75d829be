// The options of an Executor, each declared once.
#pragma once

#include "config/option.h"
#include "nereid/config.h"

namespace nereid::config {

// All of `config` but lora_directories, in the order in which they are shown. Checks that look at
// several options or at the model are in src/runtime.
Options engine_options(ExecutorConfig& config);

// Values before flags and parameters are read: any device, limits that the engine was built with.
ExecutorConfig served_defaults();

// Options of lookahead decoding, which requests have, too. Names begin with "lookahead.".
Options lookahead_options(LookaheadConfig& config);

}  // namespace nereid::config
