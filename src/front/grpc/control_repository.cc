// The model repository rpcs; see control.h.
#include "front/bridge/model_info.h"
#include "front/grpc/control.h"
#include "front/kserve/json_body.h"
#include "front/kserve/repository.h"

namespace nereid::front {
namespace {

Status check_repository(const json::value& request) {
  ASSIGN_OR_RETURN(const auto name, string_member(request, "repository_name"));
  if (name.value_or("").empty()) return ok();
  return unsupported("'repository_name' specification is not supported");
}

StatusOr<std::string> index(const ControlContext& c, const json::value& request) {
  RETURN_IF_ERROR(check_repository(request));
  ASSIGN_OR_RETURN(const auto ready, bool_member(request, "ready"));
  TRITONSERVER_Message* message = nullptr;
  const uint32_t flags = ready.value_or(false) ? TRITONSERVER_INDEX_FLAG_READY : 0;
  RETURN_IF_ERROR(take_error(TRITONSERVER_ServerModelIndex(c.server, flags, &message)));
  ASSIGN_OR_RETURN(const std::string text, take_message(message));
  return "{\"models\":" + text + "}";
}

Status add_parameter(const std::string& key, const json::value& value, bool allow_code,
                     LoadParameters& out) {
  const auto wrong = [&](const char* wanted) {
    return invalid_argument("invalid value type for load parameter '{}', expected {}.", key,
                            wanted);
  };
  if (key == "config") {
    if (member(value, "string_param") == nullptr) return wrong("string_param");
    ASSIGN_OR_RETURN(const auto text, string_member(value, "string_param"));
    out.add_config(*text);
  } else if (key.starts_with("file:")) {
    if (member(value, "bytes_param") == nullptr) return wrong("bytes_param");
    ASSIGN_OR_RETURN(const auto text, string_member(value, "bytes_param"));
    ASSIGN_OR_RETURN(std::string content, decode_base64(*text));
    RETURN_IF_ERROR(out.add_file(key, std::move(content), allow_code));
  } else {
    return invalid_argument("unrecognized load parameter '{}'.", key);
  }
  return ok();
}

StatusOr<std::string> load(const ControlContext& c, const json::value& request) {
  RETURN_IF_ERROR(check_repository(request));
  ASSIGN_OR_RETURN(const auto model, string_member(request, "model_name"));
  LoadParameters parameters;
  if (const json::value* list = member(request, "parameters")) {
    for (const auto& entry : list->as_object()) {
      RETURN_IF_ERROR(add_parameter(std::string(entry.key()), entry.value(),
                                    c.extensions->allow_code_upload(), parameters));
    }
  }
  RETURN_IF_ERROR(parameters.load(c.server, model.value_or("")));
  return "{}";
}

StatusOr<std::string> unload(const ControlContext& c, const json::value& request) {
  RETURN_IF_ERROR(check_repository(request));
  ASSIGN_OR_RETURN(const auto model, string_member(request, "model_name"));
  bool dependents = false;
  const json::value* list = member(request, "parameters");
  const json::value* value = list == nullptr ? nullptr : member(*list, "unload_dependents");
  if (value != nullptr) {
    if (member(*value, "bool_param") == nullptr) {
      return invalid_argument(
          "invalid value type for 'unload_dependents' parameter, expected bool_param.");
    }
    ASSIGN_OR_RETURN(const auto flag, bool_member(*value, "bool_param"));
    dependents = flag.value_or(false);
  }
  const std::string name = model.value_or("");
  RETURN_IF_ERROR(
      take_error(dependents ? TRITONSERVER_ServerUnloadModelAndDependents(c.server, name.c_str())
                            : TRITONSERVER_ServerUnloadModel(c.server, name.c_str())));
  return "{}";
}

}  // namespace

std::vector<ControlRpc> repository_rpcs() {
  return {{"RepositoryIndex", "model-repository", index},
          {"RepositoryModelLoad", "model-repository", load, true},
          {"RepositoryModelUnload", "model-repository", unload, true}};
}

}  // namespace nereid::front
