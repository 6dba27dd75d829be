// Logging through spdlog's default logger to stderr; use log_info("text {}", value) and friends.
#pragma once

#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid {

// debug | info | warn | error | off. InvalidArgument otherwise, naming what is allowed.
Status set_log_level(std::string_view level);

// Sends the default logger to stderr with "LEVEL time message" lines; call once in main.
void init_logging();

// A formatter of spdlog's patterns with three flags more: %* is the text with its control
// characters escaped, so that nobody's data can look like another line; %& the same as a JSON
// string, in quotes; %~ the level as Triton writes it: I, W or E.
std::unique_ptr<spdlog::formatter> log_formatter(const std::string& pattern,
                                                 spdlog::pattern_time_type time);

// Several lines of our own at level info, such as a table: their breaks stay, whatever the pattern.
void log_lines(std::string_view text);

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
