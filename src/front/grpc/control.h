// The control rpcs: health, metadata, configuration, statistics, repository, shared memory, trace
// and log settings; and reflection.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

// From the bytes of a request to those of its response, stored behind kGrpcPrefixBytes of room;
// control_handler.h makes it of a function on messages.
using ControlHandler =
    std::function<StatusOr<std::string>(const ControlContext&, std::string_view request)>;

struct ControlRpc {
  std::string name;  // such as "ModelReady"
  Protection protection;
  ControlHandler handler;
  // The queue for an rpc that may take minutes. Null: it runs at once.
  const ControlQueuePtr& (Extensions::*queue)() const = nullptr;
  // For rpcs of administrators: whether a request changes nothing, so that others may
  // send it. Null: never.
  bool (*is_question)(std::string_view request) = nullptr;
};

// The rpcs of inference.GRPCInferenceService except the two inferences.
std::vector<ControlRpc> control_rpcs();
std::vector<ControlRpc> repository_rpcs();
std::vector<ControlRpc> setting_rpcs();

// grpc.health.v1.Health/Check: SERVING while the server is ready.
ControlHandler health_check();

// Runs the handler and sends the response.
void run_control(const ControlContextPtr& context, const CallPtr& call, std::string message,
                 const ControlRpc& rpc);

// grpc.reflection.<version>.ServerReflection/ServerReflectionInfo.
std::shared_ptr<StreamHandler> start_reflection(const ControlContextPtr& context,
                                                const CallPtr& call, const std::string& version);

}  // namespace nereid::front
