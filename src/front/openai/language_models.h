// The language models of a server's repository, by all their names, each loaded on first use and
// again when its models have changed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "front/openai/language_model.h"

namespace nereid::front {

// The ready engines of backend "tensorrtllm", sorted by name, with "tensorrt_llm" first. The text
// model of an engine is that of an ensemble with both; else the only one there is, or the one with
// the usual name if there is one engine. With several engines, those without a text model are left
// out unless `needs_text` is off. The id of a single engine is `served_name`, if not empty; else
// the name of its first caller.
StatusOr<std::vector<ModelNames>> find_models(TRITONSERVER_Server* server,
                                              const std::string& served_name, bool needs_text);

class LanguageModels {
 public:
  using ModelPtr = std::shared_ptr<const LanguageModel>;

  LanguageModels(TRITONSERVER_Server* server, OpenAiOptions options)
      : server_(server), options_(std::move(options)) {}

  // The model for a name: its id or the last component of it, an adapter, or a ready model of the
  // repository that calls its engine; "" is the first one. NotFound lists the ids; Unavailable also
  // while no engine is ready. A failed load is tried again.
  StatusOr<ModelPtr> get(std::string_view requested = "");
  // All models that load, or the error of the only one.
  StatusOr<std::vector<ModelPtr>> all();
  bool is_loaded() const;  // get() takes no time for a known name

  // Adapters loaded by requests belong to their engine's model from then on, also after a reload.
  // AlreadyExists: a model has the name, or, unless `in_place`, an adapter loaded by a request;
  // ResourceExhausted: there are too many.
  Status check_adapter(const std::string& engine, std::string_view name, bool in_place);
  // Adds an adapter with a new task id, or replaces one of its name.
  Status add_adapter(const std::string& engine, backend::LoraModule adapter, bool in_place);
  // NotFound: no adapter of this name; InvalidArgument: it was loaded at start and stays.
  Status remove_adapter(std::string_view name);
  uint64_t new_task_id() { return next_task_id_++; }

  TRITONSERVER_Server* server() const { return server_; }

 private:
  struct Entry {
    ModelNames names;
    ModelPtr plain;           // as configured
    ModelPtr model;           // with adapters loaded by requests
    std::string configs;      // configurations at the last check
    std::string loaded_from;  // configurations of `model`
  };
  struct LoadedAdapter {
    std::string engine;
    backend::LoraModule adapter;
  };
  // Needs the mutex.
  Status find_entries();
  Status look_again_if_changed();
  bool have_models_changed() const;  // since the last find_entries()
  StatusOr<ModelPtr> load(Entry& entry);
  Entry* find(std::string_view requested);
  Entry* find_adapter(std::string_view requested);
  LoadedAdapter* find_loaded(std::string_view name);
  Status check_name(const std::string& engine, std::string_view name, bool in_place);
  void show_adapters();
  void show_adapters(Entry& entry) const;
  std::string read_configs(const Entry& entry) const;

  TRITONSERVER_Server* const server_;
  const OpenAiOptions options_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  uint64_t seen_changes_ = 0;
  std::vector<LoadedAdapter> adapters_;  // loaded by requests
  std::atomic<uint64_t> next_task_id_{backend::kFirstTaskIdByRequest};
};

}  // namespace nereid::front
