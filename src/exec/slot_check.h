// Checks of what a message says that a slot draws with.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "exec/step_message.h"

namespace nereid::exec {

// InvalidArgument naming what is wrong and what is allowed.
Status check_range(std::string_view what, int64_t value, int64_t low, int64_t high);

// Parameters of one slot and its lists.
Status check_load(const SlotLoad& load, std::span<const int32_t> cells, int64_t vocab);

// What the rows of a step want drawn and read back. `hidden_width`: 0 = there are no hidden states.
Status check_rows(const StepView& step, int64_t vocab, int32_t hidden_width);

}  // namespace nereid::exec
