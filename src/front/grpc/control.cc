// Health, metadata, configuration, statistics, shared memory; see control.h.
#include "front/grpc/control.h"

#include <thread>

#include "front/bridge/model_info.h"
#include "front/grpc/infer_message.h"
#include "front/kserve/json_body.h"

namespace nereid::front {
namespace {

constexpr char kEmpty[] = "{}";

// Absent members have their default, as everywhere in proto3.
StatusOr<std::string> text_member(const json::value& request, std::string_view key) {
  ASSIGN_OR_RETURN(const auto text, string_member(request, key));
  return text.value_or("");
}

// 64-bit integers are strings in protobuf's JSON.
StatusOr<uint64_t> number_member(const json::value& request, std::string_view key) {
  ASSIGN_OR_RETURN(const std::string text, text_member(request, key));
  return text.empty() ? 0 : std::strtoull(text.c_str(), nullptr, 10);
}

struct ModelName {
  std::string name;
  int64_t version = -1;
};

StatusOr<ModelName> model_name(const json::value& request) {
  ModelName out;
  ASSIGN_OR_RETURN(out.name, text_member(request, "name"));
  ASSIGN_OR_RETURN(const std::string version, text_member(request, "version"));
  ASSIGN_OR_RETURN(out.version, parse_version(version));
  return out;
}

std::string flag(const char* name, bool value) {
  return fmt::format("{{\"{}\":{}}}", name, value ? "true" : "false");
}

StatusOr<std::string> server_live(const ControlContext& c, const json::value&) {
  bool live = false;
  RETURN_IF_ERROR(take_error(TRITONSERVER_ServerIsLive(c.server, &live)));
  return flag("live", live);
}

StatusOr<std::string> server_ready(const ControlContext& c, const json::value&) {
  bool ready = false;
  RETURN_IF_ERROR(take_error(TRITONSERVER_ServerIsReady(c.server, &ready)));
  return flag("ready", ready);
}

StatusOr<std::string> model_ready(const ControlContext& c, const json::value& request) {
  ASSIGN_OR_RETURN(const ModelName model, model_name(request));
  bool ready = false;
  const Status status = take_error(
      TRITONSERVER_ServerModelIsReady(c.server, model.name.c_str(), model.version, &ready));
  // A model that is not there is not ready.
  if (!status.ok() && status.code() != absl::StatusCode::kNotFound &&
      status.code() != absl::StatusCode::kUnavailable) {
    return status;
  }
  return flag("ready", status.ok() && ready);
}

StatusOr<std::string> model_metadata(const ControlContext& c, const json::value& request) {
  ASSIGN_OR_RETURN(const ModelName model, model_name(request));
  return model_metadata_json(c.server, model.name, model.version);
}

StatusOr<std::string> model_config(const ControlContext& c, const json::value& request) {
  ASSIGN_OR_RETURN(const ModelName model, model_name(request));
  ASSIGN_OR_RETURN(const std::string text, model_config_json(c.server, model.name, model.version));
  return "{\"config\":" + text + "}";
}

StatusOr<std::string> model_statistics(const ControlContext& c, const json::value& request) {
  ASSIGN_OR_RETURN(const ModelName model, model_name(request));
  return model_statistics_json(c.server, model.name, model.version);
}

StatusOr<std::string> system_status(const ControlContext& c, const json::value& request) {
  ASSIGN_OR_RETURN(const std::string name, text_member(request, "name"));
  ASSIGN_OR_RETURN(const std::string text, c.extensions->regions().status(name));
  ASSIGN_OR_RETURN(const json::value list, parse_json(text));
  json::object regions;
  for (const json::value& region : list.as_array()) {
    regions[std::string_view(region.at("name").as_string())] = region;
  }
  return json::serialize(json::object{{"regions", std::move(regions)}});
}

StatusOr<std::string> system_register(const ControlContext& c, const json::value& request) {
  ASSIGN_OR_RETURN(const std::string name, text_member(request, "name"));
  ASSIGN_OR_RETURN(const std::string key, text_member(request, "key"));
  ASSIGN_OR_RETURN(const uint64_t offset, number_member(request, "offset"));
  ASSIGN_OR_RETURN(const uint64_t byte_size, number_member(request, "byte_size"));
  RETURN_IF_ERROR(c.extensions->regions().add(name, key, offset, byte_size));
  return kEmpty;
}

StatusOr<std::string> system_unregister(const ControlContext& c, const json::value& request) {
  ASSIGN_OR_RETURN(const std::string name, text_member(request, "name"));
  SharedMemory& regions = c.extensions->regions();
  RETURN_IF_ERROR(name.empty() ? regions.remove_all() : regions.remove(name));
  return kEmpty;
}

StatusOr<std::string> cuda_status(const ControlContext&, const json::value& request) {
  ASSIGN_OR_RETURN(const std::string name, text_member(request, "name"));
  if (name.empty()) return kEmpty;
  return not_found("Unable to find cuda shared memory region: '{}'", name);
}

StatusOr<std::string> cuda_register(const ControlContext&, const json::value& request) {
  constexpr size_t kHandleBytes = 64;
  ASSIGN_OR_RETURN(const std::string text, text_member(request, "raw_handle"));
  ASSIGN_OR_RETURN(const std::string handle, decode_base64(text));
  if (handle.size() != kHandleBytes) {
    return invalid_argument("failed to register shared memory region: invalid args");
  }
  return unsupported(
      "CUDA shared memory is not supported: this server has no device memory to share");
}

StatusOr<std::string> nothing(const ControlContext&, const json::value&) { return kEmpty; }

// Reads the request on the call's thread and answers there; only the handler may be elsewhere.
void answer(const ControlContextPtr& context, const CallPtr& call, const std::string& response_type,
            const StatusOr<std::string>& text) {
  StatusOr<std::string> bytes =
      text.ok() ? context->messages.from_json(response_type, *text) : text;
  if (bytes.ok()) call->send(*std::move(bytes));
  call->finish(bytes.status());
}

}  // namespace

StatusOr<std::string> check_health(const ControlContext& context, const json::value&) {
  bool ready = false;
  RETURN_IF_ERROR(take_error(TRITONSERVER_ServerIsReady(context.server, &ready)));
  return std::string(ready && !context.stopping() ? R"({"status":"SERVING"})"
                                                  : R"({"status":"NOT_SERVING"})");
}

std::vector<ControlRpc> control_rpcs() {
  return {
      {"ServerLive", "health", server_live},
      {"ServerReady", "health", server_ready},
      {"ModelReady", "health", model_ready},
      {"ServerMetadata", "metadata",
       [](const ControlContext& c, const json::value&) { return server_metadata_json(c.server); }},
      {"ModelMetadata", "metadata", model_metadata},
      {"ModelConfig", "model-config", model_config},
      {"ModelStatistics", "statistics", model_statistics},
      {"SystemSharedMemoryStatus", "shared-memory", system_status},
      {"SystemSharedMemoryRegister", "shared-memory", system_register},
      {"SystemSharedMemoryUnregister", "shared-memory", system_unregister},
      {"CudaSharedMemoryStatus", "shared-memory", cuda_status},
      {"CudaSharedMemoryRegister", "shared-memory", cuda_register},
      {"CudaSharedMemoryUnregister", "shared-memory", nothing},
  };
}

void run_control(const ControlContextPtr& context, const CallPtr& call, const std::string& message,
                 const std::string& request_type, const std::string& response_type,
                 const ControlHandler& handler, bool may_block) {
  const StatusOr<std::string> text = context->messages.to_json(request_type, message);
  if (!text.ok()) return call->finish(text.status());
  StatusOr<json::value> request = parse_json(*text);
  if (!request.ok()) return call->finish(internal_error("Unable to parse request"));
  if (!may_block) return answer(context, call, response_type, handler(*context, *request));
  std::thread([context, call, response_type, handler, request = *std::move(request)]() mutable {
    auto result = handler(*context, request);
    CallPtr kept = std::move(call);
    Call& target = *kept;
    target.post([context, kept = std::move(kept), response_type, result = std::move(result)] {
      answer(context, kept, response_type, result);
    });
  }).detach();
}

}  // namespace nereid::front
