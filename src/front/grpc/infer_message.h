// ModelInferRequest bytes -> InferenceSpec, replies -> ModelInferResponse bytes. Tensor data is not
// copied on the way in: it stays where the message was received.
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
#include "front/http/byte_budget.h"
#include "front/kserve/shared_memory.h"

namespace nereid::front {

// How the answers of a request are labelled.
struct InferTicket {
  std::string model;
  std::string version;  // as the client wrote it
  std::string id;
  bool empty_final = false;                         // a final flag alone is worth a message
  bool decoupled = false;                           // of the model
  std::map<std::string, uint64_t> classifications;  // by output: how many classes
  RequestTracePtr trace;                            // null: not traced
  BudgetShare held;                                 // of the message
};

struct GrpcInferRequest {
  InferTicket ticket;
  InferenceSpec spec;
};

// What a model may do; from the core, asked between the request's own checks as their order shows
// in the errors.
using CheckModel = std::function<Status(const InferenceSpec& spec, InferTicket& ticket)>;

// Fills `out` as far as it gets (the ticket's names come first). Internal: not a ModelInferRequest;
// InvalidArgument names the tensor or parameter; NotFound a region.
Status parse_infer_message(std::string bytes, const CheckModel& check_model,
                           const SharedMemory& regions, GrpcInferRequest& out);

// Version text -> number, -1 for "": any. InvalidArgument.
StatusOr<int64_t> parse_version(const std::string& text);

// Wire bytes behind kGrpcPrefixBytes of room. InvalidArgument when an output cannot be classified
// or the message gets longer than protobuf allows.
StatusOr<std::string> format_infer_response(const InferenceReply& reply, const InferTicket& ticket);
// The same inside of a ModelStreamInferResponse, with triton_final_response.
StatusOr<std::string> format_stream_response(const InferenceReply& reply,
                                             const InferTicket& ticket);
// A refused request: the error and the id alone.
std::string format_stream_refusal(const Status& status, const InferTicket& ticket);

}  // namespace nereid::front
