// Opening of backends' shared objects.
#include <dlfcn.h>

#include "base/json.h"
#include "base/log.h"
#include "server/api/error.h"
#include "server/model/backend_call.h"
#include "server/model/backend_model.h"
#include "server/symbols.h"

namespace nereid::server {
namespace {

// The backend configuration {"cmdline":{setting: value, ...}}.
std::string backend_config_json(const std::string& name, const ServerOptions& options) {
  json::object settings;
  settings["auto-complete-config"] = options.strict_model_config ? "false" : "true";
  settings["backend-directory"] = options.backend_dir;
  settings["min-compute-capability"] = fmt::format("{:.6f}", options.min_compute_capability);
  constexpr const char* kDefaultMaxBatchSize = "default-max-batch-size";
  settings[kDefaultMaxBatchSize] = "4";
  bool is_overwritten = false;
  for (const std::string& section : {std::string(), name}) {
    const auto it = options.backend_settings.find(section);
    if (it == options.backend_settings.end()) continue;
    for (const auto& [key, value] : it->second) settings[key] = value;
    is_overwritten |= it->second.contains(kDefaultMaxBatchSize);
  }
  if (is_overwritten) {
    log_debug("Found overwritten default setting: {},{}", kDefaultMaxBatchSize,
              std::string_view(settings[kDefaultMaxBatchSize].as_string()));
  }
  return json::serialize(json::object{{"cmdline", std::move(settings)}});
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> Backend::open(const std::string& name,
                                                 const std::filesystem::path& path,
                                                 const std::filesystem::path& dir,
                                                 const ServerOptions& options) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return not_found("unable to load shared library: {}", dlerror());
  auto b = std::make_unique<Backend>();
  b->name = name;
  b->dir = dir.string();
  b->config.text = backend_config_json(name, options);
  BackendFn initialize = nullptr;
  AttributeFn attribute = nullptr;
  find_symbol(handle, "TRITONBACKEND_Initialize", initialize);
  find_symbol(handle, "TRITONBACKEND_GetBackendAttribute", attribute);
  find_symbol(handle, "TRITONBACKEND_ModelInitialize", b->model_initialize);
  find_symbol(handle, "TRITONBACKEND_ModelFinalize", b->model_finalize);
  find_symbol(handle, "TRITONBACKEND_ModelInstanceInitialize", b->instance_initialize);
  find_symbol(handle, "TRITONBACKEND_ModelInstanceFinalize", b->instance_finalize);
  find_symbol(handle, "TRITONBACKEND_ModelInstanceReady", b->instance_ready);
  find_symbol(handle, "TRITONBACKEND_ModelInstanceExecute", b->execute);
  ASSIGN_OR_RETURN(b->batching, BatchFunctions::of_library(handle, path.string()));
  find_symbol(handle, "NEREID_RequestIsQuick", b->request_is_quick);
  find_symbol(handle, "NEREID_LendsThread", b->lends_thread);
  find_symbol(handle, "NEREID_OpenParameters", b->open_parameters);
  find_symbol(handle, "NEREID_ModelView", b->model_view);
  if (b->execute == nullptr) {
    return not_found(
        "unable to find required entrypoint 'TRITONBACKEND_ModelInstanceExecute' in '{}'",
        path.string());
  }
  auto* self = reinterpret_cast<TRITONBACKEND_Backend*>(b.get());
  if (initialize != nullptr) RETURN_IF_ERROR(call_backend(initialize, self));
  find_symbol(handle, "TRITONBACKEND_Finalize",
              b->finalize);  // set only now: a failed Initialize is not finalised
  if (attribute != nullptr) {
    RETURN_IF_ERROR(
        call_backend(attribute, self, reinterpret_cast<TRITONBACKEND_BackendAttribute*>(self)));
  }
  return b;
}

Backend::~Backend() {
  if (finalize == nullptr) return;
  if (Status s = call_backend(finalize, reinterpret_cast<TRITONBACKEND_Backend*>(this)); !s.ok()) {
    log_error("backend '{}': finalize: {}", name, message(s));
  }
}

}  // namespace nereid::server
