// Waiting for a condition, at most a minute: a limit that only a failing test reaches.
#pragma once

#include <functional>

namespace nereid {

// Tests `condition` every millisecond. False after a minute.
bool eventually(const std::function<bool()>& condition);

// Waits until every other thread of the process sleeps from one round to the next.
// False after a minute.
bool wait_until_nothing_runs();

}  // namespace nereid
