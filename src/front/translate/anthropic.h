// Anthropic's Messages API. Source: docs.anthropic.com/en/api/messages.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front {

// POST /v1/messages: text, documents of text, tools, reasoning ("thinking"), structured answers,
// streams. Images, files and the vendor's own tools are faults. The header "anthropic-beta" counts
// as a member "anthropic_beta".
std::variant<Translated, TranslationFault> translate_messages(const json::object& request);
// POST /v1/messages/count_tokens: the chat whose prompt is counted, without a translation.
std::variant<Translated, TranslationFault> translate_messages_to_count(const json::object& request);

std::string messages_token_count(int64_t num_tokens);
std::string messages_error(int status, std::string_view message);

}  // namespace nereid::front
