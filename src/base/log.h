// Logging through spdlog's default logger to stderr; use log_info("text {}", value) and friends.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

#include "base/status.h"

namespace nereid {

// debug | info | warn | error | off. InvalidArgument otherwise, naming what is allowed.
Status set_log_level(std::string_view level);

// Sends the default logger to stderr with "LEVEL time message" lines; call once in main.
void init_logging();

template <class... Args>
void log_debug(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::debug(format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::info(format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::warn(format, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::error(format, std::forward<Args>(args)...);
}

}  // namespace nereid
