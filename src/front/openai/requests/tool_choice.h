// Tool fields of a chat request. Internal to front/openai.
#pragma once

#include "front/openai/requests/fields.h"
#include "front/openai/requests/requests.h"

namespace nereid::front {

// tools, tool_choice and parallel_tool_calls. A required call sets the grammar of the output, so
// other fields with a grammar are read before.
void read_tools(Fields& fields, ChatRequest& out);

}  // namespace nereid::front
