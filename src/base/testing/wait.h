// Waiting for a condition, with a deadline of a minute that only a test that fails reaches.
#pragma once

#include <functional>

namespace nereid {

// Looks every millisecond. False after a minute.
bool eventually(const std::function<bool()>& condition);

// Until every other thread of the process sleeps and stays asleep from one look to the next.
// False after a minute.
bool wait_until_nothing_runs();

}  // namespace nereid
