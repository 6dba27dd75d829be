// The model repository rpcs; see control.h.
#include "front/bridge/model_info.h"
#include "front/grpc/control_handler.h"
#include "front/grpc/grpc_service.pb.h"
#include "front/kserve/repository.h"

namespace nereid::front {
namespace {

template <class Request>
Status check_repository(const Request& request) {
  if (request.repository_name().empty()) return ok();
  return unsupported("'repository_name' specification is not supported");
}

StatusOr<std::string> index(const ControlContext& c,
                            const inference::RepositoryIndexRequest& request) {
  RETURN_IF_ERROR(check_repository(request));
  ASSIGN_OR_RETURN(const std::string text, model_index_json(c.server, request.ready()));
  return "{\"models\":" + text + "}";
}

Status add_parameter(const std::string& key, const inference::ModelRepositoryParameter& value,
                     bool allow_code, LoadParameters& out) {
  const auto wrong = [&](const char* wanted) {
    return invalid_argument("invalid value type for load parameter '{}', expected {}.", key,
                            wanted);
  };
  if (key == "config") {
    if (!value.has_string_param()) return wrong("string_param");
    out.add_config(value.string_param());
  } else if (key.starts_with("file:")) {
    if (!value.has_bytes_param()) return wrong("bytes_param");
    RETURN_IF_ERROR(out.add_file(key, value.bytes_param(), allow_code));
  } else {
    return invalid_argument("unrecognized load parameter '{}'.", key);
  }
  return ok();
}

Status load(const ControlContext& c, const inference::RepositoryModelLoadRequest& request,
            inference::RepositoryModelLoadResponse&) {
  RETURN_IF_ERROR(check_repository(request));
  LoadParameters parameters;
  for (const auto& [key, value] : request.parameters()) {
    RETURN_IF_ERROR(add_parameter(key, value, c.extensions->allow_code_upload(), parameters));
  }
  return parameters.load(c.server, request.model_name());
}

Status unload(const ControlContext& c, const inference::RepositoryModelUnloadRequest& request,
              inference::RepositoryModelUnloadResponse&) {
  RETURN_IF_ERROR(check_repository(request));
  bool dependents = false;
  if (const auto it = request.parameters().find("unload_dependents");
      it != request.parameters().end()) {
    if (!it->second.has_bool_param()) {
      return invalid_argument(
          "invalid value type for 'unload_dependents' parameter, expected bool_param.");
    }
    dependents = it->second.bool_param();
  }
  return unload_model(c.server, request.model_name(), dependents);
}

}  // namespace

std::vector<ControlRpc> repository_rpcs() {
  const Protection shown(Api::kModelRepository, Access::kCallers, Cost::kNothing);
  const Protection changed(Api::kModelRepository, Access::kModels, Cost::kNothing);
  return {{"RepositoryIndex", shown, handler_of("inference.RepositoryIndexResponse", index)},
          {"RepositoryModelLoad", changed, handler_of(load), &Extensions::loads},
          {"RepositoryModelUnload", changed, handler_of(unload), &Extensions::unloads}};
}

}  // namespace nereid::front
