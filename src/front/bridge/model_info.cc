// Metadata queries; see model_info.h.
#include "front/bridge/model_info.h"

#include <functional>
#include <unordered_map>
#include <utility>

#include "base/json_members.h"
#include "nereid/server.h"

namespace nereid::front {
namespace {

StatusOr<std::vector<TensorInfo>> parse_tensors(const json::object& metadata,
                                                std::string_view key) {
  std::vector<TensorInfo> out;
  const json::value* list = metadata.if_contains(key);
  if (list == nullptr) return out;
  if (!list->is_array()) return internal_error("model metadata: '{}' is not an array", key);
  for (const json::value& item : list->get_array()) {
    const json::string* const name = member_or_null(item, "name").if_string();
    const json::string* const type = member_or_null(item, "datatype").if_string();
    const json::array* const shape = member_or_null(item, "shape").if_array();
    if (!name || !type || !shape)
      return internal_error("model metadata: broken entry in '{}'", key);
    TensorInfo info;
    info.name = std::string_view(*name);
    info.type = TRITONSERVER_StringToDataType(type->c_str());
    for (const json::value& dim : *shape) {
      if (!dim.is_int64()) return internal_error("model metadata: broken shape in '{}'", key);
      info.shape.push_back(dim.get_int64());
    }
    out.push_back(std::move(info));
  }
  return out;
}

// The JSON text of the message that `read` gives.
StatusOr<std::string> text_of(std::function<TRITONSERVER_Error*(TRITONSERVER_Message**)> read) {
  TRITONSERVER_Message* message = nullptr;
  RETURN_IF_ERROR(take_error(read(&message)));
  const char* base = nullptr;
  size_t size = 0;
  const Status status = take_error(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
  std::string text;
  if (status.ok()) text.assign(base, size);
  TRITONSERVER_MessageDelete(message);
  if (!status.ok()) return status;
  return text;
}

}  // namespace

const TensorInfo* ModelInfo::input(std::string_view tensor_name) const {
  for (const TensorInfo& t : inputs) {
    if (t.name == tensor_name) return &t;
  }
  return nullptr;
}

StatusOr<ModelInfo> parse_model_metadata(std::string_view json_text) {
  ASSIGN_OR_RETURN(const json::value root, parse_json(json_text));
  const json::string* const name = member_or_null(root, "name").if_string();
  if (!name) return internal_error("model metadata has no name");
  ModelInfo info;
  info.name = std::string_view(*name);
  ASSIGN_OR_RETURN(info.inputs, parse_tensors(root.get_object(), "inputs"));
  ASSIGN_OR_RETURN(info.outputs, parse_tensors(root.get_object(), "outputs"));
  return info;
}

StatusOr<std::shared_ptr<const ModelInfo>> model_info(TRITONSERVER_Server* server,
                                                      const std::string& name, int64_t version) {
  ASSIGN_OR_RETURN(std::string text, model_metadata_json(server, name, version));
  // A cache of parsed metadata per text and thread: the text itself is cheap to get, and
  // changes with the model.
  constexpr size_t kMaxKept = 64;
  struct Kept {
    std::string text;
    std::shared_ptr<const ModelInfo> info;
  };
  thread_local std::unordered_map<std::string, Kept> kept;
  if (const auto it = kept.find(name); it != kept.end() && it->second.text == text) {
    return it->second.info;
  }
  ASSIGN_OR_RETURN(ModelInfo parsed, parse_model_metadata(text));
  const auto info = std::make_shared<const ModelInfo>(std::move(parsed));
  if (kept.size() >= kMaxKept) kept.clear();
  kept[name] = {std::move(text), info};
  return info;
}

StatusOr<bool> ask_server(TRITONSERVER_Server* server, ServerQuestion question) {
  bool yes = false;
  RETURN_IF_ERROR(take_error(question(server, &yes)));
  return yes;
}

StatusOr<bool> model_is_ready(TRITONSERVER_Server* server, const std::string& name,
                              int64_t version) {
  bool ready = false;
  const Status status =
      take_error(TRITONSERVER_ServerModelIsReady(server, name.c_str(), version, &ready));
  if (absl::IsNotFound(status) || absl::IsUnavailable(status)) return false;
  RETURN_IF_ERROR(status);
  return ready;
}

Status unload_model(TRITONSERVER_Server* server, const std::string& name, bool with_dependents) {
  const auto unload = with_dependents ? &TRITONSERVER_ServerUnloadModelAndDependents
                                      : &TRITONSERVER_ServerUnloadModel;
  return take_error(unload(server, name.c_str()));
}

StatusOr<std::string> model_index_json(TRITONSERVER_Server* server, bool only_ready) {
  const uint32_t flags = only_ready ? TRITONSERVER_INDEX_FLAG_READY : 0;
  return text_of([&](auto** out) { return TRITONSERVER_ServerModelIndex(server, flags, out); });
}

StatusOr<std::string> server_metadata_json(TRITONSERVER_Server* server) {
  return text_of([&](auto** out) { return TRITONSERVER_ServerMetadata(server, out); });
}

StatusOr<std::string> model_metadata_json(TRITONSERVER_Server* server, const std::string& name,
                                          int64_t version) {
  return text_of([&](auto** out) {
    return TRITONSERVER_ServerModelMetadata(server, name.c_str(), version, out);
  });
}

StatusOr<std::string> model_config_json(TRITONSERVER_Server* server, const std::string& name,
                                        int64_t version) {
  return text_of([&](auto** out) {
    return TRITONSERVER_ServerModelConfig(server, name.c_str(), version, 1, out);
  });
}

StatusOr<std::string> model_statistics_json(TRITONSERVER_Server* server, const std::string& name,
                                            int64_t version) {
  return text_of([&](auto** out) {
    return TRITONSERVER_ServerModelStatistics(server, name.c_str(), version, out);
  });
}

namespace {

StatusOr<std::string> view_json(TRITONSERVER_Server* server, const std::string& name,
                                int64_t version, NEREID_View view) {
  return text_of(
      [&](auto** out) { return NEREID_ServerModelView(server, name.c_str(), version, view, out); });
}

}  // namespace

StatusOr<std::string> model_batch_json(TRITONSERVER_Server* server, const std::string& name,
                                       int64_t version) {
  return view_json(server, name, version, NEREID_VIEW_BATCH);
}

StatusOr<std::string> prefix_tree_json(TRITONSERVER_Server* server, const std::string& name,
                                       int64_t version) {
  return view_json(server, name, version, NEREID_VIEW_PREFIX_TREE);
}

StatusOr<std::string> model_plan_json(TRITONSERVER_Server* server, const std::string& name,
                                      int64_t version) {
  return view_json(server, name, version, NEREID_VIEW_PLAN);
}

StatusOr<json::value> model_config(TRITONSERVER_Server* server, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string text, model_config_json(server, name, -1));
  return parse_json(text);
}

std::string_view config_text(const json::value& config, std::string_view key) {
  const json::string* const text = member_or_null(config, key).if_string();
  return text ? std::string_view(*text) : "";
}

std::string config_parameter(const json::value& config, std::string_view key) {
  const json::object& parameter = object_member(object_member(config, "parameters"), key);
  std::string text = text_member(parameter, "string_value");
  return text.starts_with("${") ? "" : text;
}

}  // namespace nereid::front
