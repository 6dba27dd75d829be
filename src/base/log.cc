#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cstdio>

#include "base/progress.h"

namespace nereid {
namespace {

// Standard error, where a progress bar may stand in the line.
class StderrSink : public spdlog::sinks::stderr_sink_mt {
 public:
  void log(const spdlog::details::log_msg& message) override {
    if (const std::string_view eraser = progress_eraser(); !eraser.empty())
      std::fwrite(eraser.data(), 1, eraser.size(), stderr);
    spdlog::sinks::stderr_sink_mt::log(message);
  }
};

// Marks a message of log_lines(): it takes the place of the function's name, since a message may
// pass from one shared library's copy of this file to another's.
constexpr char kLines[] = "lines";

bool has_lines(const spdlog::details::log_msg& message) {
  return message.source.funcname != nullptr && std::string_view(message.source.funcname) == kLines;
}

void append(spdlog::memory_buf_t& to, std::string_view text) {
  to.append(text.data(), text.data() + text.size());
}

// Appends `text` with control characters escaped and a backslash before each character of `extra`.
void append_escaped(spdlog::memory_buf_t& to, std::string_view text, std::string_view extra,
                    bool keeps_lines) {
  constexpr std::string_view kCodes = "\n\r\t\b\f", kLetters = "nrtbf";
  for (const char c : text) {
    const size_t code = kCodes.find(c);
    if (c == '\n' && keeps_lines) {
      to.push_back(c);
    } else if (code != kCodes.npos) {
      to.push_back('\\');
      to.push_back(kLetters[code]);
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      append(to, fmt::format("\\u{:04x}", static_cast<unsigned>(c)));
    } else {
      if (extra.find(c) != extra.npos) to.push_back('\\');
      to.push_back(c);
    }
  }
}

class TextFlag : public spdlog::custom_flag_formatter {
 public:
  explicit TextFlag(bool quotes) : quotes_(quotes) {}
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& to) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    const bool has_quotes = quotes_ && !has_lines(message);
    if (has_quotes) to.push_back('"');
    append_escaped(to, text, has_quotes ? "\"\\" : "", has_lines(message));
    if (has_quotes) to.push_back('"');
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<TextFlag>(quotes_);
  }

 private:
  const bool quotes_;
};

class LetterFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& to) override {
    to.push_back(message.level >= spdlog::level::err    ? 'E'
                 : message.level == spdlog::level::warn ? 'W'
                                                        : 'I');
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<LetterFlag>();
  }
};

}  // namespace

std::unique_ptr<spdlog::formatter> log_formatter(const std::string& pattern,
                                                 spdlog::pattern_time_type time) {
  auto out = std::make_unique<spdlog::pattern_formatter>(time);
  out->add_flag<TextFlag>('*', false).add_flag<TextFlag>('&', true).add_flag<LetterFlag>('~');
  out->set_pattern(pattern);
  return out;
}

void log_lines(std::string_view text, std::source_location place) {
  spdlog::log({place.file_name(), static_cast<int>(place.line()), kLines}, spdlog::level::info,
              "{}", text);
}

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
  auto logger = std::make_shared<spdlog::logger>("nereid", std::make_shared<StderrSink>());
  logger->set_formatter(
      log_formatter("%L %Y-%m-%d %H:%M:%S.%e %*", spdlog::pattern_time_type::local));
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace nereid
