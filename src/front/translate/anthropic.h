// Anthropic's Messages API. Source: docs.anthropic.com/en/api/messages.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front {

// POST /v1/messages: text, tools, reasoning ("thinking"), streams. Images and the vendor's own
// tools are faults.
std::variant<Translated, TranslationFault> translate_messages(const json::object& request);

std::string messages_error(int status, std::string_view message);

}  // namespace nereid::front
