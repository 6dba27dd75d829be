// The logging extension; see settings.h.
#include "front/bridge/tensor.h"
#include "front/kserve/extensions.h"
#include "front/kserve/json_body.h"
#include "front/kserve/routes.h"
#include "front/kserve/settings.h"

namespace nereid::front {
LogSettings::LogSettings(LogStart start) : state_(std::move(start)) {
  // The environment may switch verbose messages on, too.
  if (state_.verbose_level == 0 && TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE)) {
    state_.verbose_level = 1;
  }
}

StatusOr<std::string> LogSettings::update(const json::value& root) {
  if (const json::value* file = member(root, "log_file"); file != nullptr && !file->is_null()) {
    return unsupported("log file location can not be updated through network protocol");
  }
  ASSIGN_OR_RETURN(const auto info, bool_member(root, "log_info"));
  ASSIGN_OR_RETURN(const auto warning, bool_member(root, "log_warning"));
  ASSIGN_OR_RETURN(const auto error, bool_member(root, "log_error"));
  ASSIGN_OR_RETURN(const auto verbose, uint_member(root, "log_verbose_level"));
  ASSIGN_OR_RETURN(const auto format, string_member(root, "log_format"));
  if (format && *format != "default" && *format != "ISO8601") {
    return unavailable("invalid argument for --log_format, got: {}", *format);
  }
  if (verbose.value_or(0) > INT32_MAX) {
    return invalid_argument("Unable to parse 'log_verbose_level': {} is more than {}", *verbose,
                            INT32_MAX);
  }
  std::lock_guard lock(mutex_);
  if (info) RETURN_IF_ERROR(take_error(TRITONSERVER_ServerOptionsSetLogInfo(nullptr, *info)));
  if (warning) {
    RETURN_IF_ERROR(take_error(TRITONSERVER_ServerOptionsSetLogWarn(nullptr, *warning)));
  }
  if (error) RETURN_IF_ERROR(take_error(TRITONSERVER_ServerOptionsSetLogError(nullptr, *error)));
  if (verbose) {
    state_.verbose_level = static_cast<int>(*verbose);
    RETURN_IF_ERROR(
        take_error(TRITONSERVER_ServerOptionsSetLogVerbose(nullptr, state_.verbose_level)));
  }
  if (format) {
    state_.format = *format;
    RETURN_IF_ERROR(take_error(TRITONSERVER_ServerOptionsSetLogFormat(
        nullptr,
        state_.format == "default" ? TRITONSERVER_LOG_DEFAULT : TRITONSERVER_LOG_ISO8601)));
  }
  return text();
}

std::string LogSettings::show() {
  std::lock_guard lock(mutex_);
  return text();
}

std::string LogSettings::text() const {
  return json::serialize(
      json::object{{"log_file", state_.file},
                   {"log_info", TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_INFO)},
                   {"log_warning", TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_WARN)},
                   {"log_error", TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_ERROR)},
                   {"log_verbose_level", state_.verbose_level},
                   {"log_format", state_.format}});
}

void add_logging_routes(Router& router, std::shared_ptr<Extensions> extensions) {
  constexpr Api kApi = Api::kLogging;
  const RouteTraits shown = {kApi, Access::kCallers, Cost::kNothing, ErrorShape::kKserve};
  const RouteTraits changed = {kApi, Access::kSettings, Cost::kNothing, ErrorShape::kKserve};
  router.add("GET", "/v2/logging", shown, [extensions](const ExchangePtr& x) {
    x->send(json_response(extensions->log().show()));
  });
  router.add("POST", "/v2/logging", changed, [extensions](const ExchangePtr& x) {
    const StatusOr<json::value> body = parse_short_body(x->request().body);
    x->send(kserve_response(body.ok() ? extensions->log().update(*body) : body.status()));
  });
}

}  // namespace nereid::front
