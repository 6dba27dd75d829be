// KServe v2 infer bodies: JSON with tensors as arrays, as bytes behind it, or in shared memory.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "front/bridge/inference_call.h"
#include "front/kserve/shared_memory.h"

namespace nereid::front {

struct InferRequest {
  InferenceSpec spec;
  bool binary_by_default = false;
  std::map<std::string, bool> binary;               // by output, where the request says
  std::map<std::string, uint64_t> classifications;  // by output: how many classes
};

// `header_length`: bytes of JSON at the start of the body; nullopt: all of it; 0: the body is the
// data of the model's one input. InvalidArgument names the member, NotFound a region.
StatusOr<InferRequest> parse_infer_request(std::shared_ptr<const std::string> body,
                                           std::optional<size_t> header_length,
                                           const std::string& model, const SharedMemory& regions);

struct InferReplyBody {
  std::string bytes;
  size_t json_size = 0;     // bytes of JSON before the tensors
  bool has_binary = false;  // tensors follow the JSON
};

// InvalidArgument for outputs that JSON cannot carry, or that cannot be classified.
StatusOr<InferReplyBody> format_infer_reply(const InferenceReply& reply,
                                            const InferRequest& request);

}  // namespace nereid::front
