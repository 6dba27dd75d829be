// Model information of Ollama's API; see ollama.h.
#include <iterator>
#include <utility>

#include "base/hash.h"
#include "front/translate/ollama.h"

namespace nereid::front {
namespace {

// Clients cut it to twelve digits, and consider models with equal ones the same.
std::string digest(const OllamaModel& model) {
  std::string out;
  const std::string what = fmt::format("{} {} {}", model.name, model.num_bytes, model.vocabulary);
  for (uint64_t seed = 1; seed <= 4; ++seed)
    fmt::format_to(std::back_inserter(out), "{:016x}", hash64(what, seed));
  return out;
}

// Such as "7.6B".
std::string parameter_size(int64_t num_parameters) {
  const auto number = static_cast<double>(num_parameters);
  if (number >= 1e9) return fmt::format("{:.1f}B", number / 1e9);
  if (number >= 1e6) return fmt::format("{:.1f}M", number / 1e6);
  if (number >= 1e3) return fmt::format("{:.1f}K", number / 1e3);
  return num_parameters > 0 ? fmt::to_string(num_parameters) : "";
}

json::object details(const OllamaModel& model) {
  return {{"parent_model", ""},
          {"format", model.format},
          {"family", model.architecture},
          {"families", json::array{model.architecture}},
          {"parameter_size", parameter_size(model.num_parameters)},
          {"quantization_level", model.quantization}};
}

json::object card(const OllamaModel& model) {
  return {{"name", model.name},
          {"model", model.name},
          {"size", model.num_bytes},
          {"digest", digest(model)},
          {"details", details(model)}};
}

json::object list_of(const std::vector<OllamaModel>& models,
                     json::object (*make)(const OllamaModel&)) {
  json::array list;
  for (const OllamaModel& model : models) list.push_back(make(model));
  return {{"models", std::move(list)}};
}

}  // namespace

std::string ollama_time(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

json::object ollama_tags(const std::vector<OllamaModel>& models) {
  return list_of(models, [](const OllamaModel& model) {
    json::object out = card(model);
    out["modified_at"] = ollama_time(model.since);
    return out;
  });
}

// All served models are loaded.
json::object ollama_running(const std::vector<OllamaModel>& models) {
  return list_of(models, [](const OllamaModel& model) {
    constexpr std::time_t kCentury = 3153600000;
    json::object out = card(model);
    out["expires_at"] = ollama_time(model.since + kCentury);
    out["size_vram"] = model.num_bytes;
    out["context_length"] = model.context_length;
    return out;
  });
}

json::object ollama_show(const OllamaModel& model) {
  json::object info = {{"general.architecture", model.architecture},
                       {"general.basename", model.name}};
  const auto add = [&](std::string_view key, int64_t value) {
    if (value > 0) info[key] = value;
  };
  add("general.parameter_count", model.num_parameters);
  const std::pair<const char*, int64_t> numbers[] = {
      {"context_length", model.context_length},
      {"embedding_length", model.embedding_length},
      {"block_count", model.num_layers},
      {"attention.head_count", model.num_heads},
      {"attention.head_count_kv", model.num_kv_heads},
      {"vocab_size", model.vocabulary}};
  for (const auto& [key, value] : numbers)
    add(fmt::format("{}.{}", model.architecture, key), value);
  json::array capabilities;
  for (const std::string& one : model.capabilities) capabilities.emplace_back(one);
  return {{"modelfile", fmt::format("FROM {}", model.name)},
          {"parameters", ""},
          {"template", model.chat_template},
          {"details", details(model)},
          {"model_info", std::move(info)},
          {"capabilities", std::move(capabilities)},
          {"modified_at", ollama_time(model.since)}};
}

// The release with this API; clients require a minimum.
json::object ollama_version() { return {{"version", "0.12.11"}}; }

}  // namespace nereid::front
