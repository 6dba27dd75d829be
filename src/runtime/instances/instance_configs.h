// The configurations of a model's instances.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "nereid/config.h"

namespace nereid::runtime {

// Parts of "0,1;2,3" between ';'. Empty: none.
std::vector<std::string> instance_lists(std::string_view text);

// One configuration for each instance: its lists of devices and participants, its share of CPU
// threads and of host_cache_bytes. num_instances becomes the number of instances on the same
// devices, which share memory_bytes.
std::vector<ExecutorConfig> instance_configs(const ExecutorConfig& config);

// Whether instances that have failed are opened again.
bool restarts_failed(const ExecutorConfig& config);

// InvalidArgument naming the field: num_instances, process_mode, restart_failed beside the others.
Status check_instances(const ExecutorConfig& config);

}  // namespace nereid::runtime
