// A model's configuration: config.pbtxt, normalised and validated, as plain data, so that only this
// folder's sources include protobuf.
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
  std::vector<int64_t> dims;                    // batch dimension excluded; -1 = any
  std::optional<std::vector<int64_t>> reshape;  // shape that the backend gets instead of dims
  bool optional = false;
  bool is_shape_tensor = false;
  bool allow_ragged = false;  // requests of different shapes may share a batch
  std::string label_file;     // for outputs: class names, relative to the model's folder
};
inline bool by_name(const TensorSpec* a, const TensorSpec* b) { return a->name < b->name; }

struct EnsembleStep {
  std::string model;
  int64_t version = -1;                           // -1 = newest
  std::map<std::string, std::string> input_map;   // model input -> ensemble tensor
  std::map<std::string, std::string> output_map;  // model output -> ensemble tensor
  std::string space{};  // the model's ModelId::space, set once it is found
};

// Resources that an instance needs to execute, with rate limiting.
struct RateLimits {
  struct Resource {
    std::string name;
    bool is_global = false;  // one pool for all devices, else one for each
    uint32_t count = 0;
    bool operator==(const Resource&) const = default;
  };
  std::vector<Resource> resources;
  uint32_t priority = 1;  // priority p gets 1/p of the turns of priority 1
  bool operator==(const RateLimits&) const = default;
};

struct InstanceGroup {
  struct SecondaryDevice {
    std::string kind;  // such as "KIND_NVDLA"
    int64_t id = 0;
    bool operator==(const SecondaryDevice&) const = default;
  };
  std::string name;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  int32_t count = 1;          // instances on each device
  std::vector<int32_t> gpus;  // KIND_GPU: not empty; else empty
  std::string host_policy;    // "": named after the device
  bool is_passive = false;    // initialised, but gets no requests
  std::vector<std::string> profiles;
  std::vector<SecondaryDevice> secondary_devices;
  RateLimits limits;

  // The group's GPUs; {0} for other kinds.
  std::vector<int32_t> devices() const { return gpus.empty() ? std::vector<int32_t>{0} : gpus; }
  size_t num_instances() const { return static_cast<size_t>(count) * devices().size(); }
};

// An instance group that a backend prefers for models without one.
struct PreferredGroup {
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
  int32_t count = 0;  // 0: the default
  std::vector<int32_t> gpus;
};

// GPUs for instances, by CUDA's numbers: those with at least the minimum compute capability.
struct UsableGpus {
  std::set<int32_t> ids;
  double min_capability = 6.0;
};

struct VersionPolicy {
  uint32_t latest = 1;       // the newest n versions; 0 = all
  bool is_specific = false;  // only the versions in `specific`
  std::vector<int64_t> specific;
};

// Limits of a queue; one for each priority level.
struct QueuePolicy {
  bool delay_on_timeout = false;        // false: a request over its timeout is rejected
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

// A control input of a sequence model: [1], or [1, 1] with batches.
struct SequenceControl {
  enum class Kind { kStart, kReady, kEnd, kId } kind = Kind::kStart;
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::string no, yes;  // bytes of the two values; unused for kId
};

// An implicit state: a tensor that each request of a sequence passes to the next.
struct SequenceState {
  std::string input_name, output_name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> dims;          // batch dimension excluded; -1 = any
  std::vector<int64_t> initial_dims;  // dims of the first request, 1 for -1
  std::string initial_file;           // in <model>/initial_state; empty = zeros
  bool same_buffer = false;           // output overwrites the input
  bool growable = false;              // grows in place, in GPU memory
};

struct SequenceBatching {
  uint64_t max_idle_us = 1'000'000;
  // Strategy oldest: dynamic batches of candidates; else direct: fixed batch slots.
  bool oldest = false;
  bool iterative = false;  // one request that runs repeatedly until it is done
  uint64_t max_delay_us = 0;
  float min_utilization = 0;  // direct: share of slots with requests from which no delay is needed
  uint32_t max_candidates = 1;           // oldest: running sequences per instance
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

// A repository agent named in a model's configuration.
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
  bool has_own_groups = false;         // false: `groups` has only a default
  UsableGpus gpus;                     // GPUs that the groups were checked against
  std::vector<EnsembleStep> steps;     // not empty for an ensemble
  uint32_t max_inflight_requests = 0;  // for an ensemble; 0 = the core's own bound
  std::optional<DynamicBatching> batching;
  std::string batch_strategy;  // path of a batching library, "": the default paths
  std::optional<SequenceBatching> sequences;
  bool response_cache = false;
  std::vector<WarmupSample> warmup;
  std::map<std::string, std::string> metric_tags;
  // Buckets of the histogram, ms.
  std::vector<double> first_response_buckets = {100, 500, 2000, 5000};
  std::string json;      // the whole message as the config endpoint and backends read it
  std::string proto;     // the message, serialised
  bool is_given = true;  // false: given by no file, no load request and, so far, no backend
  // Errors in inputs and outputs, which a backend may still complete, and in instance groups;
  // reported when the model loads.
  Status tensor_problem, group_problem;

  bool is_ensemble() const { return !steps.empty(); }
  const Status& problem() const { return tensor_problem.ok() ? group_problem : tensor_problem; }
  const TensorSpec* input(std::string_view tensor) const;
  const TensorSpec* output(std::string_view tensor) const;
};

// Text and origin of a configuration.
struct ConfigSource {
  std::string text;
  bool is_json = false;       // protobuf JSON, not text format
  std::string path;           // for errors; empty = a load override
  std::string model;          // the model's name
  bool is_mapped = false;     // the folder, and so the configuration, has another name
  std::filesystem::path dir;  // the model's folder, for deducing a missing backend; may be empty
  UsableGpus gpus;
  bool is_given = true;  // false: no file, so every field is open
};

// A configuration checked for syntax only: repository agents may replace the rest.
struct RawConfig {
  std::vector<AgentSpec> agents;  // in the order in which they see the model
  std::string json;
};
StatusOr<RawConfig> parse_raw_config(const ConfigSource& source);

// Parses, applies defaults and validates. InvalidArgument for wrong values
// ("<path>:<line>:<column>: <reason>" for syntax), each naming the field. Problems of tensors and
// instance groups end up in ModelConfig::problem().
StatusOr<ModelConfig> parse_model_config(const ConfigSource& source);

// parse_model_config() for text format; ModelConfig::problem() is an error too.
StatusOr<ModelConfig> parse_model_config(std::string_view text, const std::string& path,
                                         const std::string& directory_name);

// `config` with the first of a backend's preferred groups that the GPUs allow, where the
// model has no group.
StatusOr<ModelConfig> adopt_preferred_groups(const ModelConfig& config,
                                             const std::vector<PreferredGroup>& preferred);

// `config` with the fields that auto-completion may set taken from the backend's
// JSON: max_batch_size, inputs, outputs, transaction policy, and the scheduling
// choice where none was made.
StatusOr<ModelConfig> adopt_auto_complete(const ModelConfig& config, std::string_view json);

}  // namespace nereid::server
