// Reading of model repositories: the models there, and the contents of one model's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/scratch_dir.h"
#include "base/status.h"
#include "server/config/model_config.h"
#include "server/options.h"
#include "server/repository/model_id.h"
#include "server/repository/repo_agent.h"

namespace nereid::server {

// A load request's replacements for the repository's files.
struct ModelOverride {
  std::optional<std::string> config;         // ModelConfig as JSON
  std::map<std::string, std::string> files;  // path below the model's folder -> content

  bool empty() const { return !config && files.empty(); }
};

// A model as found in a repository.
struct ModelFiles {
  ModelId id() const { return {config.space, config.name}; }
  std::filesystem::path dir;  // after its agents, if any
  ModelConfig config;
  std::vector<int64_t> versions;  // chosen by the version policy, ascending
  // The folder's fingerprint; changes when a file appears, disappears or is written.
  uint64_t fingerprint = 0;
  uint64_t contents = 0;  // the fingerprint without configuration files
  bool overridden = false;
  std::shared_ptr<ScratchDir> scratch;  // folder of an override's files
  std::shared_ptr<AgentChain> agents;   // null: none
};

class Repositories {
 public:
  explicit Repositories(const ServerOptions& options);

  const UsableGpus& gpus() const { return gpus_; }

  // Internal when a root is missing or no folder.
  Status check_roots() const;

  // The ids of all model folders; names in several roots go to `duplicates` instead, unless each
  // root is a namespace.
  StatusOr<std::set<ModelId>> ids(std::set<ModelId>* duplicates) const;

  // The models of a name: with namespaces one for each root that has it. Never empty: reading an
  // unknown name returns the error.
  std::vector<ModelId> named(const std::string& name) const;

  // Finds a model's folder; configuration and versions are not read. NotFound: in no root; else
  // the model's error.
  StatusOr<ModelFiles> find_files(const ModelId& id, const ModelOverride& changes) const;

  // Runs the model's agents, then reads configuration and versions from their folder. An override's
  // configuration stays. If `agents` in `files` is set, the error may be theirs.
  Status resolve(const ModelId& id, const ModelOverride& changes, RepoAgents& agents,
                 ModelFiles& files) const;

  // Reads the configuration alone.
  StatusOr<ModelConfig> read_config(const ModelId& id, const ModelOverride& changes) const;

  // Model names for folders of a root that are to have another name.
  using Mapping = std::map<std::string, std::string>;                // model -> folder
  Status add_root(const std::string& root, const Mapping& mapping);  // AlreadyExists
  Status remove_root(const std::string& root);                       // InvalidArgument

 private:
  StatusOr<ConfigSource> source_of(const std::string& name, const std::filesystem::path& dir,
                                   const ModelOverride& changes) const;
  StatusOr<std::filesystem::path> find(const ModelId& id) const;
  bool is_mapped(const std::string& root, const std::string& folder) const;  // locked

  mutable std::mutex mutex_;
  std::set<std::string> roots_;
  struct Place {
    std::string root, folder;
  };
  std::map<std::string, Place> mapped_;  // by the model's name
  const bool has_namespaces_;
  const bool strict_config_;
  const std::string config_name_;
  const UsableGpus gpus_;
};

}  // namespace nereid::server
