// The log and trace setting rpcs; see control.h.
#include "front/grpc/control.h"
#include "front/kserve/json_body.h"

namespace nereid::front {
namespace {

// Values come with their type's name; the one that a setting has is `arm`, `wanted` in the error.
struct LogSetting {
  std::string_view key;
  const char* arm;
  const char* wanted;
};

constexpr LogSetting kLogSettings[] = {
    {"log_file", "string_param", "string"},         {"log_info", "bool_param", "boolean"},
    {"log_warning", "bool_param", "boolean"},       {"log_error", "bool_param", "boolean"},
    {"log_verbose_level", "uint32_param", "int32"}, {"log_format", "string_param", "string"},
};

StatusOr<json::object> read_changes(const json::value& request) {
  json::object out;
  const json::value* settings = member(request, "settings");
  if (settings == nullptr) return out;
  for (const LogSetting& setting : kLogSettings) {
    const json::value* given = member(*settings, setting.key);
    if (given == nullptr) continue;
    const json::value* value = member(*given, setting.arm);
    if (value == nullptr)
      return invalid_argument("expect {} for '{}'", setting.wanted, setting.key);
    if (setting.key == "log_format" && *value != "default" && *value != "ISO8601") {
      return invalid_argument("invalid argument for log_format, got: {}",
                              json::value_to<std::string>(*value));
    }
    out[setting.key] = *value;
  }
  return out;
}

StatusOr<std::string> log_settings(const ControlContext& c, const json::value& request) {
  ASSIGN_OR_RETURN(const json::object changes, read_changes(request));
  ASSIGN_OR_RETURN(const std::string text, c.extensions->log().update(changes));
  ASSIGN_OR_RETURN(const json::value all, parse_json(text));
  json::object settings;
  for (const LogSetting& setting : kLogSettings) {
    settings[setting.key] = json::object{{setting.arm, all.at(setting.key)}};
  }
  return json::serialize(json::object{{"settings", std::move(settings)}});
}

StatusOr<std::string> trace_settings(const ControlContext& c, const json::value& request) {
  Tracer::Changes changes;
  if (const json::value* settings = member(request, "settings")) {
    for (const auto& entry : settings->as_object()) {
      auto& values = changes[std::string(entry.key())];
      const json::value* list = member(entry.value(), "value");
      if (list != nullptr) values = json::value_to<std::vector<std::string>>(*list);
    }
  }
  ASSIGN_OR_RETURN(const auto model, string_member(request, "model_name"));
  ASSIGN_OR_RETURN(const auto all, c.tracer->update(model.value_or(""), changes));
  json::object settings;
  for (const auto& [key, values] : all) {
    settings[key] = json::object{{"value", json::array(values.begin(), values.end())}};
  }
  return json::serialize(json::object{{"settings", std::move(settings)}});
}

}  // namespace

std::vector<ControlRpc> setting_rpcs() {
  return {{"LogSettings", "logging", log_settings}, {"TraceSetting", "trace", trace_settings}};
}

}  // namespace nereid::front
