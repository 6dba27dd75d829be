// ModelInfer; see infer.h.
#include "front/grpc/infer.h"

#include <utility>

#include "base/clock.h"
#include "base/request_flags.h"
#include "front/bridge/inference_call.h"
#include "front/grpc/infer_fields.h"

namespace nereid::front {
namespace {

// Lives from the request to the final reply; on the call's thread only.
class ModelInfer {
 public:
  ModelInfer(CallPtr call, InferTicket ticket)
      : call_(std::move(call)), ticket_(std::move(ticket)) {}

  Call& call() { return *call_; }

  void take(InferenceReply reply) {
    const bool final = reply.final;
    if (!reply.empty && ++num_replies_ == 1) first_ = std::move(reply);
    if (final && call_->is_open()) answer();
  }

 private:
  void answer() {
    if (num_replies_ > 1 && ticket_.decoupled) return call_->finish(several_answers(num_replies_));
    if (num_replies_ != 1) {
      return call_->finish(internal_error("expected a single response, got {}", num_replies_));
    }
    if (!first_.status.ok()) return call_->finish(first_.status);
    StatusOr<std::string> message = format_infer_response(first_, ticket_);
    if (ticket_.trace != nullptr) ticket_.trace->report_now("GRPC_SEND_START");
    if (message.ok()) call_->send(*std::move(message));
    call_->finish(message.status());
    if (ticket_.trace != nullptr) ticket_.trace->report_now("GRPC_SEND_END");
  }

  const CallPtr call_;
  const InferTicket ticket_;
  size_t num_replies_ = 0;
  InferenceReply first_;
};

// The trace of a sampled request, with the times of its reading.
RequestTracePtr trace_request(const InferContext& context, const Call& call,
                              const std::string& model, uint64_t begin_ns) {
  const std::string* parent = call.metadata_value("traceparent");
  const std::string* state = call.metadata_value("tracestate");
  RequestTracePtr trace = context.tracer->sample(model, parent == nullptr ? "" : *parent,
                                                 state == nullptr ? "" : *state);
  if (trace == nullptr) return nullptr;
  trace->report("GRPC_WAITREAD_START", begin_ns);
  trace->report_now("GRPC_WAITREAD_END");
  return trace;
}

// ResourceExhausted: no room for it in the budget.
Status parse_within_budget(const InferContext& context, std::string message, BudgetShare share,
                           const CheckModel& check_model, GrpcInferRequest& out) {
  // The parsed form of a small message is small, too.
  constexpr size_t kLittle = 4096;
  const size_t size = message.size();
  BudgetShare& held = out.ticket.held = std::move(share);
  if (size > kLittle) {
    const Status room = held.reserve(size + parsed_bytes(message));
    if (!room.ok()) return resource_exhausted("{}", nereid::message(room));
  }
  const Status status =
      parse_infer_message(std::move(message), check_model, context.extensions->regions(), out);
  size_t kept = size;
  for (const Tensor& tensor : out.spec.inputs) kept += tensor.bytes.size();
  held.set(kept);
  return status;
}

Status read_into(const InferContext& context, const Call& call, std::string message,
                 BudgetShare held, bool accepts_decoupled, GrpcInferRequest& out) {
  const bool traces = context.tracer->is_on();
  const uint64_t begin_ns = traces ? now_ns() : 0;
  const auto check_model = [&](const InferenceSpec& spec, InferTicket& ticket) -> Status {
    uint32_t flags = 0;
    RETURN_IF_ERROR(take_error(TRITONSERVER_ServerModelTransactionProperties(
        context.server, spec.model.c_str(), spec.version, &flags, nullptr)));
    ticket.decoupled = (flags & TRITONSERVER_TXN_DECOUPLED) != 0;
    if (!ticket.decoupled || accepts_decoupled) return ok();
    return unsupported("ModelInfer RPC doesn't support models with decoupled transaction policy");
  };
  RETURN_IF_ERROR(
      parse_within_budget(context, std::move(message), std::move(held), check_model, out));
  if (traces) {
    out.ticket.trace = out.spec.trace = trace_request(context, call, out.spec.model, begin_ns);
  }
  out.spec.tenant = call.tenant();
  if (!context.forwards_header) return ok();
  for (const auto& [name, value] : call.metadata()) {
    if (context.forwards_header(name)) out.spec.parameters.push_back({name, value});
  }
  return ok();
}

void start(TRITONSERVER_Server* server, const CallPtr& call, ReadRequest read) {
  if (!read.status.ok()) return call->finish(read.status);
  GrpcInferRequest& request = read.request;
  const auto state = std::make_shared<ModelInfer>(call, std::move(request.ticket));
  const auto on_reply = [state](InferenceReply reply) {
    state->call().dispatch(
        [state, reply = std::move(reply)]() mutable { state->take(std::move(reply)); });
  };
  request.spec.flags |= kMayRunHere;
  auto started = InferenceCall::start(server, std::move(request.spec), on_reply);
  if (!started.ok()) return call->finish(started.status());
  call->on_cancel([started = *std::move(started)] { started->cancel(); });
}

}  // namespace

ReadRequest read_infer_request(const InferContext& context, const Call& call, std::string message,
                               BudgetShare held, bool accepts_decoupled) {
  ReadRequest out;
  out.status =
      read_into(context, call, std::move(message), std::move(held), accepts_decoupled, out.request);
  return out;
}

void start_model_infer(const InferContextPtr& context, const CallPtr& call, std::string message) {
  read_and_start(
      context, call, std::move(message), context->infers_decoupled,
      [server = context->server, call](ReadRequest read) { start(server, call, std::move(read)); });
}

}  // namespace nereid::front
