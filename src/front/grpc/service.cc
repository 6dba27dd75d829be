// The method table; see service.h.
#include "front/grpc/service.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "front/grpc/control.h"
#include "front/grpc/infer.h"

namespace nereid::front {
namespace {

using Restrictions = std::map<std::string, std::pair<std::string, std::string>>;

// Name and value of the metadata for each restricted protocol.
StatusOr<Restrictions> read_restrictions(const std::vector<GrpcRestriction>& list) {
  Restrictions out;
  for (const GrpcRestriction& r : list) {
    if (r.key.empty()) return invalid_argument("grpc restricted protocol: the key is empty");
    std::string name = "triton-grpc-protocol-" + r.key;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    for (const std::string& protocol : r.protocols) {
      if (std::ranges::find(kApiNames, protocol) == kApiNames.end()) {
        return invalid_argument("unknown restricted protocol '{}': allowed are {}", protocol,
                                fmt::join(kApiNames, ", "));
      }
      if (!out.emplace(protocol, std::pair(name, r.value)).second) {
        return invalid_argument(
            "restricted protocol '{}' can not be specified in multiple config groups", protocol);
      }
    }
  }
  return out;
}

struct Contexts {
  InferContextPtr infer;
  ControlContextPtr control;
};

StatusOr<Contexts> make_contexts(TRITONSERVER_Server* server, const GrpcOptions& options,
                                 std::function<bool()> stopping, Workers* workers) {
  auto extensions = options.extensions;
  if (extensions == nullptr) extensions = std::make_shared<Extensions>();
  auto tracer = options.tracer;
  if (tracer == nullptr) {
    ASSIGN_OR_RETURN(tracer, Tracer::create(server, {}));
  }
  auto infer = std::make_shared<InferContext>();
  infer->server = server;
  infer->extensions = extensions;
  infer->tracer = tracer;
  infer->budget = options.budget;
  infer->workers = workers;
  ASSIGN_OR_RETURN(infer->forwards_header, header_filter(options.header_forward_pattern));
  infer->infers_decoupled = options.infers_decoupled;
  auto control = std::make_shared<ControlContext>();
  control->server = server;
  control->extensions = extensions;
  control->tracer = tracer;
  control->stopping = std::move(stopping);
  return Contexts{std::move(infer), std::move(control)};
}

}  // namespace

StatusOr<MethodTable> make_methods(TRITONSERVER_Server* server, const GrpcOptions& options,
                                   std::function<bool()> stopping, Workers* workers) {
  ASSIGN_OR_RETURN(const Restrictions restrictions, read_restrictions(options.restrictions));
  ASSIGN_OR_RETURN(const Contexts contexts,
                   make_contexts(server, options, std::move(stopping), workers));
  const ControlContextPtr& control = contexts.control;
  MethodTable methods;
  const auto add = [&](const std::string& path, const Protection& protection, Method method) {
    if (const auto it = restrictions.find(std::string(name_of(protection.api)));
        it != restrictions.end()) {
      method.required_name = it->second.first;
      method.required_value = it->second.second;
    }
    method.protection = protection;
    methods[path] = std::move(method);
  };
  const auto unary = [control](const ControlRpc& rpc) {
    Method method;
    method.unary = [=](const CallPtr& call, std::string message) {
      run_control(control, call, std::move(message), rpc);
    };
    return method;
  };
  const std::string service = "/inference.GRPCInferenceService/";
  const InferContextPtr& context = contexts.infer;
  Method model_infer, model_stream_infer;
  model_infer.unary = [context](const CallPtr& call, std::string message) {
    start_model_infer(context, call, std::move(message));
  };
  const Protection infers(Api::kInference, Access::kCallers, Cost::kUncounted);
  add(service + "ModelInfer", infers, std::move(model_infer));
  model_stream_infer.stream = [context](const CallPtr& call) {
    return start_model_stream_infer(context, call);
  };
  add(service + "ModelStreamInfer", infers, std::move(model_stream_infer));
  const ControlHandler no_shared_memory = [](const ControlContext&, std::string_view) {
    return StatusOr<std::string>(unsupported("{}", kSharedMemoryIsOff));
  };
  for (const auto& list : {control_rpcs(), repository_rpcs(), setting_rpcs()}) {
    for (ControlRpc rpc : list) {
      const bool is_off = rpc.protection.api == Api::kSharedMemory && !options.allow_shared_memory;
      if (is_off) rpc.handler = no_shared_memory;
      add(service + rpc.name, rpc.protection, unary(rpc));
    }
  }
  const Protection probed(Api::kHealth, Access::kAnybody, Cost::kNothing);
  add("/grpc.health.v1.Health/Check", probed, unary({"Check", probed, health_check()}));
  for (const std::string version : {"v1", "v1alpha"}) {
    Method reflection;
    reflection.stream = [control, version](const CallPtr& call) {
      return start_reflection(control, call, version);
    };
    add("/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo",
        Protection(Api::kMetadata, Access::kCallers, Cost::kNothing), std::move(reflection));
  }
  return methods;
}

}  // namespace nereid::front
