// Rows of prompt tables: what tells the input tokens of a request with one apart from others with
// the same ids, and rows that an adapter puts in front of a prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "nereid/request.h"
#include "sched/prefix_tree.h"

namespace nereid::runtime {

// One for each input token: for a row of the table, or a token with an extra id, a digest of both;
// else zero. Empty: the request has no table. It has passed check_request().
std::vector<sched::InputKey> input_keys(const Request& request, int32_t vocab_size);

// Puts the rows in front of the request's tokens, and says how many they are: its own rows, and
// what it counts by tokens of the prompt, move behind them.
int32_t put_in_front(const PromptTable& rows, int32_t vocab_size, Request& request);

}  // namespace nereid::runtime
