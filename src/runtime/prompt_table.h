// What tells the input tokens of a request with a prompt table apart from others with the same ids.
#pragma once

#include <cstdint>
#include <vector>

#include "nereid/request.h"
#include "sched/prefix_tree.h"

namespace nereid::runtime {

// One for each input token: for a row of the table, or a token with an extra id, a digest of both;
// else zero. Empty: the request has no table. It has passed check_request().
std::vector<sched::InputKey> input_keys(const Request& request, int32_t vocab_size);

}  // namespace nereid::runtime
