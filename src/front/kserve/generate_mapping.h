// JSON <-> tensors of the generate extension: members that name an input become tensors, others
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

// Nesting of a request body that is accepted.
inline constexpr size_t kMaxJsonDepth = 100;

// Fills id, inputs and parameters of a request to `model` from a generate body. Shapes follow the
// model's metadata: fixed dims must divide the number of elements, the innermost -1 takes the rest,
// every other -1 is 1. InvalidArgument names the place (JSON) or the field (types, ranges, shapes).
// Unavailable when `memory`, where the JSON goes, has no more.
StatusOr<InferenceSpec> map_generate_request(std::string_view body, const ModelInfo& model,
                                             const json::storage_ptr& memory = {});

// The reply object, part by part: outputs and parameters in alphabetical order of their names,
// one-element tensors as scalars, others as flat arrays.
class GenerateReplyText {
 public:
  // `reply` must outlive the result. InvalidArgument for types that JSON cannot carry.
  static StatusOr<GenerateReplyText> create(const InferenceReply& reply);
  // Appends until `out` has `size` bytes or a little more; whether some text is left.
  bool append_until(size_t size, std::string& out);

 private:
  struct Member {
    std::string_view name;
    std::variant<std::string, const ParameterValue*, TensorText> value;
  };
  std::vector<Member> members_;
  size_t next_ = 0;
  bool is_inside_ = false;  // the elements of members_[next_]
};

}  // namespace nereid::front
