// The language models of a server's repository: which there are, by the names that lead to them,
// each loaded on first use and again when the models that it is made of have changed.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "front/openai/language_model.h"

namespace nereid::front {

// Of the ready models the engines of the backend "tensorrtllm", in the order of their names, the
// one that is called as usual first. The text model of an engine is the one that an ensemble with
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
  TRITONSERVER_Server* server() const { return server_; }

 private:
  struct Entry {
    ModelNames names;
    ModelPtr model;
    std::string configs;      // when they were looked at last
    std::string loaded_from;  // those of `model`
  };
  // With the mutex.
  Status find_entries();
  Status look_again_if_changed();
  StatusOr<ModelPtr> load(Entry& entry);
  Entry* find(std::string_view requested);
  Entry* find_adapter(std::string_view requested);
  std::string read_configs(const Entry& entry) const;

  TRITONSERVER_Server* const server_;
  const OpenAiOptions options_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace nereid::front
