// Parses requests; see infer_message.h.
#include <google/protobuf/arena.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "front/grpc/infer.pb.h"
#include "front/grpc/infer_fields.h"
#include "front/grpc/infer_message.h"

namespace nereid::front {
namespace {

using inference::InferParameter;
using Input = inference::ModelInferRequest::InferInputTensor;

Status wrong_type(const std::string& key, const char* wanted) {
  return invalid_argument("invalid value type for '{}' parameter, expected {}.", key, wanted);
}

Status take_custom(const std::string& key, const InferParameter& p, InferenceSpec& spec) {
  switch (p.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      spec.parameters.push_back({key, p.bool_param()});
      return ok();
    case InferParameter::kInt64Param:
      spec.parameters.push_back({key, static_cast<int64_t>(p.int64_param())});
      return ok();
    case InferParameter::kStringParam:
      spec.parameters.push_back({key, p.string_param()});
      return ok();
    case InferParameter::kDoubleParam:
      spec.parameters.push_back({key, p.double_param()});
      return ok();
    default:
      return wrong_type(key, "int64_param, bool_param, or string_param");
  }
}

Status take_sequence_flag(const std::string& key, const InferParameter& p, uint32_t flag,
                          InferenceSpec& spec) {
  if (p.parameter_choice_case() != InferParameter::kBoolParam) return wrong_type(key, "bool_param");
  if (p.bool_param()) spec.flags |= flag;
  return ok();
}

Status take_parameter(const std::string& key, const InferParameter& p, GrpcInferRequest& out) {
  InferenceSpec& spec = out.spec;
  const auto choice = p.parameter_choice_case();
  if (key == "sequence_id") {
    if (choice == InferParameter::kInt64Param) {
      spec.correlation_id = static_cast<uint64_t>(p.int64_param());
    } else if (choice == InferParameter::kStringParam) {
      spec.correlation_id = p.string_param();
    } else {
      return wrong_type(key, "int64_param or string_param");
    }
    return ok();
  }
  if (key == "sequence_start") {
    return take_sequence_flag(key, p, TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, spec);
  }
  if (key == "sequence_end") {
    return take_sequence_flag(key, p, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END, spec);
  }
  if (key == "priority") {
    if (choice == InferParameter::kUint64Param) {
      spec.priority = p.uint64_param();
    } else if (choice != InferParameter::kInt64Param) {
      return wrong_type(key, "int64_param or uint64_param");
    } else if (p.int64_param() < 0) {
      return invalid_argument("invalid value for 'priority', expected value >= 0.");
    } else {
      spec.priority = static_cast<uint64_t>(p.int64_param());
    }
    return ok();
  }
  if (key == "timeout") {
    if (choice != InferParameter::kInt64Param) return wrong_type(key, "int64_param");
    spec.timeout_us = static_cast<uint64_t>(p.int64_param());
    return ok();
  }
  if (!key.starts_with("triton_")) return take_custom(key, p, spec);
  if (key != "triton_enable_empty_final_response") {
    return invalid_argument(
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following "
        "keys starting with 'triton_' are allowed: triton_enable_empty_final_response");
  }
  if (choice != InferParameter::kBoolParam) return wrong_type(key, "bool_param");
  out.ticket.empty_final = p.bool_param();
  return ok();
}

using ParameterMap = google::protobuf::Map<std::string, InferParameter>;

// Reads a tensor's three shared-memory parameters; false: no region is named.
StatusOr<bool> take_region(const ParameterMap& parameters, const std::string& tensor,
                           const SharedMemory& regions, ExternalMemory& out) {
  const auto region = parameters.find("shared_memory_region");
  if (region == parameters.end()) return false;
  const auto wrong = [&](const char* key, const char* wanted) {
    return invalid_argument("invalid value type for '{}' parameter for tensor '{}', expected {}.",
                            key, tensor, wanted);
  };
  if (region->second.parameter_choice_case() != InferParameter::kStringParam) {
    return wrong("shared_memory_region", "string_param");
  }
  uint64_t offset = 0;
  if (const auto p = parameters.find("shared_memory_offset"); p != parameters.end()) {
    if (p->second.parameter_choice_case() != InferParameter::kInt64Param) {
      return wrong("shared_memory_offset", "int64_param");
    }
    offset = static_cast<uint64_t>(p->second.int64_param());
  }
  const auto size = parameters.find("shared_memory_byte_size");
  if (size == parameters.end()) {
    return invalid_argument(
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter "
        "for tensor '{}'",
        tensor);
  }
  if (size->second.parameter_choice_case() != InferParameter::kInt64Param) {
    return wrong("shared_memory_byte_size", "int64_param");
  }
  ASSIGN_OR_RETURN(out, regions.find(region->second.string_param(), offset,
                                     static_cast<uint64_t>(size->second.int64_param())));
  return true;
}

struct ContentsKind {
  ContentsList list;
  const char* type_name;  // for errors
  std::vector<DataType> types;
};

const std::vector<ContentsKind>& contents_kinds() {
  static const std::vector<ContentsKind> kinds = {
      {ContentsList::kBool, "BOOL", {TRITONSERVER_TYPE_BOOL}},
      {ContentsList::kInt,
       "INT32",
       {TRITONSERVER_TYPE_INT8, TRITONSERVER_TYPE_INT16, TRITONSERVER_TYPE_INT32}},
      {ContentsList::kInt64, "INT64", {TRITONSERVER_TYPE_INT64}},
      {ContentsList::kUint,
       "UINT32",
       {TRITONSERVER_TYPE_UINT8, TRITONSERVER_TYPE_UINT16, TRITONSERVER_TYPE_UINT32}},
      {ContentsList::kUint64, "UINT64", {TRITONSERVER_TYPE_UINT64}},
      {ContentsList::kFp32, "FP32", {TRITONSERVER_TYPE_FP32}},
      {ContentsList::kFp64, "FP64", {TRITONSERVER_TYPE_FP64}},
      {ContentsList::kBytes, "BYTES", {TRITONSERVER_TYPE_BYTES}},
  };
  return kinds;
}

Status not_in_range(const Tensor& tensor, int64_t value) {
  const auto size = TRITONSERVER_DataTypeByteSize(tensor.type);
  const bool is_signed =
      tensor.type == TRITONSERVER_TYPE_INT8 || tensor.type == TRITONSERVER_TYPE_INT16;
  const int64_t count = int64_t{1} << (8 * size), least = is_signed ? -count / 2 : 0;
  return invalid_argument("input '{}': {} is not in [{}, {}]", tensor.name, value, least,
                          least + count - 1);
}

Status take_contents(const Input& input, const InputContents& contents, const std::string& model,
                     Tensor& tensor) {
  const ContentsKind* given = nullptr;
  for (const ContentsKind& kind : contents_kinds()) {
    if (contents.count(kind.list) == 0) continue;
    if (given != nullptr) {
      return invalid_argument(
          "unexpected explicit tensor data for input tensor '{}' for model '{}', binary data was "
          "already supplied.",
          input.name(), model);
    }
    given = &kind;
    if (std::find(kind.types.begin(), kind.types.end(), tensor.type) != kind.types.end()) continue;
    return invalid_argument(
        "unexpected explicit tensor data for input tensor '{}' for model '{}' of type '{}', "
        "expected datatype '{}'",
        input.name(), model, kind.type_name, input.datatype());
  }
  if (given == nullptr) return ok();
  ContentsBytes made = contents_bytes(contents, given->list, tensor.type);
  if (!made.fits) return not_in_range(tensor, made.misfit);
  tensor.bytes = std::move(made.bytes);
  return ok();
}

// The source of an input's data.
struct Source {
  std::shared_ptr<std::string> message;
  std::vector<std::string_view> raw;
  size_t next = 0;
};

Status take_data(const Input& input, const InputContents& contents, Source& source,
                 const SharedMemory& regions, Tensor& tensor, InferenceSpec& spec) {
  ExternalMemory memory;
  ASSIGN_OR_RETURN(const bool is_region,
                   take_region(input.parameters(), input.name(), regions, memory));
  if (is_region) {
    spec.input_memory[tensor.name] = std::move(memory);
    return ok();
  }
  if (contents.is_given && !source.raw.empty()) {
    return invalid_argument(
        "contents field must not be specified when using raw_input_contents for '{}' for model "
        "'{}'",
        input.name(), spec.model);
  }
  if (contents.is_given) return take_contents(input, contents, spec.model, tensor);
  if (source.next >= source.raw.size()) {
    return invalid_argument("unable to find data for input tensor '{}' for model '{}' in request.",
                            input.name(), spec.model);
  }
  const std::string_view data = source.raw[source.next++];
  if (tensor.type == TRITONSERVER_TYPE_BYTES) {
    RETURN_IF_ERROR(check_string_lengths(tensor.name, data));
  }
  spec.input_memory[tensor.name] = {const_cast<char*>(data.data()), data.size(), source.message};
  return ok();
}

Status take_outputs(const inference::ModelInferRequest& request, const SharedMemory& regions,
                    GrpcInferRequest& out) {
  InferenceSpec& spec = out.spec;
  absl::flat_hash_set<std::string_view> names;
  for (const auto& output : request.outputs()) {
    if (names.insert(output.name()).second) spec.requested_outputs.push_back(output.name());
    ExternalMemory memory;
    ASSIGN_OR_RETURN(const bool is_region,
                     take_region(output.parameters(), output.name(), regions, memory));
    if (is_region) spec.output_memory[output.name()] = std::move(memory);
    const auto p = output.parameters().find("classification");
    if (p == output.parameters().end()) continue;
    if (is_region) {
      return invalid_argument(
          "output can't set both 'shared_memory_region' and 'classification' parameters");
    }
    if (p->second.parameter_choice_case() != InferParameter::kInt64Param) {
      return invalid_argument(
          "invalid value type for 'classification' parameter, expected int64_param");
    }
    if (p->second.int64_param() <= 0) {
      return invalid_argument("invalid value for 'classification' parameter, expected >= 0");
    }
    out.ticket.classifications[output.name()] = static_cast<uint64_t>(p->second.int64_param());
    spec.labelled_outputs.insert(output.name());
  }
  return ok();
}

Status take_inputs(const inference::ModelInferRequest& request,
                   const std::vector<InputContents>& contents, Source& source,
                   const SharedMemory& regions, InferenceSpec& spec) {
  absl::flat_hash_set<std::string_view> names;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const Input& input = request.inputs(i);
    if (!names.insert(input.name()).second) {
      return invalid_argument("[request id: {}] input '{}' already exists in request",
                              spec.id.empty() ? "<id_unknown>" : spec.id, input.name());
    }
    Tensor tensor;
    tensor.name = input.name();
    tensor.type = TRITONSERVER_StringToDataType(input.datatype().c_str());
    tensor.shape.assign(input.shape().begin(), input.shape().end());
    RETURN_IF_ERROR(
        take_data(input, contents[static_cast<size_t>(i)], source, regions, tensor, spec));
    spec.inputs.push_back(std::move(tensor));
  }
  return ok();
}

}  // namespace

StatusOr<int64_t> parse_version(const std::string& text) {
  if (text.empty()) return -1;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || errno == ERANGE) {
    return invalid_argument(
        "failed to get model version from specified version string '{}' (details: stol), version "
        "should be an integral value > 0",
        text);
  }
  if (value < 0) {
    return invalid_argument(
        "invalid model version specified '{}' , version should be an integral value > 0", text);
  }
  return value;
}

Status parse_infer_message(std::string bytes, const CheckModel& check_model,
                           const SharedMemory& regions, GrpcInferRequest& out) {
  Source source{std::make_shared<std::string>(std::move(bytes)), {}, 0};
  InferFields fields;
  google::protobuf::Arena arena;
  auto& request = *google::protobuf::Arena::CreateMessage<inference::ModelInferRequest>(&arena);
  if (!split_infer_message(*source.message, fields))
    return internal_error("Unable to parse request");
  RETURN_IF_ERROR(check_count("inputs", fields.num_inputs, kMaxTensors));
  RETURN_IF_ERROR(check_count("outputs", fields.num_outputs, kMaxTensors));
  RETURN_IF_ERROR(check_count("parameters", fields.num_parameters, kMaxParameters));
  RETURN_IF_ERROR(check_count("raw input contents", fields.num_raw, kMaxTensors));
  const std::string_view head = fields.head;
  if (!request.ParseFromArray(head.data(), static_cast<int>(head.size())) ||
      fields.contents.size() != static_cast<size_t>(request.inputs_size()))
    return internal_error("Unable to parse request");
  source.raw = std::move(fields.raw);
  InferenceSpec& spec = out.spec;
  out.ticket.model = spec.model = request.model_name();
  out.ticket.version = request.model_version();
  out.ticket.id = spec.id = request.id();
  ASSIGN_OR_RETURN(spec.version, parse_version(out.ticket.version));
  RETURN_IF_ERROR(check_model(spec, out.ticket));
  for (const auto& [key, parameter] : request.parameters()) {
    RETURN_IF_ERROR(take_parameter(key, parameter, out));
  }
  RETURN_IF_ERROR(take_inputs(request, fields.contents, source, regions, spec));
  return take_outputs(request, regions, out);
}

}  // namespace nereid::front
