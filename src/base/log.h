// Logging through spdlog's default logger to stderr; use log_info("text {}", value) and friends.
#pragma once

#include <spdlog/spdlog.h>

#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

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
void log_lines(std::string_view text, std::source_location place = std::source_location::current());

// The format of a message, with the place that logs it.
template <class... Args>
struct PlacedFormat {
  template <class Text>
  consteval PlacedFormat(const Text& format,  // NOLINT: made of a literal, as fmt's own
                         std::source_location at = std::source_location::current())
      : text(format), place(at) {}

  spdlog::format_string_t<Args...> text;
  std::source_location place;
};
template <class... Args>
using LogFormat = PlacedFormat<std::type_identity_t<Args>...>;

template <class... Args>
void log_at(spdlog::level::level_enum level, const std::source_location& place,
            spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::log({place.file_name(), static_cast<int>(place.line()), ""}, level, format,
              std::forward<Args>(args)...);
}

template <class... Args>
void log_debug(LogFormat<Args...> format, Args&&... args) {
  log_at(spdlog::level::debug, format.place, format.text, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(LogFormat<Args...> format, Args&&... args) {
  log_at(spdlog::level::info, format.place, format.text, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(LogFormat<Args...> format, Args&&... args) {
  log_at(spdlog::level::warn, format.place, format.text, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(LogFormat<Args...> format, Args&&... args) {
  log_at(spdlog::level::err, format.place, format.text, std::forward<Args>(args)...);
}

}  // namespace nereid
