// Conversations of Anthropic's Messages API. Internal to front/translate.
#pragma once

#include <optional>

#include "base/json.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front {

// Makes "messages" of the chat body from "system" and "messages" of the request. The answer
// continues a last message of the assistant, unless that is empty.
std::optional<TranslationFault> read_conversation(const json::object& request, json::object& chat);

}  // namespace nereid::front
