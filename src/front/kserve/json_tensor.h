// Tensor elements to and from JSON, for infer and generate.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "front/bridge/tensor.h"

namespace nereid::front {

// Appends the elements of nested arrays (or one scalar), depth first, as `type`; `count`
// grows by their number. InvalidArgument: wrong JSON type, out of range, or a type that
// JSON cannot represent.
Status append_json_elements(std::string_view input, DataType type, const json::value& value,
                            std::string& bytes, int64_t& count);

// The elements of a tensor, separated by commas, made in parts.
class TensorText {
 public:
  // `tensor` must outlive the result. InvalidArgument for types that JSON cannot represent.
  static StatusOr<TensorText> create(const Tensor& tensor);
  size_t count() const { return count_; }
  // Appends elements until `out` has `size` bytes or more; whether any are left.
  bool append_until(size_t size, std::string& out);

 private:
  const Tensor* tensor_ = nullptr;
  std::vector<std::string_view> texts_;  // of BYTES
  size_t count_ = 0, at_ = 0;
};
inline constexpr size_t kWhole = std::numeric_limits<size_t>::max();  // for append_until()

// Appends a parameter's value as JSON.
void append_parameter(std::string& out, const ParameterValue& value);

// The parameter of a JSON value: string, bool, integer (double above int64), double.
// InvalidArgument for other types.
StatusOr<Parameter> parse_parameter(std::string_view key, const json::value& value);

}  // namespace nereid::front
