// ModelInferRequest bytes to InferenceSpec, replies to ModelInferResponse bytes. Tensor data is not
// copied on the way in: the spec refers to the received message.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "front/bridge/inference_call.h"
#include "front/bridge/request_trace.h"
#include "front/grpc/call.h"
#include "front/kserve/shared_memory.h"
#include "front/protection/byte_budget.h"

namespace nereid::front {

// Labels and options for the responses of a request.
struct InferTicket {
  std::string model;
  std::string version;  // as written by the client
  std::string id;
  bool empty_final = false;                         // a final flag alone is sent as a message
  bool decoupled = false;                           // of the model
  std::map<std::string, uint64_t> classifications;  // number of classes by output
  RequestTracePtr trace;                            // null: not traced
  BudgetShare held;                                 // of the message
};

struct GrpcInferRequest {
  InferTicket ticket;
  InferenceSpec spec;
};

// Queries the core about the model, called between the request's own checks: the order
// shows in the errors.
using CheckModel = std::function<Status(const InferenceSpec& spec, InferTicket& ticket)>;

// Fills `out` until the first error (the ticket's names come first). Internal: not a
// ModelInferRequest; InvalidArgument names the tensor or parameter; NotFound a region.
Status parse_infer_message(std::string bytes, const CheckModel& check_model,
                           const SharedMemory& regions, GrpcInferRequest& out);

// Version text as a number, -1 for "": any. InvalidArgument.
StatusOr<int64_t> parse_version(const std::string& text);

// A serialised response behind kGrpcPrefixBytes of room. InvalidArgument when an output cannot be
// classified or the message is longer than protobuf allows.
StatusOr<std::string> format_infer_response(const InferenceReply& reply, const InferTicket& ticket);
// The response inside of a ModelStreamInferResponse, with triton_final_response.
StatusOr<std::string> format_stream_response(const InferenceReply& reply,
                                             const InferTicket& ticket);
// A refusal: the error and the request's id alone.
std::string format_stream_refusal(const Status& status, const InferTicket& ticket);

}  // namespace nereid::front
