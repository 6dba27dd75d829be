// Conversations as a template can take them. Templates differ in what they accept, and none says
// so: small conversations are rendered once, and what their texts lack tells it.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace nereid::text {

struct ChatNeeds {
  bool typed_content = false;   // contents as lists of parts, not as strings
  bool no_system = false;       // system text stands in a user message next to it
  bool no_late_system = false;  // the same, but for one in front of the conversation
  bool text_arguments = false;  // arguments of tool calls as JSON text, not as objects
  bool has_developer = false;   // a role of that name; else its text is the system's
};

// Renders up to seven conversations. A template that renders none of them needs nothing.
ChatNeeds probe_needs(const std::function<StatusOr<std::string>(const json::object&)>& render);

// Changes `messages` (contents are strings, arguments of tool calls objects) accordingly. Whatever
// the needs, a message's thoughts get the names that templates know: `reasoning_content` and
// `thinking`, from the first of these and `reasoning`. What has another form stays as it is.
void adapt_messages(const ChatNeeds& needs, json::array& messages);

}  // namespace nereid::text
