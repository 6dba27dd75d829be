// ModelInfer and ModelStreamInfer.
#pragma once

#include <memory>
#include <string>

#include "front/grpc/call.h"
#include "front/grpc/infer_message.h"
#include "front/http/header_filter.h"
#include "front/http/workers.h"
#include "front/kserve/extensions.h"
#include "front/trace/tracer.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

struct InferContext {
  TRITONSERVER_Server* server = nullptr;
  std::shared_ptr<Extensions> extensions;
  std::shared_ptr<Tracer> tracer;
  std::shared_ptr<ByteBudget> budget;
  HeaderFilter forwards_header;   // metadata forwarded as parameters; or null
  Workers* workers = nullptr;     // for large requests; null: parsed on the event loop
  bool infers_decoupled = false;  // ModelInfer accepts decoupled models that answer once
};
using InferContextPtr = std::shared_ptr<const InferContext>;

// Messages up to this size are parsed on the event loop, in about a millisecond.
inline constexpr size_t kQuickMessageBytes = 64 << 10;

// One request, one response.
void start_model_infer(const InferContextPtr& context, const CallPtr& call, std::string message);

// Any number of requests on one call, answered as their responses come; those of models that are
// not decoupled in the order of the requests.
std::shared_ptr<StreamHandler> start_model_stream_infer(const InferContextPtr& context,
                                                        const CallPtr& call);

struct ReadRequest {
  Status status;
  GrpcInferRequest request;  // partial after an error
};

// Parses a message, which counts in `held`, and adds the call's metadata. Any thread.
ReadRequest read_infer_request(const InferContext& context, const Call& call, std::string message,
                               BudgetShare held, bool accepts_decoupled);

// Calls `then` with the parsed message: at once, or on the call's thread after a worker has parsed
// a large one. A finished call is skipped.
template <class Then>
void read_and_start(const InferContextPtr& context, const CallPtr& call, std::string message,
                    bool accepts_decoupled, Then then) {
  BudgetShare share(context->budget, message.size());
  if (context->workers == nullptr || message.size() <= kQuickMessageBytes)
    return then(read_infer_request(*context, *call, std::move(message), std::move(share),
                                   accepts_decoupled));
  const auto held = std::make_shared<BudgetShare>(std::move(share));
  context->workers->push([=, message = std::move(message), then = std::move(then)]() mutable {
    BudgetShare counted = std::move(*held);
    if (!call->is_open()) return;
    auto read = std::make_shared<ReadRequest>();
    const Status status = without_exceptions([&] {
      *read = read_infer_request(*context, *call, std::move(message), std::move(counted),
                                 accepts_decoupled);
    });
    if (!status.ok()) read->status = status;
    call->post([call, read = std::move(read), then = std::move(then)]() mutable {
      if (call->is_open()) then(std::move(*read));
    });
  });
}

}  // namespace nereid::front
