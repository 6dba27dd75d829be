// Tensor encodings and error mapping; see tensor.h.
#include "front/bridge/tensor.h"

#include <cstring>

#include "base/copy_bytes.h"
#include "base/error_codes.h"

namespace nereid::front {
namespace {

template <class T>
constexpr DataType kTypeOf = TRITONSERVER_TYPE_INVALID;
template <>
constexpr DataType kTypeOf<int32_t> = TRITONSERVER_TYPE_INT32;
template <>
constexpr DataType kTypeOf<uint64_t> = TRITONSERVER_TYPE_UINT64;
template <>
constexpr DataType kTypeOf<float> = TRITONSERVER_TYPE_FP32;
template <>
constexpr DataType kTypeOf<uint8_t> = TRITONSERVER_TYPE_BOOL;

}  // namespace

const Tensor* InferenceReply::output(std::string_view name) const {
  for (const Tensor& t : outputs) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

size_t InferenceReply::num_bytes() const {
  size_t total = 0;
  for (const Tensor& tensor : outputs) total += tensor.bytes.size();
  return total;
}

const std::string* InferenceReply::string_parameter(std::string_view name) const {
  for (const Parameter& p : parameters) {
    if (p.name == name) return std::get_if<std::string>(&p.value);
  }
  return nullptr;
}

int64_t InferenceReply::int_parameter(std::string_view name) const {
  for (const Parameter& p : parameters) {
    const auto* value = p.name == name ? std::get_if<int64_t>(&p.value) : nullptr;
    if (value) return *value;
  }
  return 0;
}

StatusOr<int64_t> num_elements(const std::vector<int64_t>& shape) {
  constexpr int64_t kMax = int64_t{1} << 40;
  int64_t n = 1;
  for (const int64_t dim : shape) {
    if (dim < 0) return invalid_argument("dimension {} is negative", dim);
    if (dim != 0 && n > kMax / dim) return invalid_argument("shape has too many elements");
    n *= dim;
  }
  return n;
}

template <class T>
StatusOr<std::vector<T>> elements(const Tensor& tensor) {
  if (tensor.type != kTypeOf<T> || tensor.bytes.size() % sizeof(T) != 0) {
    return internal_error("output '{}' has type {} and {} bytes, expected {}", tensor.name,
                          TRITONSERVER_DataTypeString(tensor.type), tensor.bytes.size(),
                          TRITONSERVER_DataTypeString(kTypeOf<T>));
  }
  std::vector<T> out(tensor.bytes.size() / sizeof(T));
  copy_bytes(out.data(), tensor.bytes.data(), tensor.bytes.size());
  return out;
}
template StatusOr<std::vector<int32_t>> elements(const Tensor&);
template StatusOr<std::vector<float>> elements(const Tensor&);

StatusOr<std::vector<std::string_view>> string_elements(const Tensor& tensor) {
  std::vector<std::string_view> out;
  std::string_view rest = tensor.bytes;
  while (!rest.empty()) {
    uint32_t length = 0;
    if (rest.size() < sizeof length) {
      return internal_error("output '{}': broken string encoding", tensor.name);
    }
    std::memcpy(&length, rest.data(), sizeof length);
    rest.remove_prefix(sizeof length);
    if (rest.size() < length) {
      return internal_error("output '{}': broken string encoding", tensor.name);
    }
    out.push_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  return out;
}

Status check_string_lengths(std::string_view input, std::string_view bytes) {
  while (bytes.size() >= sizeof(uint32_t)) {
    uint32_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes.remove_prefix(sizeof length);
    if (length > bytes.size()) {
      return invalid_argument(
          "incomplete string data for inference input '{}', expecting string of length {} but only "
          "{} bytes available",
          input, length, bytes.size());
    }
    bytes.remove_prefix(length);
  }
  return ok();
}

void append_string_element(std::string& bytes, std::string_view text) {
  const auto length = static_cast<uint32_t>(text.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
  bytes.append(text);
}

template <class T>
Tensor make_tensor(std::string name, std::vector<int64_t> shape, const std::vector<T>& values) {
  Tensor out{std::move(name), kTypeOf<T>, std::move(shape), {}};
  out.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return out;
}
template Tensor make_tensor(std::string, std::vector<int64_t>, const std::vector<int32_t>&);
template Tensor make_tensor(std::string, std::vector<int64_t>, const std::vector<uint64_t>&);
template Tensor make_tensor(std::string, std::vector<int64_t>, const std::vector<float>&);
template Tensor make_tensor(std::string, std::vector<int64_t>, const std::vector<uint8_t>&);

Status take_error(TRITONSERVER_Error* error) {
  if (error == nullptr) return {};
  Status status(to_status_code(TRITONSERVER_ErrorCode(error)), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return status;
}

int http_status(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace nereid::front
