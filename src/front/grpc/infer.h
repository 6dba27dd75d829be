// ModelInfer and ModelStreamInfer.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "front/grpc/call.h"
#include "front/grpc/infer_message.h"
#include "front/http/header_filter.h"
#include "front/kserve/extensions.h"
#include "front/trace/tracer.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

struct InferContext {
  TRITONSERVER_Server* server = nullptr;
  std::shared_ptr<Extensions> extensions;
  std::shared_ptr<Tracer> tracer;
  std::shared_ptr<ByteBudget> budget;
  HeaderFilter forwards_header;  // metadata -> parameters; or null
};
using InferContextPtr = std::shared_ptr<const InferContext>;

// One request, one response.
void start_model_infer(const InferContextPtr& context, const CallPtr& call, std::string message);

// Any number of requests on one call, answered as their responses come; those of models that are
// not decoupled in the order of the requests.
std::shared_ptr<StreamHandler> start_model_stream_infer(const InferContextPtr& context,
                                                        const CallPtr& call);

// Parses a message and adds the call's metadata; `out` is filled as far as it gets.
Status read_infer_request(const InferContext& context, const Call& call, std::string message,
                          bool accepts_decoupled, GrpcInferRequest& out);

}  // namespace nereid::front
