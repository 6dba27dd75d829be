// Generate request bodies -> tensors and parameters; see generate_mapping.h.
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "front/http/json_text.h"
#include "front/kserve/generate_mapping.h"

namespace nereid::front {
namespace {

Status wrong_type(const TensorInfo& info, const json::value& v, std::string_view wanted) {
  return invalid_argument("Unable to parse 'data': input '{}' takes {} ({}), got {}", info.name,
                          wanted, TRITONSERVER_DataTypeString(info.type), json_kind_name(v));
}

template <class T>
void append_raw(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
Status append_integer(const TensorInfo& info, const json::value& v, std::string& bytes) {
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
Status append_float(const TensorInfo& info, const json::value& v, std::string& bytes) {
  if (!v.is_number()) return wrong_type(info, v, "numbers");
  const double number = v.is_double()  ? v.get_double()
                        : v.is_int64() ? static_cast<double>(v.get_int64())
                                       : static_cast<double>(v.get_uint64());
  if (!(std::abs(number) <= static_cast<double>(std::numeric_limits<T>::max()))) {
    return invalid_argument("Unable to parse 'data': input '{}': {} is out of range for {}",
                            info.name, number, TRITONSERVER_DataTypeString(info.type));
  }
  append_raw(bytes, static_cast<T>(number));
  return ok();
}

Status append_element(const TensorInfo& info, const json::value& v, std::string& bytes) {
  switch (info.type) {
    case TRITONSERVER_TYPE_BOOL:
      if (!v.is_bool()) return wrong_type(info, v, "true or false");
      append_raw(bytes, static_cast<uint8_t>(v.get_bool()));
      return ok();
    case TRITONSERVER_TYPE_UINT8:
      return append_integer<uint8_t>(info, v, bytes);
    case TRITONSERVER_TYPE_UINT16:
      return append_integer<uint16_t>(info, v, bytes);
    case TRITONSERVER_TYPE_UINT32:
      return append_integer<uint32_t>(info, v, bytes);
    case TRITONSERVER_TYPE_UINT64:
      return append_integer<uint64_t>(info, v, bytes);
    case TRITONSERVER_TYPE_INT8:
      return append_integer<int8_t>(info, v, bytes);
    case TRITONSERVER_TYPE_INT16:
      return append_integer<int16_t>(info, v, bytes);
    case TRITONSERVER_TYPE_INT32:
      return append_integer<int32_t>(info, v, bytes);
    case TRITONSERVER_TYPE_INT64:
      return append_integer<int64_t>(info, v, bytes);
    case TRITONSERVER_TYPE_FP32:
      return append_float<float>(info, v, bytes);
    case TRITONSERVER_TYPE_FP64:
      return append_float<double>(info, v, bytes);
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

// Depth-first over nested arrays; the parser has bounded the nesting.
Status append_elements(const TensorInfo& info, const json::value& v, std::string& bytes,
                       int64_t& count) {
  if (!v.is_array()) {
    ++count;
    return append_element(info, v, bytes);
  }
  for (const json::value& item : v.get_array()) {
    RETURN_IF_ERROR(append_elements(info, item, bytes, count));
  }
  return ok();
}

StatusOr<std::vector<int64_t>> infer_shape(const TensorInfo& info, int64_t num_elements) {
  std::vector<int64_t> shape = info.shape;
  int64_t rest = num_elements;
  bool divides = true;
  int64_t* innermost = nullptr;
  for (int64_t& dim : shape) {
    if (dim == -1) {
      if (innermost != nullptr) *innermost = 1;
      innermost = &dim;
    } else if (dim <= 0 || rest % dim != 0) {
      divides = false;
    } else {
      rest /= dim;
    }
  }
  if (innermost != nullptr) {
    *innermost = rest;
    rest = 1;
  }
  if (!divides || rest != 1) {
    return invalid_argument("The schema can not convert input '{}' to tensor with proper shape",
                            info.name);
  }
  return shape;
}

Status add_tensor(const TensorInfo& info, const json::value& value, InferenceSpec& spec) {
  for (const Tensor& t : spec.inputs) {
    if (t.name == info.name) {
      return invalid_argument("[request id: {}] input '{}' already exists in request",
                              spec.id.empty() ? "<id_unknown>" : spec.id, info.name);
    }
  }
  const int64_t top_level = value.is_array() ? static_cast<int64_t>(value.get_array().size()) : 1;
  Tensor tensor{info.name, info.type, {}, {}};
  ASSIGN_OR_RETURN(tensor.shape, infer_shape(info, top_level));
  int64_t count = 0;
  RETURN_IF_ERROR(append_elements(info, value, tensor.bytes, count));
  if (count != top_level) {
    return invalid_argument(
        "Unable to parse 'data': Shape does not match true shape of 'data' field (input '{}')",
        info.name);
  }
  spec.inputs.push_back(std::move(tensor));
  return ok();
}

Status add_parameter(std::string_view key, const json::value& value, InferenceSpec& spec) {
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
  } else {
    return invalid_argument(
        "parameter '{}' has invalid type. It should be either 'int', 'bool', or 'string'.", key);
  }
  spec.parameters.push_back(std::move(parameter));
  return ok();
}

Status add_members(const json::object& object, const ModelInfo& model, bool top_level,
                   InferenceSpec& spec) {
  for (const auto& member : object) {
    const std::string_view key(member.key());
    const json::value& value = member.value();
    if (top_level && key == "id") {
      if (!value.is_string()) {
        return invalid_argument("Unable to parse 'id': it takes a string, got {}",
                                json_kind_name(value));
      }
      spec.id = std::string_view(value.get_string());
    }
    if (top_level && key == "parameters") {
      if (!value.is_object()) {
        return invalid_argument(
            "Expected JSON object for keyword: 'parameters': it takes an object, got {}",
            json_kind_name(value));
      }
      RETURN_IF_ERROR(annotate(add_members(value.get_object(), model, false, spec),
                               "Converting keyword: 'parameters'"));
      continue;
    }
    const TensorInfo* info = model.input(key);
    RETURN_IF_ERROR(info != nullptr ? add_tensor(*info, value, spec)
                                    : add_parameter(key, value, spec));
  }
  return ok();
}

}  // namespace

StatusOr<InferenceSpec> map_generate_request(std::string_view body, const ModelInfo& model) {
  StatusOr<json::value> root = parse_json(body, kMaxJsonDepth);
  if (!root.ok()) {
    return invalid_argument("failed to parse the request JSON buffer: {}", message(root.status()));
  }
  if (!root->is_object()) {
    return invalid_argument("the request must be a JSON object, got {}", json_kind_name(*root));
  }
  InferenceSpec spec;
  spec.model = model.name;
  RETURN_IF_ERROR(add_members(root->get_object(), model, true, spec));
  return spec;
}

}  // namespace nereid::front
