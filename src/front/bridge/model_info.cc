// Metadata queries; see model_info.h.
#include "front/bridge/model_info.h"

#include <unordered_map>
#include <utility>

namespace nereid::front {
namespace {

StatusOr<std::vector<TensorInfo>> parse_tensors(const json::object& metadata,
                                                std::string_view key) {
  std::vector<TensorInfo> out;
  const json::value* list = metadata.if_contains(key);
  if (list == nullptr) return out;
  if (!list->is_array()) return internal_error("model metadata: '{}' is not an array", key);
  for (const json::value& item : list->get_array()) {
    const json::object* object = item.if_object();
    const json::value* name = object ? object->if_contains("name") : nullptr;
    const json::value* type = object ? object->if_contains("datatype") : nullptr;
    const json::value* shape = object ? object->if_contains("shape") : nullptr;
    if (!name || !name->is_string() || !type || !type->is_string() || !shape ||
        !shape->is_array()) {
      return internal_error("model metadata: broken entry in '{}'", key);
    }
    TensorInfo info;
    info.name = std::string_view(name->get_string());
    info.type = TRITONSERVER_StringToDataType(type->get_string().c_str());
    for (const json::value& dim : shape->get_array()) {
      if (!dim.is_int64()) return internal_error("model metadata: broken shape in '{}'", key);
      info.shape.push_back(dim.get_int64());
    }
    out.push_back(std::move(info));
  }
  return out;
}

}  // namespace

StatusOr<std::string> take_message(TRITONSERVER_Message* message) {
  const char* base = nullptr;
  size_t size = 0;
  const Status status = take_error(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
  std::string text;
  if (status.ok()) text.assign(base, size);
  TRITONSERVER_MessageDelete(message);
  if (!status.ok()) return status;
  return text;
}

const TensorInfo* ModelInfo::input(std::string_view tensor_name) const {
  for (const TensorInfo& t : inputs) {
    if (t.name == tensor_name) return &t;
  }
  return nullptr;
}

StatusOr<ModelInfo> parse_model_metadata(std::string_view json_text) {
  ASSIGN_OR_RETURN(const json::value root, parse_json(json_text));
  const json::object* object = root.if_object();
  const json::value* name = object ? object->if_contains("name") : nullptr;
  if (name == nullptr || !name->is_string()) return internal_error("model metadata has no name");
  ModelInfo info;
  info.name = std::string_view(name->get_string());
  ASSIGN_OR_RETURN(info.inputs, parse_tensors(*object, "inputs"));
  ASSIGN_OR_RETURN(info.outputs, parse_tensors(*object, "outputs"));
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

StatusOr<std::string> server_metadata_json(TRITONSERVER_Server* server) {
  TRITONSERVER_Message* message = nullptr;
  RETURN_IF_ERROR(take_error(TRITONSERVER_ServerMetadata(server, &message)));
  return take_message(message);
}

StatusOr<std::string> model_metadata_json(TRITONSERVER_Server* server, const std::string& name,
                                          int64_t version) {
  TRITONSERVER_Message* message = nullptr;
  RETURN_IF_ERROR(
      take_error(TRITONSERVER_ServerModelMetadata(server, name.c_str(), version, &message)));
  return take_message(message);
}

StatusOr<std::string> model_config_json(TRITONSERVER_Server* server, const std::string& name,
                                        int64_t version) {
  TRITONSERVER_Message* message = nullptr;
  RETURN_IF_ERROR(
      take_error(TRITONSERVER_ServerModelConfig(server, name.c_str(), version, 1, &message)));
  return take_message(message);
}

StatusOr<std::string> model_statistics_json(TRITONSERVER_Server* server, const std::string& name,
                                            int64_t version) {
  TRITONSERVER_Message* message = nullptr;
  RETURN_IF_ERROR(
      take_error(TRITONSERVER_ServerModelStatistics(server, name.c_str(), version, &message)));
  return take_message(message);
}

StatusOr<json::value> model_config(TRITONSERVER_Server* server, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string text, model_config_json(server, name, -1));
  return parse_json(text);
}

std::string_view config_text(const json::value& config, std::string_view key) {
  const json::object* object = config.if_object();
  const json::value* value = object == nullptr ? nullptr : object->if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : "";
}

std::string config_parameter(const json::value& config, std::string_view key) {
  const json::object* object = config.if_object();
  for (const std::string_view step : {std::string_view("parameters"), key}) {
    const json::value* next = object ? object->if_contains(step) : nullptr;
    object = next ? next->if_object() : nullptr;
  }
  const json::value* value = object ? object->if_contains("string_value") : nullptr;
  if (value == nullptr || !value->is_string()) return {};
  const std::string_view text = value->get_string();
  return std::string(text.starts_with("${") ? std::string_view() : text);
}

}  // namespace nereid::front
