// Health, metadata, configuration, statistics, shared memory; see control.h.
#include "front/grpc/control.h"

#include "base/json.h"
#include "front/bridge/model_info.h"
#include "front/grpc/control_handler.h"
#include "front/grpc/grpc_service.pb.h"
#include "front/grpc/health.pb.h"
#include "front/grpc/infer_message.h"
#include "front/http/workers.h"

namespace nereid::front {
namespace {

Status server_live(const ControlContext& c, const inference::ServerLiveRequest&,
                   inference::ServerLiveResponse& out) {
  ASSIGN_OR_RETURN(const bool live, ask_server(c.server, &TRITONSERVER_ServerIsLive));
  out.set_live(live);
  return ok();
}

Status server_ready(const ControlContext& c, const inference::ServerReadyRequest&,
                    inference::ServerReadyResponse& out) {
  ASSIGN_OR_RETURN(const bool ready, ask_server(c.server, &TRITONSERVER_ServerIsReady));
  out.set_ready(ready);
  return ok();
}

Status model_ready(const ControlContext& c, const inference::ModelReadyRequest& request,
                   inference::ModelReadyResponse& out) {
  ASSIGN_OR_RETURN(const int64_t version, parse_version(request.version()));
  ASSIGN_OR_RETURN(const bool ready, model_is_ready(c.server, request.name(), version));
  out.set_ready(ready);
  return ok();
}

StatusOr<std::string> server_metadata(const ControlContext& c,
                                      const inference::ServerMetadataRequest&) {
  return server_metadata_json(c.server);
}

StatusOr<std::string> model_metadata(const ControlContext& c,
                                     const inference::ModelMetadataRequest& request) {
  ASSIGN_OR_RETURN(const int64_t version, parse_version(request.version()));
  return model_metadata_json(c.server, request.name(), version);
}

StatusOr<std::string> model_config(const ControlContext& c,
                                   const inference::ModelConfigRequest& request) {
  ASSIGN_OR_RETURN(const int64_t version, parse_version(request.version()));
  ASSIGN_OR_RETURN(const std::string text, model_config_json(c.server, request.name(), version));
  return "{\"config\":" + text + "}";
}

StatusOr<std::string> model_statistics(const ControlContext& c,
                                       const inference::ModelStatisticsRequest& request) {
  ASSIGN_OR_RETURN(const int64_t version, parse_version(request.version()));
  return model_statistics_json(c.server, request.name(), version);
}

StatusOr<std::string> system_status(const ControlContext& c,
                                    const inference::SystemSharedMemoryStatusRequest& request) {
  ASSIGN_OR_RETURN(const std::string text, c.extensions->regions().status(request.name()));
  ASSIGN_OR_RETURN(const json::value list, parse_json(text));
  json::object regions;
  for (const json::value& region : list.as_array()) {
    regions[std::string_view(region.at("name").as_string())] = region;
  }
  return json::serialize(json::object{{"regions", std::move(regions)}});
}

Status system_register(const ControlContext& c,
                       const inference::SystemSharedMemoryRegisterRequest& request,
                       inference::SystemSharedMemoryRegisterResponse&) {
  return c.extensions->regions().add(request.name(), request.key(), request.offset(),
                                     request.byte_size());
}

Status system_unregister(const ControlContext& c,
                         const inference::SystemSharedMemoryUnregisterRequest& request,
                         inference::SystemSharedMemoryUnregisterResponse&) {
  SharedMemory& regions = c.extensions->regions();
  return request.name().empty() ? regions.remove_all() : regions.remove(request.name());
}

Status cuda_status(const ControlContext&, const inference::CudaSharedMemoryStatusRequest& request,
                   inference::CudaSharedMemoryStatusResponse&) {
  if (request.name().empty()) return ok();
  return not_found("Unable to find cuda shared memory region: '{}'", request.name());
}

Status cuda_register(const ControlContext&,
                     const inference::CudaSharedMemoryRegisterRequest& request,
                     inference::CudaSharedMemoryRegisterResponse&) {
  constexpr size_t kHandleBytes = 64;
  if (request.raw_handle().size() != kHandleBytes) {
    return invalid_argument("failed to register shared memory region: invalid args");
  }
  return unsupported(
      "CUDA shared memory is not supported: this server has no device memory to share");
}

Status cuda_unregister(const ControlContext&, const inference::CudaSharedMemoryUnregisterRequest&,
                       inference::CudaSharedMemoryUnregisterResponse&) {
  return ok();
}

Status check_health(const ControlContext& c, const grpc::health::v1::HealthCheckRequest&,
                    grpc::health::v1::HealthCheckResponse& out) {
  ASSIGN_OR_RETURN(const bool ready, ask_server(c.server, &TRITONSERVER_ServerIsReady));
  out.set_status(ready && !c.stopping() ? grpc::health::v1::HealthCheckResponse::SERVING
                                        : grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  return ok();
}

void answer(const CallPtr& call, StatusOr<std::string> bytes) {
  if (bytes.ok()) call->send(*std::move(bytes));
  call->finish(bytes.status());
}

}  // namespace

ControlHandler health_check() { return handler_of(check_health); }

std::vector<ControlRpc> control_rpcs() {
  const auto shown = [](Api api) { return Protection(api, Access::kCallers, Cost::kNothing); };
  const Protection probed(Api::kHealth, Access::kAnybody, Cost::kNothing);
  return {
      {"ServerLive", probed, handler_of(server_live)},
      {"ServerReady", probed, handler_of(server_ready)},
      {"ModelReady", shown(Api::kHealth), handler_of(model_ready)},
      {"ServerMetadata", shown(Api::kMetadata),
       handler_of("inference.ServerMetadataResponse", server_metadata)},
      {"ModelMetadata", shown(Api::kMetadata),
       handler_of("inference.ModelMetadataResponse", model_metadata)},
      {"ModelConfig", shown(Api::kModelConfig),
       handler_of("inference.ModelConfigResponse", model_config)},
      {"ModelStatistics", shown(Api::kStatistics),
       handler_of("inference.ModelStatisticsResponse", model_statistics)},
      {"SystemSharedMemoryStatus", shown(Api::kSharedMemory),
       handler_of("inference.SystemSharedMemoryStatusResponse", system_status)},
      {"SystemSharedMemoryRegister", shown(Api::kSharedMemory), handler_of(system_register)},
      {"SystemSharedMemoryUnregister", shown(Api::kSharedMemory), handler_of(system_unregister)},
      {"CudaSharedMemoryStatus", shown(Api::kSharedMemory), handler_of(cuda_status)},
      {"CudaSharedMemoryRegister", shown(Api::kSharedMemory), handler_of(cuda_register)},
      {"CudaSharedMemoryUnregister", shown(Api::kSharedMemory), handler_of(cuda_unregister)},
  };
}

void run_control(const ControlContextPtr& context, const CallPtr& call, std::string message,
                 const ControlRpc& rpc) {
  const ControlQueuePtr queue =
      rpc.queue == nullptr ? nullptr : (context->extensions.get()->*rpc.queue)();
  const bool is_question = rpc.is_question != nullptr && rpc.is_question(message);
  if (!call->admin_refusal().empty() && !is_question)
    return call->finish(
        Status(absl::StatusCode::kPermissionDenied, std::string(call->admin_refusal())));
  if (queue == nullptr && message.size() > kQuickJsonBytes) {
    return call->finish(invalid_argument("the request has {} bytes, at most {} are allowed here",
                                         message.size(), kQuickJsonBytes));
  }
  if (queue == nullptr) return answer(call, rpc.handler(*context, message));
  queue->push([context, call, handler = rpc.handler, message = std::move(message)]() mutable {
    auto result = handler(*context, message);
    CallPtr kept = std::move(call);
    Call& target = *kept;
    target.post([kept = std::move(kept), result = std::move(result)] { answer(kept, result); });
  });
}

}  // namespace nereid::front
