// The log and trace setting rpcs; see control.h.

#include "base/json.h"
#include "front/grpc/control_handler.h"
#include "front/grpc/grpc_service.pb.h"
#include "front/http/workers.h"

namespace nereid::front {
namespace {

using LogValue = inference::LogSettingsRequest::SettingValue;

// A setting of the log: its value must have the type `kind`, `wanted` in the error.
struct LogSetting {
  const char* key;
  LogValue::ParameterChoiceCase kind;
  const char* wanted;
};

constexpr LogSetting kLogSettings[] = {
    {"log_file", LogValue::kStringParam, "string"},
    {"log_info", LogValue::kBoolParam, "boolean"},
    {"log_warning", LogValue::kBoolParam, "boolean"},
    {"log_error", LogValue::kBoolParam, "boolean"},
    {"log_verbose_level", LogValue::kUint32Param, "int32"},
    {"log_format", LogValue::kStringParam, "string"},
};

StatusOr<json::object> read_changes(const inference::LogSettingsRequest& request) {
  json::object out;
  for (const auto& [key, kind, wanted] : kLogSettings) {
    const auto given = request.settings().find(key);
    if (given == request.settings().end()) continue;
    const LogValue& value = given->second;
    if (value.parameter_choice_case() != kind) {
      return invalid_argument("expect {} for '{}'", wanted, key);
    }
    if (kind == LogValue::kBoolParam) {
      out[key] = value.bool_param();
    } else if (kind == LogValue::kUint32Param) {
      out[key] = value.uint32_param();
    } else {
      const std::string& text = value.string_param();
      if (std::string_view(key) == "log_format" && text != "default" && text != "ISO8601") {
        return invalid_argument("invalid argument for log_format, got: {}", text);
      }
      out[key] = text;
    }
  }
  return out;
}

Status log_settings(const ControlContext& c, const inference::LogSettingsRequest& request,
                    inference::LogSettingsResponse& out) {
  ASSIGN_OR_RETURN(const json::object changes, read_changes(request));
  ASSIGN_OR_RETURN(const std::string text, c.extensions->log().update(changes));
  ASSIGN_OR_RETURN(const json::value all, parse_json(text));
  for (const auto& [key, kind, wanted] : kLogSettings) {
    auto& value = (*out.mutable_settings())[key];
    const json::value& now = all.at(key);
    if (kind == LogValue::kBoolParam) {
      value.set_bool_param(now.as_bool());
    } else if (kind == LogValue::kUint32Param) {
      value.set_uint32_param(now.to_number<uint32_t>());
    } else {
      value.set_string_param(json::value_to<std::string>(now));
    }
  }
  return ok();
}

Status trace_settings(const ControlContext& c, const inference::TraceSettingRequest& request,
                      inference::TraceSettingResponse& out) {
  Tracer::Changes changes;
  for (const auto& [key, setting] : request.settings()) {
    changes[key] = {setting.value().begin(), setting.value().end()};
  }
  ASSIGN_OR_RETURN(const auto all, c.tracer->update(request.model_name(), changes));
  for (const auto& [key, values] : all) {
    auto& setting = (*out.mutable_settings())[key];
    for (const auto& value : values) setting.add_value(value);
  }
  return ok();
}

}  // namespace

namespace {

template <class Request>
bool has_no_settings(std::string_view bytes) {
  Request request;
  return bytes.size() <= kQuickJsonBytes && parse_request(bytes, request).ok() &&
         request.settings().empty();
}

}  // namespace

std::vector<ControlRpc> setting_rpcs() {
  const auto changed = [](Api api) { return Protection(api, Access::kSettings, Cost::kNothing); };
  return {{"LogSettings", changed(Api::kLogging), handler_of(log_settings), nullptr,
           has_no_settings<inference::LogSettingsRequest>},
          {"TraceSetting", changed(Api::kTrace), handler_of(trace_settings), nullptr,
           has_no_settings<inference::TraceSettingRequest>}};
}

}  // namespace nereid::front
