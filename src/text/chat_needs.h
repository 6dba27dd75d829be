// Adaptation of conversations to a template. A template does not declare what it accepts: a few
// small conversations are rendered once, and text missing in the results shows it.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace nereid::text {

struct ChatNeeds {
  bool typed_content = false;  // contents must be lists of parts, not strings
  bool no_system = false;      // no system role: system text moves into a neighbouring user message
  bool no_late_system = false;  // no system role except at the front of the conversation
  bool text_arguments = false;  // arguments of tool calls must be JSON text, not objects
  bool has_developer = false;   // has a developer role; else its text is the system's
};

// Renders up to seven conversations. A template that renders none of them needs nothing.
ChatNeeds probe_needs(const std::function<StatusOr<std::string>(const json::object&)>& render);

// Adapts `messages` (contents are strings, arguments of tool calls objects). In every case the
// reasoning text of a message gets the names used by templates, `reasoning_content` and `thinking`,
// from the first of these and `reasoning`. Messages of another form stay.
void adapt_messages(const ChatNeeds& needs, json::array& messages);

}  // namespace nereid::text
