// Ollama's API. Source: github.com/ollama/ollama, docs/api.md.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front {

// POST /api/chat and POST /api/generate: streams of JSON lines, or whole with "stream": false.
// Images, raw prompts and contexts are faults.
std::variant<Translated, TranslationFault> translate_ollama_chat(const json::object& request);
std::variant<Translated, TranslationFault> translate_ollama_generate(const json::object& request);

std::string ollama_error(std::string_view message);

// Answers of GET /api/tags and POST /api/show.
json::object ollama_tags(std::string_view model);
json::object ollama_show(int64_t context_length);

}  // namespace nereid::front
