// Inference replies -> generate reply objects; see generate_mapping.h.
#include <algorithm>
#include <cstring>
#include <map>

#include "front/http/json_text.h"
#include "front/kserve/generate_mapping.h"

namespace nereid::front {
namespace {

template <class T>
T read_raw(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Appends element `i` of a fixed-size type.
void append_fixed(std::string& out, DataType type, const char* data, size_t i) {
  switch (type) {
    case TRITONSERVER_TYPE_BOOL:
      out += data[i] != 0 ? "true" : "false";
      return;
    case TRITONSERVER_TYPE_UINT8:
      out += std::to_string(read_raw<uint8_t>(data + i));
      return;
    case TRITONSERVER_TYPE_INT8:
      out += std::to_string(read_raw<int8_t>(data + i));
      return;
    case TRITONSERVER_TYPE_UINT16:
      out += std::to_string(read_raw<uint16_t>(data + 2 * i));
      return;
    case TRITONSERVER_TYPE_INT16:
      out += std::to_string(read_raw<int16_t>(data + 2 * i));
      return;
    case TRITONSERVER_TYPE_UINT32:
      out += std::to_string(read_raw<uint32_t>(data + 4 * i));
      return;
    case TRITONSERVER_TYPE_INT32:
      out += std::to_string(read_raw<int32_t>(data + 4 * i));
      return;
    case TRITONSERVER_TYPE_UINT64:
      out += std::to_string(read_raw<uint64_t>(data + 8 * i));
      return;
    case TRITONSERVER_TYPE_INT64:
      out += std::to_string(read_raw<int64_t>(data + 8 * i));
      return;
    case TRITONSERVER_TYPE_FP32:
      append_json_double(out, static_cast<double>(read_raw<float>(data + 4 * i)));
      return;
    default:
      append_json_double(out, read_raw<double>(data + 8 * i));
      return;
  }
}

StatusOr<std::string> format_tensor(const Tensor& t) {
  std::string out;
  size_t count = 0;
  const auto separate = [&] {
    if (count++ > 0) out += ",";
  };
  if (t.type == TRITONSERVER_TYPE_BYTES) {
    ASSIGN_OR_RETURN(const auto texts, string_elements(t));
    for (const std::string_view text : texts) {
      separate();
      append_json_string(out, text);
    }
  } else if (t.type == TRITONSERVER_TYPE_FP16 || t.type == TRITONSERVER_TYPE_BF16 ||
             t.type == TRITONSERVER_TYPE_INVALID) {
    return invalid_argument(
        "sending {} data via JSON is not supported. Please use the binary data format for output "
        "'{}'",
        TRITONSERVER_DataTypeString(t.type), t.name);
  } else {
    const size_t size = TRITONSERVER_DataTypeByteSize(t.type);
    for (size_t i = 0; i < t.bytes.size() / size; ++i) {
      separate();
      append_fixed(out, t.type, t.bytes.data(), i);
    }
  }
  return count == 1 ? out : "[" + out + "]";
}

std::string format_parameter(const ParameterValue& value) {
  std::string out;
  if (const auto* text = std::get_if<std::string>(&value)) {
    append_json_string(out, *text);
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    out = std::to_string(*number);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    out = *flag ? "true" : "false";
  } else {
    append_json_double(out, std::get<double>(value));
  }
  return out;
}

}  // namespace

StatusOr<std::string> format_generate_reply(const InferenceReply& reply) {
  std::map<std::string, std::string> members;
  if (!reply.id.empty()) members["id"] = format_parameter(reply.id);
  members["model_name"] = format_parameter(reply.model_name);
  members["model_version"] = format_parameter(std::to_string(reply.model_version));
  for (const Parameter& p : reply.parameters) members[p.name] = format_parameter(p.value);
  for (const Tensor& t : reply.outputs) {
    ASSIGN_OR_RETURN(members[t.name], format_tensor(t));
  }
  std::string out = "{";
  for (const auto& [name, value] : members) {
    if (out.size() > 1) out += ",";
    append_json_string(out, name);
    out += ":" + value;
  }
  out += "}";
  return out;
}

}  // namespace nereid::front
