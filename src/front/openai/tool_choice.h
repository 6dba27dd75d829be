// The fields of a chat request about tools. Internal to front/openai.
#pragma once

#include "front/openai/fields.h"
#include "front/openai/requests.h"

namespace nereid::front {

// tools, tool_choice and parallel_tool_calls. A choice that has to be called sets the guide of the
// output, so other fields that set one come first.
void read_tools(Fields& fields, ChatRequest& out);

}  // namespace nereid::front
