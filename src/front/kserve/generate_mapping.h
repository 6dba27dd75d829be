// JSON and tensors of the generate extension: members that name an input become tensors, others
// become request parameters; replies become flat JSON objects.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "front/bridge/inference_call.h"
#include "front/bridge/model_info.h"
#include "front/kserve/json_tensor.h"

namespace nereid::front {

// Most nesting of a request body.
inline constexpr size_t kMaxJsonDepth = 100;

// Fills id, inputs and parameters of a request to `model` from a generate body. Shapes follow the
// model's metadata: fixed dims must divide the number of elements, the innermost -1 takes the rest,
// every other -1 is 1. InvalidArgument names the place (JSON) or the field (types, ranges, shapes).
// Unavailable: `memory`, for the JSON, is full.
StatusOr<InferenceSpec> map_generate_request(std::string_view body, const ModelInfo& model,
                                             const json::storage_ptr& memory = {});

// The reply object, made in parts: outputs and parameters in alphabetical order, one-element
// tensors as scalars, others as flat arrays.
class GenerateReplyText {
 public:
  // `reply` must outlive the result. InvalidArgument for types that JSON cannot represent.
  static StatusOr<GenerateReplyText> create(const InferenceReply& reply);
  // Appends until `out` has `size` bytes or a little more; whether text is left.
  bool append_until(size_t size, std::string& out);

 private:
  struct Member {
    std::string_view name;
    std::variant<std::string, const ParameterValue*, TensorText> value;
  };
  std::vector<Member> members_;
  size_t next_ = 0;
  bool is_inside_ = false;  // inside the elements of members_[next_]
};

}  // namespace nereid::front
