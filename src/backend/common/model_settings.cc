// A model's configuration as its backend reads it; see triton.h.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "backend/common/triton.h"
#include "base/json.h"
#include "config/option.h"

namespace nereid::backend {
namespace {

// A group on GPUs has `count` instances on each.
void read_groups(const json::object& config, ModelSettings& settings) {
  const auto* groups = config.if_contains("instance_group");
  if (groups == nullptr) return;
  int64_t sum = 0;
  for (const auto& group : groups->as_array()) {
    const auto* count = group.as_object().if_contains("count");
    const auto* gpus = group.as_object().if_contains("gpus");
    const size_t num_gpus = gpus == nullptr ? 0 : gpus->as_array().size();
    sum += (count == nullptr ? 1 : count->to_number<int64_t>()) *
           static_cast<int64_t>(std::max<size_t>(num_gpus, 1));
    for (size_t i = 0; i < num_gpus; ++i)
      settings.gpus.push_back(gpus->as_array()[i].to_number<int64_t>());
  }
  settings.num_instances = std::max<int64_t>(sum, 1);
}

}  // namespace

StatusOr<ModelSettings> ModelSettings::read(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* config_message = nullptr;
  RETURN_IF_ERROR(take(TRITONBACKEND_ModelConfig(model, 1, &config_message)));
  const char* text = nullptr;
  size_t size = 0;
  Status status = take(TRITONSERVER_MessageSerializeToJson(config_message, &text, &size));
  const std::string config_text = status.ok() ? std::string(text, size) : "";
  take(TRITONSERVER_MessageDelete(config_message)).IgnoreError();
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(const json::value config, parse_json(config_text));
  ModelSettings settings = of(config.as_object());
  RETURN_IF_ERROR(take(TRITONBACKEND_ModelName(model, &text)));
  settings.name = text;
  uint64_t version = 0;
  RETURN_IF_ERROR(take(TRITONBACKEND_ModelVersion(model, &version)));
  settings.version = static_cast<int64_t>(version);
  TRITONBACKEND_ArtifactType artifact;
  RETURN_IF_ERROR(take(TRITONBACKEND_ModelRepository(model, &artifact, &text)));
  settings.dir = text;
  return settings;
}

ModelSettings ModelSettings::of(const json::object& config) {
  ModelSettings settings;
  if (const auto* name = config.if_contains("name"); name != nullptr)
    settings.name = std::string(name->as_string());
  if (const auto* parameters = config.if_contains("parameters"); parameters != nullptr) {
    settings.parameters_ = parameters->as_object();
  }
  read_groups(config, settings);
  if (const auto* policy = config.if_contains("model_transaction_policy"); policy != nullptr) {
    settings.decoupled = policy->as_object().at("decoupled").as_bool();
  }
  const auto* outputs = config.if_contains("output");
  if (outputs == nullptr) return settings;
  for (const auto& output : outputs->as_array()) {
    const json::object& spec = output.as_object();
    const std::string type(spec.at("data_type").as_string());  // such as TYPE_FP32
    const bool is_string = type == "TYPE_STRING";
    settings.outputs.push_back(
        {std::string(spec.at("name").as_string()),
         is_string ? TRITONSERVER_TYPE_BYTES
                   : TRITONSERVER_StringToDataType(type.substr(type.find('_') + 1).c_str()),
         spec.at("dims").as_array().size()});
  }
  return settings;
}

Output ModelSettings::as_declared(Output output) const {
  const OutputSpec* spec = this->output(output.name);
  const auto is_32 = [](TRITONSERVER_DataType type) {
    return type == TRITONSERVER_TYPE_INT32 || type == TRITONSERVER_TYPE_UINT32;
  };
  if (spec == nullptr || spec->datatype == output.datatype || !is_32(output.datatype)) {
    return output;
  }
  if (is_32(spec->datatype)) {
    output.datatype = spec->datatype;
  } else if (spec->datatype == TRITONSERVER_TYPE_INT64 ||
             spec->datatype == TRITONSERVER_TYPE_UINT64) {
    std::string wide;
    for (size_t at = 0; at < output.bytes.size(); at += sizeof(int32_t)) {
      int32_t value = 0;
      std::memcpy(&value, output.bytes.data() + at, sizeof value);
      const int64_t number = output.datatype == TRITONSERVER_TYPE_UINT32
                                 ? static_cast<int64_t>(static_cast<uint32_t>(value))
                                 : value;
      wide.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
    output.bytes = std::move(wide);
    output.datatype = spec->datatype;
  }
  return output;
}

Status ModelSettings::check_type(std::string_view name, TRITONSERVER_DataType made) const {
  const OutputSpec* spec = output(name);
  if (spec == nullptr ||
      as_declared({std::string(name), made, {}, ""}).datatype == spec->datatype) {
    return ok();
  }
  const bool is_integer = made == TRITONSERVER_TYPE_INT32;
  return invalid_argument("model '{}': output '{}' has type {}, expected {}{}", this->name, name,
                          TRITONSERVER_DataTypeString(spec->datatype),
                          TRITONSERVER_DataTypeString(made),
                          is_integer ? ", UINT32, INT64 or UINT64" : "");
}

const ModelSettings::OutputSpec* ModelSettings::output(std::string_view wanted) const {
  const auto it = std::find_if(outputs.begin(), outputs.end(),
                               [&](const OutputSpec& o) { return o.name == wanted; });
  return it == outputs.end() ? nullptr : &*it;
}

std::optional<std::string> ModelSettings::parameter(std::string_view key) const {
  const auto* entry = parameters_.if_contains({key.data(), key.size()});
  if (entry == nullptr) return std::nullopt;
  const std::string value(entry->as_object().at("string_value").as_string());
  if (value.empty() || value.starts_with("${")) return std::nullopt;
  return value;
}

StatusOr<int64_t> ModelSettings::integer(std::string_view key, int64_t fallback) const {
  const auto text = parameter(key);
  if (!text) return fallback;
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end) {
    return invalid_argument("model '{}': parameter '{}' is '{}', expected an integer", name, key,
                            *text);
  }
  return value;
}

StatusOr<double> ModelSettings::number(std::string_view key, double fallback) const {
  const auto text = parameter(key);
  if (!text) return fallback;
  double value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end) {
    return invalid_argument("model '{}': parameter '{}' is '{}', expected a number", name, key,
                            *text);
  }
  return value;
}

StatusOr<bool> ModelSettings::boolean(std::string_view key, bool fallback) const {
  const auto text = parameter(key);
  if (!text) return fallback;
  if (const std::optional<bool> value = config::parse_bool(*text)) return *value;
  return invalid_argument("model '{}': parameter '{}' is '{}', expected true or false", name, key,
                          *text);
}

}  // namespace nereid::backend
