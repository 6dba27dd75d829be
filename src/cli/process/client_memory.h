// Counts the memory that models allocate for requests in the front ends' byte budget.
#pragma once

#include <memory>

#include "front/protection/byte_budget.h"

namespace nereid::cli {

// For all servers of the process, from now on.
void count_client_memory(const std::shared_ptr<front::ByteBudget>& budget);

}  // namespace nereid::cli
