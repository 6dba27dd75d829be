// KServe v2 infer bodies: JSON with tensors as arrays, as bytes behind it, or in shared memory.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "front/bridge/classify.h"
#include "front/bridge/inference_call.h"
#include "front/kserve/json_tensor.h"
#include "front/kserve/shared_memory.h"

namespace nereid::front {

struct InferRequest {
  InferenceSpec spec;
  bool binary_by_default = false;
  std::map<std::string, bool> binary;               // by output, where the request has binary_data
  std::map<std::string, uint64_t> classifications;  // number of classes by output
};

// `header_length`: bytes of JSON at the start of the body; nullopt: all of it; 0: the body is the
// data of the model's only input. InvalidArgument names the member, NotFound a region; Unavailable:
// `memory`, for the JSON, is full.
StatusOr<InferRequest> parse_infer_request(std::shared_ptr<const std::string> body,
                                           std::optional<size_t> header_length,
                                           const std::string& model, const SharedMemory& regions,
                                           const json::storage_ptr& memory = {});

// The body of an infer reply, made in parts: JSON, then the tensors sent as bytes.
class InferReplyText {
 public:
  // `reply` must outlive the result. InvalidArgument for outputs that JSON cannot represent, or
  // that cannot be classified.
  static StatusOr<InferReplyText> create(const InferenceReply& reply, const InferRequest& request);
  bool has_binary() const { return !blobs_.empty(); }
  // Bytes of the JSON; formats it once to count them.
  size_t json_size() const;
  // Appends until `out` has `size` bytes or a little more; whether any are left.
  bool append_until(size_t size, std::string& out);

 private:
  Status add_output(const Tensor& output, bool is_binary);

  // Text, then the elements of a tensor.
  struct Piece {
    std::string text;
    std::optional<TensorText> elements;
    bool is_inside = false;  // `text` is written
  };
  bool append_json(size_t size, std::string& out);

  std::vector<Piece> pieces_;
  size_t next_ = 0;
  std::list<Classes> labelled_;  // classified outputs
  std::vector<std::string_view> blobs_;
  size_t next_blob_ = 0;
};

}  // namespace nereid::front
