// Prompt tables: input keys of their rows for the prefix cache, and rows that an adapter puts in
// front of a prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "nereid/request.h"
#include "sched/prefix_tree.h"

namespace nereid::runtime {

// One key per input token: a digest of (extra id, table row) for a token with either, else zero.
// Empty: no prompt table. Precondition: check_request().
std::vector<sched::InputKey> input_keys(const Request& request, int32_t vocab_size);

// Inserts `rows` in front of the request's tokens and returns their number; the request's own table
// rows and its prompt positions are shifted.
int32_t put_in_front(const PromptTable& rows, int32_t vocab_size, Request& request);

}  // namespace nereid::runtime
