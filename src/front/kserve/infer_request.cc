// Infer request bodies to InferenceSpec; see infer_message.h.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "front/http/json_text.h"
#include "front/kserve/infer_message.h"
#include "front/kserve/json_body.h"
#include "front/kserve/json_tensor.h"

namespace nereid::front {
namespace {

using Names = absl::flat_hash_set<std::string>;

// The tensors behind the JSON, taken from the front, and the inputs read so far.
struct Blobs {
  std::shared_ptr<const std::string> body;
  size_t at = 0;
  Names names;
};

Status missing(std::string_view key) {
  return invalid_argument("Unable to parse '{}': the member is missing", key);
}

StatusOr<std::vector<int64_t>> parse_shape(const json::value& input) {
  const json::value* shape = member(input, "shape");
  if (shape == nullptr) return missing("shape");
  if (!shape->is_array()) return wrong_member("shape", "an array", *shape);
  std::vector<int64_t> out;
  for (const json::value& dim : shape->get_array()) {
    if (!dim.is_int64() || dim.get_int64() < 0) {
      return wrong_member("shape", "integers >= 0", dim);
    }
    out.push_back(dim.get_int64());
  }
  return out;
}

Status take_binary(const std::string& model, Tensor& tensor, uint64_t size, Blobs& blobs,
                   InferenceSpec& spec) {
  const size_t left = blobs.body->size() - blobs.at;
  if (size > left) {
    return invalid_argument(
        "unexpected size for input '{}', expecting {} additional bytes for model '{}'", tensor.name,
        size - left, model);
  }
  char* base = const_cast<char*>(blobs.body->data()) + blobs.at;
  blobs.at += size;
  if (tensor.type == TRITONSERVER_TYPE_BYTES) {
    RETURN_IF_ERROR(check_string_lengths(tensor.name, {base, size}));
  }
  spec.input_memory[tensor.name] = {base, static_cast<size_t>(size),
                                    std::const_pointer_cast<std::string>(blobs.body)};
  return ok();
}

Status take_json(Tensor& tensor, const json::value& data) {
  if (!data.is_array()) return wrong_member("data", "an array", data);
  if (tensor.type == TRITONSERVER_TYPE_FP16 || tensor.type == TRITONSERVER_TYPE_BF16) {
    return invalid_argument(
        "receiving {} data via JSON is not supported. Please use the binary data format for input "
        "{}",
        TRITONSERVER_DataTypeString(tensor.type), tensor.name);
  }
  int64_t count = 0;
  RETURN_IF_ERROR(append_json_elements(tensor.name, tensor.type, data, tensor.bytes, count));
  const auto wanted = num_elements(tensor.shape);
  // A shape with too many elements is refused by the core.
  if (wanted.ok() && *wanted != count) {
    return invalid_argument(
        "Unable to parse 'data': Shape does not match true shape of 'data' field");
  }
  return ok();
}

Status check_sources(bool data, bool binary, bool region) {
  if (data + binary + region == 1) return ok();
  std::string set;
  if (data) set += " 'data'";
  if (binary) set += " 'binary_data_size'";
  if (region) set += " 'shared_memory_region'";
  return invalid_argument(
      "Input must set only one of the following fields: 'data', 'binary_data_size' in "
      "'parameters', 'shared_memory_region' in 'parameters'. But {}",
      set.empty() ? "no field is set" : "set" + set);
}

StatusOr<ExternalMemory> region_of(const json::value& parameters, const std::string& region,
                                   const SharedMemory& regions) {
  ASSIGN_OR_RETURN(const auto size, uint_member(parameters, "shared_memory_byte_size"));
  ASSIGN_OR_RETURN(const auto offset, uint_member(parameters, "shared_memory_offset"));
  // An unknown region is the first error reported.
  StatusOr<ExternalMemory> memory = regions.find(region, offset.value_or(0), size.value_or(0));
  if (memory.ok() && !size) return missing("shared_memory_byte_size");
  return memory;
}

Status parse_input(const json::value& input, const std::string& model, const SharedMemory& regions,
                   Blobs& blobs, InferenceSpec& spec) {
  const json::value none;
  const json::value* found = member(input, "parameters");
  const json::value& parameters = found == nullptr ? none : *found;
  const json::value* data = member(input, "data");
  ASSIGN_OR_RETURN(const auto binary, uint_member(parameters, "binary_data_size"));
  ASSIGN_OR_RETURN(const auto region, string_member(parameters, "shared_memory_region"));
  RETURN_IF_ERROR(check_sources(data != nullptr, binary.has_value(), region.has_value()));
  ASSIGN_OR_RETURN(const auto name, string_member(input, "name"));
  if (!name) return missing("name");
  ASSIGN_OR_RETURN(const auto datatype, string_member(input, "datatype"));
  if (!datatype) return missing("datatype");
  Tensor tensor;
  tensor.name = *name;
  ASSIGN_OR_RETURN(tensor.shape, parse_shape(input));
  tensor.type = TRITONSERVER_StringToDataType(datatype->c_str());
  if (tensor.type == TRITONSERVER_TYPE_INVALID) {
    return invalid_argument("invalid datatype for input {}", *name);
  }
  if (!blobs.names.insert(tensor.name).second) {
    return invalid_argument("[request id: {}] input '{}' already exists in request",
                            spec.id.empty() ? "<id_unknown>" : spec.id, tensor.name);
  }
  if (data != nullptr) {
    RETURN_IF_ERROR(take_json(tensor, *data));
  } else if (binary) {
    RETURN_IF_ERROR(take_binary(model, tensor, *binary, blobs, spec));
  } else {
    ASSIGN_OR_RETURN(spec.input_memory[tensor.name], region_of(parameters, *region, regions));
  }
  spec.inputs.push_back(std::move(tensor));
  return ok();
}

Status parse_output(const json::value& output, const SharedMemory& regions, Names& seen,
                    InferRequest& out) {
  ASSIGN_OR_RETURN(const auto name, string_member(output, "name"));
  if (!name) return missing("name");
  if (seen.insert(*name).second) out.spec.requested_outputs.push_back(*name);
  const json::value* parameters = member(output, "parameters");
  if (parameters == nullptr) return ok();
  ASSIGN_OR_RETURN(const auto binary, bool_member(*parameters, "binary_data"));
  ASSIGN_OR_RETURN(const auto classes, uint_member(*parameters, "classification"));
  ASSIGN_OR_RETURN(const auto region, string_member(*parameters, "shared_memory_region"));
  if (binary) out.binary[*name] = *binary;
  if (classes.value_or(0) > 0) {
    out.classifications[*name] = *classes;
    out.spec.labelled_outputs.insert(*name);
  }
  if (!region) return ok();
  if (classes.value_or(0) > 0) {
    return invalid_argument("Output can't set both 'shared_memory_region' and 'classification'");
  }
  if (binary.value_or(false)) {
    return invalid_argument("Output can't set both 'shared_memory_region' and 'binary_data'");
  }
  ASSIGN_OR_RETURN(out.spec.output_memory[*name], region_of(*parameters, *region, regions));
  return ok();
}

Status parse_sequence_id(const json::value& parameters, InferenceSpec& spec) {
  const json::value* id = member(parameters, "sequence_id");
  if (id == nullptr) return ok();
  if (id->is_string()) {
    spec.correlation_id = std::string(std::string_view(id->get_string()));
    return ok();
  }
  const auto number = uint_member(parameters, "sequence_id");
  if (!number.ok()) return wrong_member("sequence_id", "an integer >= 0 or a string", *id);
  spec.correlation_id = **number;
  return ok();
}

Status parse_parameters(const json::value& root, InferRequest& out) {
  const json::value* parameters = member(root, "parameters");
  if (parameters == nullptr) return ok();
  if (!is_json_object(*parameters)) return wrong_member("parameters", "an object", *parameters);
  RETURN_IF_ERROR(check_count("parameters", parameters->get_object().size(), kMaxParameters));
  InferenceSpec& spec = out.spec;
  RETURN_IF_ERROR(parse_sequence_id(*parameters, spec));
  ASSIGN_OR_RETURN(const auto start, bool_member(*parameters, "sequence_start"));
  ASSIGN_OR_RETURN(const auto end, bool_member(*parameters, "sequence_end"));
  if (start.value_or(false)) spec.flags |= TRITONSERVER_REQUEST_FLAG_SEQUENCE_START;
  if (end.value_or(false)) spec.flags |= TRITONSERVER_REQUEST_FLAG_SEQUENCE_END;
  ASSIGN_OR_RETURN(const auto priority, uint_member(*parameters, "priority"));
  spec.priority = priority.value_or(0);
  ASSIGN_OR_RETURN(const auto timeout, uint_member(*parameters, "timeout"));
  spec.timeout_us = timeout.value_or(0);
  ASSIGN_OR_RETURN(const auto binary, bool_member(*parameters, "binary_data_output"));
  out.binary_by_default = binary.value_or(false);
  constexpr std::string_view kReserved[] = {"sequence_id", "sequence_start", "sequence_end",
                                            "priority",    "timeout",        "binary_data_output"};
  for (const auto& entry : parameters->get_object()) {
    const std::string_view key(entry.key());
    if (std::find(std::begin(kReserved), std::end(kReserved), key) != std::end(kReserved)) continue;
    if (key.starts_with("triton_")) {
      return invalid_argument(
          "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
          "specified.");
    }
    ASSIGN_OR_RETURN(Parameter parameter, parse_parameter(key, entry.value()));
    spec.parameters.push_back(std::move(parameter));
  }
  return ok();
}

}  // namespace

StatusOr<InferRequest> parse_infer_request(std::shared_ptr<const std::string> body,
                                           std::optional<size_t> header_length,
                                           const std::string& model, const SharedMemory& regions,
                                           const json::storage_ptr& memory) {
  InferRequest out;
  out.spec.model = model;
  if (header_length == 0) {
    out.spec.is_raw = out.binary_by_default = true;
    out.spec.inputs.push_back({"raw_input", TRITONSERVER_TYPE_INVALID, {}, {}});
    out.spec.input_memory["raw_input"] = {const_cast<char*>(body->data()), body->size(),
                                          std::const_pointer_cast<std::string>(body)};
    return out;
  }
  Blobs blobs{body, std::min(header_length.value_or(body->size()), body->size()), {}};
  ASSIGN_OR_RETURN(const json::value root,
                   parse_json_body(std::string_view(*body).substr(0, blobs.at), memory));
  ASSIGN_OR_RETURN(const auto id, string_member(root, "id"));
  out.spec.id = id.value_or("");
  RETURN_IF_ERROR(parse_parameters(root, out));
  const json::value* inputs = member(root, "inputs");
  if (inputs == nullptr) return missing("inputs");
  if (!inputs->is_array()) return wrong_member("inputs", "an array", *inputs);
  RETURN_IF_ERROR(check_count("inputs", inputs->get_array().size(), kMaxTensors));
  for (const json::value& input : inputs->get_array()) {
    RETURN_IF_ERROR(parse_input(input, model, regions, blobs, out.spec));
  }
  if (blobs.at != body->size()) {
    return invalid_argument("unexpected additional input data for model '{}'", model);
  }
  if (const json::value* outputs = member(root, "outputs")) {
    if (!outputs->is_array()) return wrong_member("outputs", "an array", *outputs);
    RETURN_IF_ERROR(check_count("outputs", outputs->get_array().size(), kMaxTensors));
    Names names;
    for (const json::value& output : outputs->get_array()) {
      RETURN_IF_ERROR(parse_output(output, regions, names, out));
    }
    // As in the stock server, listed outputs are JSON unless they have binary_data.
    if (!names.empty()) out.binary_by_default = false;
  }
  return out;
}

}  // namespace nereid::front
