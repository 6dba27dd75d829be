#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

namespace nereid {

Status set_log_level(std::string_view level) {
  for (auto [name, value] : {std::pair{"debug", spdlog::level::debug},
                             {"info", spdlog::level::info},
                             {"warn", spdlog::level::warn},
                             {"error", spdlog::level::err},
                             {"off", spdlog::level::off}}) {
    if (level == name) {
      spdlog::set_level(value);
      return ok();
    }
  }
  return invalid_argument("log level '{}': use debug, info, warn, error or off", level);
}

void init_logging() {
  auto logger =
      std::make_shared<spdlog::logger>("nereid", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%L %Y-%m-%d %H:%M:%S.%e %v");
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace nereid
