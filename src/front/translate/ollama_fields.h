// Types and values of the members of Ollama's requests. Internal to front/translate.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front {

// The first of the members that are `known` whose type or value no request may have, and what is
// allowed. Members that are null are absent.
std::optional<TranslationFault> check_ollama_members(const json::object& request,
                                                     std::span<const std::string_view> known);
// The same of the member "options".
std::optional<TranslationFault> check_ollama_options(const json::object& options);

// Options that say how a model is held and computed, which the server's own options say, and
// numbers of ways to draw that are refused: they have no effect.
bool is_ollama_option_without_effect(std::string_view name);

// Seconds of a text that is a duration of Go's: "1h30m", "-1.5s", "0". Nothing for other texts, and
// for those beyond 2^63 nanoseconds. Source: pkg.go.dev/time#ParseDuration.
std::optional<double> go_duration(std::string_view text);

// Seconds of the member "keep_alive", which is a number or a duration; negative: for ever.
std::optional<double> keep_alive_seconds(const json::value& value);

}  // namespace nereid::front
