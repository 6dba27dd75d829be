// Tensors, parameters and replies as plain values, the front ends' view of the Triton C API.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

using DataType = TRITONSERVER_DataType;

// `bytes` is row-major and little-endian; a BYTES element is a uint32 length and the text.
struct Tensor {
  std::string name;
  DataType type = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;
  std::string bytes;
  bool is_external = false;         // outputs: the data is in memory that the request named
  std::vector<std::string> labels;  // outputs to classify: a label for each class, "" without one
};

using ParameterValue = std::variant<std::string, int64_t, bool, double>;
struct Parameter {
  std::string name;
  ParameterValue value;
};

// One response of a model, or its error. Empty (no outputs, no error) when a decoupled model ended
// without a last response.
struct InferenceReply {
  Status status;
  bool empty = false;
  bool final = false;  // the last reply
  std::string model_name;
  int64_t model_version = 0;
  std::string id;
  std::vector<Parameter> parameters;
  std::vector<Tensor> outputs;

  const Tensor* output(std::string_view name) const;
  // The string parameter of that name; nullptr when absent or of another type.
  const std::string* string_parameter(std::string_view name) const;
  // The integer parameter of that name; 0 when absent or of another type.
  int64_t int_parameter(std::string_view name) const;
  size_t num_bytes() const;  // of the outputs
};

// Product of the dims; InvalidArgument when a dim is negative or the product exceeds 2^40.
StatusOr<int64_t> num_elements(const std::vector<int64_t>& shape);

// Elements of a tensor of fixed-size type T. Internal error for another type or size.
template <class T>
StatusOr<std::vector<T>> elements(const Tensor& tensor);

// Elements of a BYTES tensor; views into it. Internal error when the encoding is broken.
StatusOr<std::vector<std::string_view>> string_elements(const Tensor& tensor);

// InvalidArgument when an element of BYTES data in a request exceeds the rest. The core
// counts the elements.
Status check_string_lengths(std::string_view input, std::string_view bytes);

// Appends one BYTES element.
void append_string_element(std::string& bytes, std::string_view text);

// A tensor from values; `shape` must have values.size() elements.
template <class T>
Tensor make_tensor(std::string name, std::vector<int64_t> shape, const std::vector<T>& values);

// Takes ownership of `error` (nullptr: OK). The message is unchanged.
Status take_error(TRITONSERVER_Error* error);

// HTTP status for an error: 400 for the caller's mistakes, 404, 501, 503, 429, 504, else 500.
int http_status(const Status& status);

}  // namespace nereid::front
