// A model's configuration: read from config.pbtxt, normalised and validated, then held as plain
// data so that only this folder's sources see protobuf.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::server {

struct TensorSpec {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> dims;                    // without the batch dimension; -1 = any
  std::optional<std::vector<int64_t>> reshape;  // what the backend sees instead of dims
  bool optional = false;
  bool is_shape_tensor = false;
  bool allow_ragged = false;  // a batch may hold different sizes
  std::string label_file;     // outputs: class names, relative to the model's folder
};
inline bool by_name(const TensorSpec* a, const TensorSpec* b) { return a->name < b->name; }

struct EnsembleStep {
  std::string model;
  int64_t version = -1;                           // -1 = newest
  std::map<std::string, std::string> input_map;   // model input -> ensemble tensor
  std::map<std::string, std::string> output_map;  // model output -> ensemble tensor
  std::string space{};                            // of the model, once it is found; see ModelId
};

// What an instance needs to execute, when the server limits rates.
struct RateLimits {
  struct Resource {
    std::string name;
    bool is_global = false;  // else one pool for each device
    uint32_t count = 0;
    bool operator==(const Resource&) const = default;
  };
  std::vector<Resource> resources;
  uint32_t priority = 1;  // p gets 1/p of the turns of 1
  bool operator==(const RateLimits&) const = default;
};

struct InstanceGroup {
  struct SecondaryDevice {
    std::string kind;  // "KIND_NVDLA"
    int64_t id = 0;
    bool operator==(const SecondaryDevice&) const = default;
  };
  std::string name;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  int32_t count = 1;          // on each device
  std::vector<int32_t> gpus;  // KIND_GPU: not empty; else empty
  std::string host_policy;    // "": after the device
  bool is_passive = false;    // initialised, but never given requests
  std::vector<std::string> profiles;
  std::vector<SecondaryDevice> secondary_devices;
  RateLimits limits;

  // 0 stands for what is no GPU.
  std::vector<int32_t> devices() const { return gpus.empty() ? std::vector<int32_t>{0} : gpus; }
  size_t num_instances() const { return static_cast<size_t>(count) * devices().size(); }
};

// An instance group that a backend prefers for models that name none.
struct PreferredGroup {
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
  int32_t count = 0;  // 0: the default
  std::vector<int32_t> gpus;
};

// GPUs that instances may use: those with at least the minimum compute capability.
struct UsableGpus {
  std::set<int32_t> ids;
  double min_capability = 6.0;
};

struct VersionPolicy {
  uint32_t latest = 1;       // the newest n; 0 = all
  bool is_specific = false;  // exactly those of `specific`
  std::vector<int64_t> specific;
};

// How requests wait; one per priority level.
struct QueuePolicy {
  bool delay_on_timeout = false;        // else a request that waited too long is rejected
  uint64_t timeout_us = 0;              // 0 = none
  bool allow_timeout_override = false;  // a request may ask for a shorter timeout
  uint32_t max_queue_size = 0;          // 0 = unlimited
};

struct DynamicBatching {
  std::vector<int32_t> preferred_sizes;
  uint64_t max_delay_us = 0;
  bool preserve_ordering = false;
  uint64_t priority_levels = 0, default_priority = 0;
  QueuePolicy queue;
  std::map<uint64_t, QueuePolicy> level_queues;
};

// An input by which a sequence model is told what a request is in its sequence: [1], or [1, 1] in
// a batching model.
struct SequenceControl {
  enum class Kind { kStart, kReady, kEnd, kId } kind = Kind::kStart;
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::string no, yes;  // the bytes of the two values; not for kId
};

// A tensor that one request of a sequence leaves for the next.
struct SequenceState {
  std::string input_name, output_name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> dims;          // without the batch dimension; -1 = any
  std::vector<int64_t> initial_dims;  // of the first request: dims with 1 for -1
  std::string initial_file;           // in <model>/initial_state; empty = zeros
  bool same_buffer = false;           // output is written over the input
  bool growable = false;              // in GPU memory that grows in its place
};

struct SequenceBatching {
  uint64_t max_idle_us = 1'000'000;
  bool oldest = false;     // candidates batched like single requests; else fixed slots of a batch
  bool iterative = false;  // a sequence is one request that is run until it is done
  uint64_t max_delay_us = 0;
  float min_utilization = 0;             // direct: share of slots that need not wait for the delay
  uint32_t max_candidates = 1;           // oldest: sequences of an instance that run
  std::vector<int32_t> preferred_sizes;  // oldest
  bool preserve_ordering = false;        // oldest
  std::vector<SequenceControl> controls;
  std::vector<SequenceState> states;
};

// One input of a warm-up request.
struct WarmupInput {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> dims;
  enum class Data { kZero, kRandom, kFile } data = Data::kZero;
  std::string file;  // in <model>/warmup
};

struct WarmupSample {
  std::string name;
  uint32_t batch_size = 1, count = 1;
  std::vector<WarmupInput> inputs;
};

// A repository agent that a model names.
struct AgentSpec {
  std::string name;
  std::map<std::string, std::string> parameters;
};

struct ModelConfig {
  std::string space;  // see ModelId
  std::string name, platform, backend, runtime;
  int64_t max_batch_size = 0;  // 0 = tensors have no batch dimension
  bool decoupled = false;
  VersionPolicy versions;
  std::vector<TensorSpec> inputs, outputs;
  std::vector<InstanceGroup> groups;
  bool has_own_groups = false;         // else the one of `groups` is a default
  UsableGpus gpus;                     // that the groups were checked against
  std::vector<EnsembleStep> steps;     // not empty: an ensemble
  uint32_t max_inflight_requests = 0;  // ensemble; 0 = the core's own bound
  std::optional<DynamicBatching> batching;
  std::string batch_strategy;  // path of a batching library, "": the usual places
  std::optional<SequenceBatching> sequences;
  bool response_cache = false;
  std::vector<WarmupSample> warmup;
  std::map<std::string, std::string> metric_tags;
  std::vector<double> first_response_buckets = {100, 500, 2000, 5000};  // ms; of the histogram
  std::string json;      // the whole message as the config endpoint and backends see it
  std::string proto;     // the message, serialised
  bool is_given = true;  // false: neither by a file nor by a load nor, so far, by the backend
  // What is wrong with inputs and outputs, which a backend may yet complete, and with instance
  // groups: reported when the model loads.
  Status tensor_problem, group_problem;

  bool is_ensemble() const { return !steps.empty(); }
  const Status& problem() const { return tensor_problem.ok() ? group_problem : tensor_problem; }
  const TensorSpec* input(std::string_view tensor) const;
  const TensorSpec* output(std::string_view tensor) const;
};

// Where a configuration comes from.
struct ConfigSource {
  std::string text;
  bool is_json = false;       // protobuf JSON instead of text format
  std::string path;           // named in errors; empty = a load override
  std::string model;          // the model's name
  bool is_mapped = false;     // the folder, and so the configuration, has another name
  std::filesystem::path dir;  // its folder, to guess a missing backend from; may be empty
  UsableGpus gpus;
  bool is_given = true;  // false: there is no file, so everything is open
};

// A configuration of which only the syntax was looked at: repository agents may replace the rest.
struct RawConfig {
  std::vector<AgentSpec> agents;  // in the order in which they see the model
  std::string json;
};
StatusOr<RawConfig> parse_raw_config(const ConfigSource& source);

// Parses, applies defaults and validates. InvalidArgument for wrong values
// ("<path>:<line>:<column>: <reason>" for syntax), each naming the field. Problems of tensors and
// instance groups end up in ModelConfig::problem().
StatusOr<ModelConfig> parse_model_config(const ConfigSource& source);

// The same for text format, ModelConfig::problem() included.
StatusOr<ModelConfig> parse_model_config(std::string_view text, const std::string& path,
                                         const std::string& directory_name);

// `config` with the first of a backend's preferred groups that the GPUs allow, where the model
// names none itself.
StatusOr<ModelConfig> adopt_preferred_groups(const ModelConfig& config,
                                             const std::vector<PreferredGroup>& preferred);

// `config` with what a backend's auto-completion may set taken from its JSON: max_batch_size,
// inputs, outputs, transaction policy, and the scheduling choice where none was made.
StatusOr<ModelConfig> adopt_auto_complete(const ModelConfig& config, std::string_view json);

}  // namespace nereid::server
