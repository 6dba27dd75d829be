// Groups of engine_options() that stand in engine_options_features.cc.
#pragma once

#include "config/option.h"
#include "nereid/config.h"

namespace nereid::config {

inline constexpr double kMaxBytes = int64_t{1} << 50;

void add_speculation(Options& options, ExecutorConfig& c);
void add_adapters(Options& options, ExecutorConfig& c);
void add_statistics(Options& options, ExecutorConfig& c);

}  // namespace nereid::config
