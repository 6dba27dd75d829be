// Ollama's API. Source: github.com/ollama/ollama, docs/api.md.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front {

// POST /api/chat and POST /api/generate: streams of JSON lines, or whole with "stream": false;
// "raw" and "suffix" use a completion. Images, templates and contexts are faults.
std::variant<Translated, TranslationFault> translate_ollama_chat(const json::object& request);
std::variant<Translated, TranslationFault> translate_ollama_generate(const json::object& request);
// POST /api/embed: many texts, scaled to length 1; POST /api/embeddings: one, unscaled.
std::variant<Translated, TranslationFault> translate_ollama_embed(const json::object& request);
std::variant<Translated, TranslationFault> translate_ollama_embeddings(const json::object& request);

// The fault of a request of POST /api/show.
std::optional<TranslationFault> check_ollama_show(const json::object& request);

std::string ollama_error(std::string_view message);

// The model named in a request, without the default tag; "": none.
std::string ollama_model_name(const json::object& request);

// "2025-12-31T23:59:59Z"; now by default.
std::string ollama_time(std::time_t time = std::time(nullptr));

// Facts about a model; 0 and "": unknown.
struct OllamaModel {
  std::string name = {};
  std::string format = {}, architecture = {}, quantization = {};
  int64_t context_length = 0, embedding_length = 0, vocabulary = 0;
  int64_t num_layers = 0, num_heads = 0, num_kv_heads = 0;
  int64_t num_parameters = 0, num_bytes = 0;  // of its files
  std::string chat_template = {};
  std::vector<std::string> capabilities = {};
  std::time_t since = 0;  // time since which it is served
};

// Answers of GET /api/tags, GET /api/ps, POST /api/show and GET /api/version.
json::object ollama_tags(const std::vector<OllamaModel>& models);
json::object ollama_running(const std::vector<OllamaModel>& models);
json::object ollama_show(const OllamaModel& model);
json::object ollama_version();

}  // namespace nereid::front
