// Several instances of a model behind one Executor, each an executor of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "nereid/executor.h"

namespace nereid::runtime {

struct InstanceGroupOptions {
  int32_t num_instances = 1;  // 1 to InstanceRouter::kMaxInstances
  // One that has failed is closed and opened again, first after first_delay, then after twice as
  // long each time, at most last_delay; one that has served for last_delay begins anew.
  bool restarts = false;
  Duration first_delay = std::chrono::seconds(1), last_delay = std::chrono::seconds(60);
};

// Opens instance i; any thread, one call at a time for an instance.
using OpenInstance = std::function<StatusOr<std::unique_ptr<Executor>>(int32_t instance)>;

// Opens all instances. InstanceRouter chooses the one for each request. Ids are those of the
// instances' own executors, plus a number for each executor times 2^40. Statistics are sums;
// health() fails when no instance is healthy. Errors: those of `open`.
StatusOr<std::unique_ptr<Executor>> open_instances(OpenInstance open,
                                                   const InstanceGroupOptions& options);

}  // namespace nereid::runtime
