#include "front/openai/language_models.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "nereid/server.h"

namespace nereid::front {
namespace {

using Configs = std::map<std::string, json::value, std::less<>>;

// Member `key` of each item of the list at a path of members.
std::vector<std::string> texts_of(const json::value& config, const char* path,
                                  std::string_view key) {
  std::vector<std::string> out;
  boost::system::error_code ec;
  const json::value* list = config.find_pointer(path, ec);
  if (list == nullptr || !list->is_array()) return out;
  for (const json::value& item : list->get_array()) out.emplace_back(config_text(item, key));
  return out;
}

bool contains(const std::vector<std::string>& list, std::string_view text) {
  return std::ranges::find(list, text) != list.end();
}

bool is_text_model(const json::value& config) {
  return !config_parameter(config, "tokenizer_dir").empty() &&
         contains(texts_of(config, "/output", "name"), "INPUT_ID");
}

// The TensorRT-LLM backend's BLS, also as a Python script.
bool is_program(std::string_view name, const json::value& config) {
  constexpr std::string_view kBls = "tensorrt_llm_bls";
  const std::string_view backend = config_text(config, "backend");
  boost::system::error_code ec;
  const bool has_name = config.find_pointer("/parameters/tensorrt_llm_model_name", ec) != nullptr;
  return backend == kBls || (backend == "python" && (has_name || name == kBls));
}

std::string_view last_component(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

StatusOr<Configs> ready_models(TRITONSERVER_Server* server) {
  ASSIGN_OR_RETURN(const std::string text, model_index_json(server, /*only_ready=*/true));
  ASSIGN_OR_RETURN(const json::value index, parse_json(text));
  Configs out;
  for (const std::string& name : texts_of(index, "", "name"))
    if (auto config = model_config(server, name); config.ok())
      out.emplace(name, *std::move(config));
  return out;
}

// Finds the callers of the engine: ensembles first, then BLS models. Sets the text model that an
// ensemble runs beside it.
void find_callers(const Configs& configs, ModelNames& names) {
  std::vector<std::string> programs;
  for (const auto& [name, config] : configs) {
    const auto steps = texts_of(config, "/ensemble_scheduling/step", "model_name");
    if (contains(steps, names.engine)) {
      names.callers.push_back(name);
      const auto text = std::ranges::find_if(steps, [&](const std::string& step) {
        const auto found = configs.find(step);
        return found != configs.end() && is_text_model(found->second);
      });
      if (text != steps.end() && names.text.empty()) names.text = *text;
    }
    std::string called = config_parameter(config, "tensorrt_llm_model_name");
    if (called.empty() && is_program(name, config)) called = kUsualEngine;
    if (called == names.engine) programs.push_back(name);
  }
  names.callers.insert(names.callers.end(), programs.begin(), programs.end());
}

}  // namespace

StatusOr<std::vector<ModelNames>> find_models(TRITONSERVER_Server* server,
                                              const std::string& served_name, bool needs_text) {
  ASSIGN_OR_RETURN(const Configs configs, ready_models(server));
  std::vector<ModelNames> out;
  std::vector<std::string> texts;
  for (const auto& [name, config] : configs) {
    if (config_text(config, "backend") == "tensorrtllm") out.push_back({.engine = name});
    if (is_text_model(config)) texts.push_back(name);
  }
  for (ModelNames& names : out) {
    find_callers(configs, names);
    if (!names.text.empty()) continue;
    if (texts.size() == 1)
      names.text = texts[0];
    else if (out.size() == 1)
      names.text = kUsualText;
  }
  if (out.size() > 1 && needs_text)
    std::erase_if(out, [](const ModelNames& names) { return names.text.empty(); });
  std::ranges::stable_partition(
      out, [](const ModelNames& names) { return names.engine == kUsualEngine; });
  for (ModelNames& names : out) {
    const bool is_served = names.engine == served_name || contains(names.callers, served_name);
    if (!served_name.empty() && (out.size() == 1 || is_served))
      names.id = served_name;
    else
      names.id = names.callers.empty() ? names.engine : names.callers.front();
  }
  return out;
}

Status LanguageModels::find_entries() {
  const uint64_t changes = NEREID_ServerModelChanges(server_);
  ASSIGN_OR_RETURN(auto found,
                   find_models(server_, options_.model_name, options_.tokenizer_dir.empty()));
  std::vector<Entry> entries;
  for (ModelNames& names : found) {
    const auto known = std::ranges::find(entries_, names, &Entry::names);
    if (known != entries_.end())
      entries.push_back(std::move(*known));
    else
      entries.push_back({.names = std::move(names)});
  }
  entries_ = std::move(entries);
  for (Entry& entry : entries_) entry.configs = read_configs(entry);
  seen_changes_ = changes;
  return ok();
}

// The configurations of all its models, as text; a load of any may change them.
std::string LanguageModels::read_configs(const Entry& entry) const {
  std::string out;
  const auto add = [&](const std::string& name) {
    out += model_config_json(server_, name, -1).value_or("");
  };
  add(entry.names.engine);
  add(entry.names.text);
  if (entries_.size() > 1 && !entry.names.callers.empty()) add(entry.names.callers.front());
  return out;
}

// Finds the entries again after a change of models: any of them may change which belong together.
Status LanguageModels::look_again_if_changed() {
  if (!entries_.empty() && !have_models_changed()) return ok();
  RETURN_IF_ERROR(find_entries());
  if (!entries_.empty()) return ok();
  if (options_.model_name.empty()) return unavailable("no language model is ready");
  return unavailable("model '{}' is not ready", options_.model_name);
}

bool LanguageModels::have_models_changed() const {
  return NEREID_ServerModelChanges(server_) != seen_changes_;
}

StatusOr<LanguageModels::ModelPtr> LanguageModels::load(Entry& entry) {
  if (!model_is_ready(server_, entry.names.engine, -1).value_or(false))
    return unavailable("model '{}' is not ready", entry.names.id);
  if (!entry.model || entry.configs != entry.loaded_from) {
    entry.model = nullptr;
    ASSIGN_OR_RETURN(entry.plain, load_language_model(server_, entry.names, options_));
    entry.loaded_from = entry.configs;
    show_adapters(entry);
  }
  return entry.model;
}

LanguageModels::Entry* LanguageModels::find(std::string_view requested) {
  if (entries_.empty()) return nullptr;
  if (requested.empty()) return &entries_.front();
  for (Entry& entry : entries_)
    if (requested == entry.names.id) return &entry;
  for (Entry& entry : entries_) {
    const ModelNames& names = entry.names;
    if (requested == names.engine ||
        (contains(names.callers, requested) &&
         model_is_ready(server_, std::string(requested), -1).value_or(false)))
      return &entry;
  }
  for (Entry& entry : entries_)
    if (last_component(requested) == last_component(entry.names.id)) return &entry;
  return nullptr;
}

LanguageModels::Entry* LanguageModels::find_adapter(std::string_view requested) {
  for (Entry& entry : entries_)
    if (const auto model = load(entry); model.ok() && (*model)->adapter(requested)) return &entry;
  return nullptr;
}

void LanguageModels::show_adapters(Entry& entry) const {
  entry.model = entry.plain;
  if (adapters_.empty() || entry.plain->lora_load_dir.empty()) return;
  auto model = std::make_shared<LanguageModel>(*entry.plain);
  for (const auto& [engine, adapter] : adapters_)
    if (engine == entry.names.engine && !model->adapter(adapter.name))
      model->adapters.push_back(adapter);
  entry.model = std::move(model);
}

void LanguageModels::show_adapters() {
  for (Entry& entry : entries_)
    if (entry.model) show_adapters(entry);
}

LanguageModels::LoadedAdapter* LanguageModels::find_loaded(std::string_view name) {
  const auto known = std::ranges::find_if(
      adapters_, [&](const LoadedAdapter& loaded) { return loaded.adapter.name == name; });
  return known == adapters_.end() ? nullptr : &*known;
}

Status LanguageModels::check_name(const std::string& engine, std::string_view name, bool in_place) {
  constexpr size_t kMost = 10000;
  const LoadedAdapter* const known = find_loaded(name);
  const auto has = [&](const Entry& entry) { return entry.plain && entry.plain->adapter(name); };
  if (find(name) || std::ranges::any_of(entries_, has) || (known && known->engine != engine))
    return already_exists("'{}' is the name of another model", name);
  if (known && !in_place)
    return already_exists("'{}' is loaded already; load_inplace replaces it", name);
  if (!known && adapters_.size() >= kMost)
    return resource_exhausted("{} adapters are loaded, no more are allowed", kMost);
  return ok();
}

Status LanguageModels::check_adapter(const std::string& engine, std::string_view name,
                                     bool in_place) {
  const std::lock_guard lock(mutex_);
  return check_name(engine, name, in_place);
}

Status LanguageModels::add_adapter(const std::string& engine, backend::LoraModule adapter,
                                   bool in_place) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(check_name(engine, adapter.name, in_place));
  if (LoadedAdapter* const known = find_loaded(adapter.name))
    known->adapter = std::move(adapter);
  else
    adapters_.push_back({engine, std::move(adapter)});
  show_adapters();
  return ok();
}

Status LanguageModels::remove_adapter(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto is_it = [&](const LoadedAdapter& loaded) { return loaded.adapter.name == name; };
  if (std::erase_if(adapters_, is_it) > 0) {
    show_adapters();
    return ok();
  }
  const auto has = [&](const Entry& entry) { return entry.plain && entry.plain->adapter(name); };
  if (std::ranges::any_of(entries_, has))
    return invalid_argument("adapter '{}' was loaded at start and stays", name);
  return not_found("there is no adapter '{}'", name);
}

StatusOr<LanguageModels::ModelPtr> LanguageModels::get(std::string_view requested) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(look_again_if_changed());
  Entry* entry = find(requested);
  if (entry == nullptr) entry = find_adapter(requested);
  if (entry == nullptr) {
    RETURN_IF_ERROR(find_entries());
    entry = find(requested);
    if (entry == nullptr) entry = find_adapter(requested);
  }
  if (entry != nullptr) return load(*entry);
  std::vector<std::string_view> ids;
  for (const Entry& each : entries_) ids.push_back(each.names.id);
  return not_found("The model '{}' does not exist; this server has '{}'", requested,
                   fmt::join(ids, "', '"));
}

StatusOr<std::vector<LanguageModels::ModelPtr>> LanguageModels::all() {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(find_entries());
  std::vector<ModelPtr> out;
  for (Entry& entry : entries_) {
    auto model = load(entry);
    if (model.ok())
      out.push_back(*std::move(model));
    else if (entries_.size() == 1)
      return model.status();
  }
  return out;
}

bool LanguageModels::is_loaded() const {
  const std::unique_lock lock(mutex_, std::try_to_lock);  // a load may hold it for seconds
  return lock.owns_lock() && !entries_.empty() && !have_models_changed() &&
         std::ranges::all_of(entries_, [](const Entry& entry) {
           return entry.model && entry.configs == entry.loaded_from;
         });
}

}  // namespace nereid::front
