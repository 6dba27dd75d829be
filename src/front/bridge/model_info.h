// Metadata and configurations of models, as front ends use them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "front/bridge/tensor.h"

namespace nereid::front {

struct TensorInfo {
  std::string name;
  DataType type = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;  // -1: any; a leading -1 when the model batches
};

struct ModelInfo {
  std::string name;
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;

  const TensorInfo* input(std::string_view tensor_name) const;
};

// Parses KServe model metadata. Internal: not of the protocol's form.
StatusOr<ModelInfo> parse_model_metadata(std::string_view json_text);

// version -1: the newest ready one. NotFound / Unavailable from the server. Never null.
StatusOr<std::shared_ptr<const ModelInfo>> model_info(TRITONSERVER_Server* server,
                                                      const std::string& name, int64_t version);

// TRITONSERVER_ServerIsLive or TRITONSERVER_ServerIsReady.
using ServerQuestion = TRITONSERVER_Error* (*)(TRITONSERVER_Server*, bool*);
StatusOr<bool> ask_server(TRITONSERVER_Server* server, ServerQuestion question);
// A model that is not there is not ready.
StatusOr<bool> model_is_ready(TRITONSERVER_Server* server, const std::string& name,
                              int64_t version);
Status unload_model(TRITONSERVER_Server* server, const std::string& name, bool with_dependents);

// The models of the repositories, as JSON text.
StatusOr<std::string> model_index_json(TRITONSERVER_Server* server, bool only_ready);
// Metadata and configuration as JSON text, unchanged.
StatusOr<std::string> server_metadata_json(TRITONSERVER_Server* server);
StatusOr<std::string> model_metadata_json(TRITONSERVER_Server* server, const std::string& name,
                                          int64_t version);
StatusOr<std::string> model_config_json(TRITONSERVER_Server* server, const std::string& name,
                                        int64_t version);

// The configuration as a tree, and a member of one as text ("" if it is no string).
StatusOr<json::value> model_config(TRITONSERVER_Server* server, const std::string& name);
std::string_view config_text(const json::value& config, std::string_view key);

// Statistics as JSON text; an empty name: of all models.
StatusOr<std::string> model_statistics_json(TRITONSERVER_Server* server, const std::string& name,
                                            int64_t version);

// Views of a model as JSON text (NEREID_ModelView). Unimplemented: it has none.
StatusOr<std::string> model_batch_json(TRITONSERVER_Server* server, const std::string& name,
                                       int64_t version);
StatusOr<std::string> prefix_tree_json(TRITONSERVER_Server* server, const std::string& name,
                                       int64_t version);
StatusOr<std::string> model_plan_json(TRITONSERVER_Server* server, const std::string& name,
                                      int64_t version);

// parameters[key].string_value of a model configuration; empty when absent, and for an unfilled
// placeholder of a template ("${name}").
std::string config_parameter(const json::value& config, std::string_view key);

}  // namespace nereid::front
