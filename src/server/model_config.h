// A model's configuration: read from config.pbtxt, normalised and validated, then held as plain
// data so that only model_config.cc sees protobuf.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
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
};

struct EnsembleStep {
  std::string model;
  int64_t version = -1;                           // -1 = newest
  std::map<std::string, std::string> input_map;   // model input -> ensemble tensor
  std::map<std::string, std::string> output_map;  // model output -> ensemble tensor
};

struct InstanceGroup {
  std::string name;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  int32_t count = 1;
  std::string host_policy;
};

struct VersionPolicy {
  uint32_t latest = 1;            // the newest n; 0 = all
  std::vector<int64_t> specific;  // when not empty, exactly these
};

struct ModelConfig {
  std::string name, platform, backend, runtime;
  int64_t max_batch_size = 0;  // 0 = tensors have no batch dimension
  bool decoupled = false;
  VersionPolicy versions;
  std::vector<TensorSpec> inputs, outputs;
  std::vector<InstanceGroup> groups;
  std::vector<EnsembleStep> steps;      // not empty: an ensemble
  uint32_t max_inflight_requests = 0;   // ensemble; 0 = the core's own bound
  uint32_t max_queue_size = 0;          // 0 = unlimited
  uint64_t queue_timeout_us = 0;        // 0 = none; longer waits end with UNAVAILABLE
  bool allow_timeout_override = false;  // a request may ask for a shorter timeout
  std::map<std::string, std::string> metric_tags;
  std::string json;  // the whole message as the config endpoint and backends see it

  bool is_ensemble() const { return !steps.empty(); }
  const TensorSpec* input(std::string_view tensor) const;
  const TensorSpec* output(std::string_view tensor) const;
};

// Parses protobuf text format, applies defaults and validates. `path` names the text in errors
// ("<path>:<line>:<column>: <reason>" for syntax), `directory_name` is the model's folder.
// InvalidArgument for wrong values, Unimplemented for fields that this server does not act on, each
// naming the field.
StatusOr<ModelConfig> parse_model_config(std::string_view text, const std::string& path,
                                         const std::string& directory_name);

// `<model_dir>/config.pbtxt` through parse_model_config.
StatusOr<ModelConfig> read_model_config(const std::filesystem::path& model_dir);

}  // namespace nereid::server
