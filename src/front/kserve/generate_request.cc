// Generate request bodies to tensors and parameters; see generate_mapping.h.
#include <utility>

#include "front/http/json_text.h"
#include "front/kserve/generate_mapping.h"
#include "front/kserve/json_body.h"
#include "front/kserve/json_tensor.h"

namespace nereid::front {
namespace {

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
  RETURN_IF_ERROR(append_json_elements(info.name, info.type, value, tensor.bytes, count));
  if (count != top_level) {
    return invalid_argument(
        "Unable to parse 'data': Shape does not match true shape of 'data' field (input '{}')",
        info.name);
  }
  spec.inputs.push_back(std::move(tensor));
  return ok();
}

Status add_parameter(std::string_view key, const json::value& value, InferenceSpec& spec) {
  ASSIGN_OR_RETURN(Parameter parameter, parse_parameter(key, value));
  spec.parameters.push_back(std::move(parameter));
  return check_count("parameters", spec.parameters.size(), kMaxParameters);
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
      if (!is_json_object(value)) {
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

StatusOr<InferenceSpec> map_generate_request(std::string_view body, const ModelInfo& model,
                                             const json::storage_ptr& memory) {
  std::string marked;
  StatusOr<json::value> root = parse_json_numbers(body, marked, kMaxJsonDepth, memory);
  if (root.status().code() == absl::StatusCode::kUnavailable) return root.status();
  if (!root.ok()) {
    return invalid_argument("failed to parse the request JSON buffer: {}", message(root.status()));
  }
  RETURN_IF_ERROR(check_is_object(*root));
  if (const auto name = duplicate_key(body)) {
    if (model.input(*name) == nullptr) return invalid_argument("'{}' is given twice", *name);
    return invalid_argument("[request id: <id_unknown>] input '{}' already exists in request",
                            *name);
  }
  InferenceSpec spec;
  spec.model = model.name;
  RETURN_IF_ERROR(add_members(root->get_object(), model, true, spec));
  return spec;
}

}  // namespace nereid::front
