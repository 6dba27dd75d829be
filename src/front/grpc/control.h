// The rpcs that have JSON-like messages: health, metadata, configuration, statistics, repository,
// shared memory, trace and log settings; and reflection.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "front/grpc/call.h"
#include "front/grpc/messages.h"
#include "front/kserve/extensions.h"
#include "front/trace/tracer.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

struct ControlContext {
  TRITONSERVER_Server* server = nullptr;
  std::shared_ptr<Extensions> extensions;
  std::shared_ptr<Tracer> tracer;
  std::function<bool()> stopping;
  ProtoMessages messages;
};
using ControlContextPtr = std::shared_ptr<const ControlContext>;

// The JSON text of the answer to a request in its JSON form.
using ControlHandler =
    std::function<StatusOr<std::string>(const ControlContext&, const json::value& request)>;

struct ControlRpc {
  std::string name;      // "ModelReady": ModelReadyRequest -> ModelReadyResponse
  std::string protocol;  // the group of GrpcRestriction that it belongs to
  ControlHandler handler;
  bool may_block = false;  // runs on a thread of its own
};

// Of inference.GRPCInferenceService, beside the two of inference.
std::vector<ControlRpc> control_rpcs();
std::vector<ControlRpc> repository_rpcs();
std::vector<ControlRpc> setting_rpcs();

// {"status": "SERVING"} as the server is ready or not.
StatusOr<std::string> check_health(const ControlContext& context, const json::value& request);

// Parses, handles, answers. Types are full message names.
void run_control(const ControlContextPtr& context, const CallPtr& call, const std::string& message,
                 const std::string& request_type, const std::string& response_type,
                 const ControlHandler& handler, bool may_block);

// grpc.reflection.<version>.ServerReflection/ServerReflectionInfo.
std::shared_ptr<StreamHandler> start_reflection(const ControlContextPtr& context,
                                                const CallPtr& call, const std::string& version);

}  // namespace nereid::front
