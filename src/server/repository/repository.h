// Reading model repositories: which models there are, and what one model's folder holds.
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

// What a load request may bring instead of the repository's files.
struct ModelOverride {
  std::optional<std::string> config;         // ModelConfig as JSON
  std::map<std::string, std::string> files;  // path below the model's folder -> content

  bool empty() const { return !config && files.empty(); }
};

// A model as found; the fingerprint is that of the folder in the repository.
struct ModelFiles {
  ModelId id() const { return {config.space, config.name}; }
  std::filesystem::path dir;  // where its agents, if any, left it
  ModelConfig config;
  std::vector<int64_t> versions;  // chosen by the version policy, ascending
  uint64_t fingerprint = 0;       // changes when a file appears, disappears or is written
  uint64_t contents = 0;          // the same of files that are no configurations
  bool overridden = false;
  std::shared_ptr<ScratchDir> scratch;  // holds the files of an override
  std::shared_ptr<AgentChain> agents;   // null: none
};

class Repositories {
 public:
  explicit Repositories(const ServerOptions& options);

  const UsableGpus& gpus() const { return gpus_; }

  // Internal when a root is missing or no folder.
  Status check_roots() const;

  // The ids of all model folders; those named alike in several roots are in `duplicates` instead,
  // unless each root is a namespace.
  StatusOr<std::set<ModelId>> ids(std::set<ModelId>* duplicates) const;

  // The models that a name stands for: with namespaces one in each root that has it. Never empty:
  // reading what is nowhere says so.
  std::vector<ModelId> named(const std::string& name) const;

  // Finds a model, without its configuration and versions. NotFound: in no root. Other errors: what
  // is wrong with it.
  StatusOr<ModelFiles> find_files(const ModelId& id, const ModelOverride& changes) const;

  // Lets the model's agents load it, then reads configuration and versions where they left it. The
  // configuration of an override stays. With `agents` in `files` an error may be theirs.
  Status resolve(const ModelId& id, const ModelOverride& changes, RepoAgents& agents,
                 ModelFiles& files) const;

  // The configuration alone.
  StatusOr<ModelConfig> read_config(const ModelId& id, const ModelOverride& changes) const;

  // Model names for folders of a root that are to have another one.
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
