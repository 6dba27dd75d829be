#include "front/kserve/json_tensor.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "front/bridge/number_types.h"
#include "front/http/json_text.h"

namespace nereid::front {
namespace {

// The type of elements, for messages.
struct Target {
  std::string_view name;
  DataType type;
};

// The stock server's error for an element of another kind, which clients match.
const char* access_error(DataType type) {
  switch (type) {
    case TRITONSERVER_TYPE_BYTES:
      return "attempt to access JSON non-string as string";
    case TRITONSERVER_TYPE_BOOL:
      return "attempt to access JSON non-boolean as boolean";
    case TRITONSERVER_TYPE_FP32:
    case TRITONSERVER_TYPE_FP64:
      return "attempt to access JSON non-number as double";
    case TRITONSERVER_TYPE_UINT8:
    case TRITONSERVER_TYPE_UINT16:
    case TRITONSERVER_TYPE_UINT32:
    case TRITONSERVER_TYPE_UINT64:
      return "attempt to access JSON non-unsigned-integer as unsigned-integer";
    default:
      return "attempt to access JSON non-signed-integer as signed-integer";
  }
}

Status wrong_type(const Target& info, const json::value& v, std::string_view wanted) {
  return invalid_argument("Unable to parse 'data': {}: input '{}' takes {} ({}), got {}",
                          access_error(info.type), info.name, wanted,
                          TRITONSERVER_DataTypeString(info.type), json_kind_name(v));
}

template <class T>
void append_raw(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
Status append_integer(const Target& info, const json::value& v, std::string& bytes) {
  if (!v.is_int64() && !v.is_uint64()) return wrong_type(info, v, "integers");
  const bool fits =
      v.is_int64() ? std::in_range<T>(v.get_int64()) : std::in_range<T>(v.get_uint64());
  if (!fits) {
    return invalid_argument("Unable to parse 'data': input '{}': {} is not in [{}, {}] ({})",
                            info.name, json::serialize(v), std::numeric_limits<T>::min(),
                            std::numeric_limits<T>::max(), TRITONSERVER_DataTypeString(info.type));
  }
  append_raw(bytes, v.is_int64() ? static_cast<T>(v.get_int64()) : static_cast<T>(v.get_uint64()));
  return ok();
}

template <class T>
Status append_float(const Target& info, const json::value& v, std::string& bytes) {
  if (const auto number = non_finite(v)) {
    append_raw(bytes, static_cast<T>(*number));
    return ok();
  }
  if (!v.is_number()) return wrong_type(info, v, "numbers");
  const double number = v.is_double()  ? v.get_double()
                        : v.is_int64() ? static_cast<double>(v.get_int64())
                                       : static_cast<double>(v.get_uint64());
  // Rounds to T first: the decimal text of its largest value may be a little above it.
  if (!std::isfinite(static_cast<T>(number))) {
    return invalid_argument("Unable to parse 'data': input '{}': {} is out of range for {}",
                            info.name, number, TRITONSERVER_DataTypeString(info.type));
  }
  append_raw(bytes, static_cast<T>(number));
  return ok();
}

Status append_element(const Target& info, const json::value& v, std::string& bytes) {
  Status status;
  const bool is_number = visit_number_type(info.type, [&]<class T>(T) {
    if constexpr (std::is_integral_v<T>)
      status = append_integer<T>(info, v, bytes);
    else
      status = append_float<T>(info, v, bytes);
  });
  if (is_number) return status;
  switch (info.type) {
    case TRITONSERVER_TYPE_BOOL:
      if (!v.is_bool()) return wrong_type(info, v, "true or false");
      append_raw(bytes, static_cast<uint8_t>(v.get_bool()));
      return ok();
    case TRITONSERVER_TYPE_BYTES:
      if (!v.is_string()) return wrong_type(info, v, "strings");
      append_string_element(bytes, std::string_view(v.get_string()));
      return ok();
    default:
      return invalid_argument(
          "receiving {} data via JSON is not supported. Please use the binary data format for "
          "input {}",
          TRITONSERVER_DataTypeString(info.type), info.name);
  }
}

// Appends element `i` of a fixed-size type.
void append_fixed(std::string& out, DataType type, const char* data, size_t i) {
  if (type == TRITONSERVER_TYPE_BOOL) out += data[i] != 0 ? "true" : "false";
  visit_number_type(type, [&]<class T>(T) {
    const T value = element_at<T>(data, i);
    if constexpr (std::is_integral_v<T>)
      out += std::to_string(value);
    else
      append_json_double(out, static_cast<double>(value));
  });
}

}  // namespace

Status append_json_elements(std::string_view input, DataType type, const json::value& value,
                            std::string& bytes, int64_t& count) {
  if (!value.is_array()) {
    ++count;
    return append_element({input, type}, value, bytes);
  }
  // The parser has bounded the nesting.
  for (const json::value& item : value.get_array()) {
    RETURN_IF_ERROR(append_json_elements(input, type, item, bytes, count));
  }
  return ok();
}

StatusOr<TensorText> TensorText::create(const Tensor& t) {
  TensorText out;
  out.tensor_ = &t;
  if (t.type == TRITONSERVER_TYPE_BYTES) {
    ASSIGN_OR_RETURN(out.texts_, string_elements(t));
    out.count_ = out.texts_.size();
    return out;
  }
  if (t.type == TRITONSERVER_TYPE_FP16 || t.type == TRITONSERVER_TYPE_BF16 ||
      t.type == TRITONSERVER_TYPE_INVALID) {
    return invalid_argument(
        "sending {} data via JSON is not supported. Please use the binary data format for output "
        "'{}'",
        TRITONSERVER_DataTypeString(t.type), t.name);
  }
  out.count_ = t.bytes.size() / TRITONSERVER_DataTypeByteSize(t.type);
  return out;
}

bool TensorText::append_until(size_t size, std::string& out) {
  for (; at_ < count_ && out.size() < size; ++at_) {
    if (at_ > 0) out += ',';
    if (tensor_->type == TRITONSERVER_TYPE_BYTES) {
      append_json_string(out, texts_[at_]);
    } else {
      append_fixed(out, tensor_->type, tensor_->bytes.data(), at_);
    }
  }
  return at_ < count_;
}

void append_parameter(std::string& out, const ParameterValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    append_json_string(out, *text);
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    out += std::to_string(*number);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    out += *flag ? "true" : "false";
  } else {
    append_json_double(out, std::get<double>(value));
  }
}

StatusOr<Parameter> parse_parameter(std::string_view key, const json::value& value) {
  Parameter parameter{std::string(key), {}};
  if (value.is_string()) {
    parameter.value = std::string(std::string_view(value.get_string()));
  } else if (value.is_bool()) {
    parameter.value = value.get_bool();
  } else if (value.is_int64()) {
    parameter.value = static_cast<int64_t>(value.get_int64());
  } else if (value.is_uint64()) {
    parameter.value = static_cast<double>(value.get_uint64());
  } else if (value.is_double()) {
    parameter.value = value.get_double();
  } else if (const auto number = non_finite(value)) {
    parameter.value = *number;
  } else {
    return invalid_argument(
        "parameter '{}' has invalid type. It should be either 'int', 'bool', or 'string'.", key);
  }
  return parameter;
}

}  // namespace nereid::front
