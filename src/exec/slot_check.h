// Checks of the sampling data in messages.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "exec/step_message.h"

namespace nereid::exec {

// InvalidArgument with value and range.
Status check_range(std::string_view what, int64_t value, int64_t low, int64_t high);

// Checks a slot's parameters and lists.
Status check_load(const SlotLoad& load, std::span<const int32_t> cells, int64_t vocab);

// Checks the sampling and read-back requests of rows. `hidden_width`: 0 = no hidden states.
Status check_rows(const StepMessageView& step, int64_t vocab, int32_t hidden_width);

}  // namespace nereid::exec
