// C API: loading and unloading models while the server runs.
#include "server/api/error.h"
#include "server/api/values.h"
#include "server/server.h"

using namespace nereid;          // NOLINT: this file is the C face of what is in there
using namespace nereid::server;  // NOLINT

namespace {

StatusOr<ModelOverride> override_of(const TRITONSERVER_Parameter** parameters, uint64_t count) {
  constexpr std::string_view kFile = "file:";
  ModelOverride out;
  for (uint64_t i = 0; i < count; ++i) {
    const TRITONSERVER_Parameter& p = *parameters[i];
    if (p.name == "config") {
      const auto* text = std::get_if<std::string>(&p.value);
      if (text == nullptr) {
        return invalid_argument("load parameter 'config' must be a string, got {}",
                                TRITONSERVER_ParameterTypeString(p.type()));
      }
      out.config = *text;
    } else if (p.name.starts_with(kFile)) {
      const auto* bytes = std::get_if<TRITONSERVER_Parameter::Bytes>(&p.value);
      if (bytes == nullptr) {
        return invalid_argument("load parameter '{}' must be bytes, got {}", p.name,
                                TRITONSERVER_ParameterTypeString(p.type()));
      }
      out.files[p.name.substr(kFile.size())] =
          std::string(static_cast<const char*>(bytes->base), bytes->size);
    } else {
      return invalid_argument("unknown load parameter '{}', 'config' and 'file:<path>' are allowed",
                              p.name);
    }
  }
  return out;
}

// Each parameter has a folder as its name and the model's name as its value.
StatusOr<Repositories::Mapping> mapping_of(const char* root,
                                           const TRITONSERVER_Parameter** parameters,
                                           uint32_t count) {
  if (parameters == nullptr && count > 0) {
    return invalid_argument("model mappings are not provided while mapping count is non-zero");
  }
  Repositories::Mapping out;
  for (uint32_t i = 0; i < count; ++i) {
    const TRITONSERVER_Parameter& p = *parameters[i];
    const auto* model = std::get_if<std::string>(&p.value);
    if (model == nullptr) {
      return invalid_argument("Mapped model name must be a string, found another type for {}",
                              p.name);
    }
    if (!out.emplace(*model, p.name).second) {
      return invalid_argument("failed to register '{}', there is a conflicting mapping for '{}'",
                              root, *model);
    }
  }
  return out;
}

}  // namespace

TRITONSERVER_Error* TRITONSERVER_ServerLoadModelWithParameters(
    TRITONSERVER_Server* server, const char* model_name, const TRITONSERVER_Parameter** parameters,
    const uint64_t parameter_count) try {
  const auto changes = override_of(parameters, parameter_count);
  if (!changes.ok()) return to_error(changes.status());
  return to_error(of(server)->models().load(model_name, *changes));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerLoadModel(TRITONSERVER_Server* server,
                                                 const char* model_name) try {
  return to_error(of(server)->models().load(model_name, {}));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerUnloadModel(TRITONSERVER_Server* server,
                                                   const char* model_name) try {
  return to_error(of(server)->models().unload(model_name, false));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerUnloadModelAndDependents(TRITONSERVER_Server* server,
                                                                const char* model_name) try {
  return to_error(of(server)->models().unload(model_name, true));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerPollModelRepository(TRITONSERVER_Server* server) try {
  return to_error(of(server)->models().poll());
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerRegisterModelRepository(
    TRITONSERVER_Server* server, const char* repository_path,
    const TRITONSERVER_Parameter** name_mapping, const uint32_t mapping_count) try {
  const auto mapping = mapping_of(repository_path, name_mapping, mapping_count);
  if (!mapping.ok()) return to_error(mapping.status());
  return to_error(of(server)->models().register_repository(repository_path, *mapping));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ServerUnregisterModelRepository(TRITONSERVER_Server* server,
                                                                 const char* repository_path) try {
  return to_error(of(server)->models().unregister_repository(repository_path));
}
NEREID_CATCH
