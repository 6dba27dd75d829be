// Types and values of the members of Ollama's requests. Internal to front/translate.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front {

// The fault of the first `known` member whose type or value is never valid, with what is allowed.
// Null members are absent.
std::optional<TranslationFault> check_ollama_members(const json::object& request,
                                                     std::span<const std::string_view> known);
// check_ollama_members() for the member "options".
std::optional<TranslationFault> check_ollama_options(const json::object& options);

// Options about loading and computing a model, which the server's own options set, and parameters
// of unsupported samplers: they have no effect.
bool is_ollama_option_without_effect(std::string_view name);

// Seconds of a Go duration: "1h30m", "-1.5s", "0". nullopt for other text and beyond 2^63
// ns. Source: pkg.go.dev/time#ParseDuration.
std::optional<double> go_duration(std::string_view text);

// Seconds of the member "keep_alive", a number or a duration; negative: for ever.
std::optional<double> keep_alive_seconds(const json::value& value);

}  // namespace nereid::front
