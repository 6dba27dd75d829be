// The language models of a server's repository: which there are, by the names that lead to them,
// each loaded on first use and again when the models that it is made of have changed.
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

// The ready models that are engines of the backend "tensorrtllm", in the order of their names, one
// that is called "tensorrt_llm" first. The text model of an engine is the one that an ensemble with
// both runs; else the only one there is, or the usual one where the engine is the only one too.
// Where there are several, those without a text model are left out unless `needs_text` is off. The
// id of an engine alone is `served_name`, if that is not empty; else the name of what leads to it.
StatusOr<std::vector<ModelNames>> find_models(TRITONSERVER_Server* server,
                                              const std::string& served_name, bool needs_text);

class LanguageModels {
 public:
  using ModelPtr = std::shared_ptr<const LanguageModel>;

  LanguageModels(TRITONSERVER_Server* server, OpenAiOptions options)
      : server_(server), options_(std::move(options)) {}

  // The model that this names: by its id or the last component of that, by an adapter of it, or by
  // a ready model of the repository that leads to its engine; the first one for "". NotFound lists
  // the ids; Unavailable also while no engine is ready. A load that failed is tried again.
  StatusOr<ModelPtr> get(std::string_view requested = "");
  // All that load, or why the only one does not.
  StatusOr<std::vector<ModelPtr>> all();
  bool is_loaded() const;  // get() takes no time for a name that is known

  // Adapters that requests load are part of their engine's model from then on, also when that is
  // loaded again. AlreadyExists: the name leads to a model, or, unless `in_place`, to such an
  // adapter; ResourceExhausted: there are too many.
  Status check_adapter(const std::string& engine, std::string_view name, bool in_place);
  // Takes in an adapter with a task id of its own, or puts it in the place of one of its name.
  Status add_adapter(const std::string& engine, backend::LoraModule adapter, bool in_place);
  // NotFound: no adapter has this name; InvalidArgument: it was loaded at start and stays.
  Status remove_adapter(std::string_view name);
  uint64_t new_task_id() { return next_task_id_++; }

  TRITONSERVER_Server* server() const { return server_; }

 private:
  struct Entry {
    ModelNames names;
    ModelPtr plain;           // as the configurations say
    ModelPtr model;           // with the adapters that requests have loaded
    std::string configs;      // when they were looked at last
    std::string loaded_from;  // those of `model`
  };
  struct LoadedAdapter {
    std::string engine;
    backend::LoraModule adapter;
  };
  // With the mutex.
  Status find_entries();
  Status look_again_if_changed();
  bool have_models_changed() const;  // since find_entries() looked at them
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
  std::vector<LoadedAdapter> adapters_;  // by requests
  std::atomic<uint64_t> next_task_id_{backend::kFirstTaskIdByRequest};
};

}  // namespace nereid::front
