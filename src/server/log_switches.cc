#include "server/log_switches.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "base/log.h"

namespace nereid::server {
namespace {

// The stock server's line format, which scripts parse.
constexpr char kPattern[] = "%~%m%d %H:%M:%S.%f %P %s:%#] ";
constexpr char kIsoPattern[] = "%Y-%m-%dT%H:%M:%SZ %~ %P %s:%#] ";

std::array<std::atomic<bool>, 4> switches;  // indexed by TRITONSERVER_LogLevel
std::atomic<bool> terse{false};

size_t index_of(spdlog::level::level_enum level) {
  if (level >= spdlog::level::err) return TRITONSERVER_LOG_ERROR;
  if (level == spdlog::level::warn) return TRITONSERVER_LOG_WARN;
  return level == spdlog::level::info ? TRITONSERVER_LOG_INFO : TRITONSERVER_LOG_VERBOSE;
}

// A filter in front of the logger's own sinks.
class SwitchSink : public spdlog::sinks::sink {
 public:
  explicit SwitchSink(std::vector<spdlog::sink_ptr> sinks) : own_(std::move(sinks)), sinks_(own_) {}

  void log(const spdlog::details::log_msg& message) override {
    if (!switches[index_of(message.level)].load(std::memory_order_relaxed)) return;
    std::lock_guard lock(mutex_);
    for (auto& sink : sinks_) sink->log(message);
  }
  void flush() override {
    std::lock_guard lock(mutex_);
    for (auto& sink : sinks_) sink->flush();
  }
  void set_pattern(const std::string& pattern) override {
    std::lock_guard lock(mutex_);
    for (auto& sink : sinks_) sink->set_pattern(pattern);
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    std::lock_guard lock(mutex_);
    for (auto& sink : own_) sink->set_formatter(formatter->clone());
    for (auto& sink : sinks_) sink->set_formatter(formatter->clone());
  }
  // Sets the target; null: the logger's own sinks.
  void replace(spdlog::sink_ptr sink) {
    std::lock_guard lock(mutex_);
    sinks_ = sink == nullptr ? own_ : std::vector{std::move(sink)};
  }

 private:
  std::mutex mutex_;
  const std::vector<spdlog::sink_ptr> own_;
  std::vector<spdlog::sink_ptr> sinks_;
};

std::shared_ptr<SwitchSink> installed;

TRITONSERVER_LogFormat format = TRITONSERVER_LOG_DEFAULT;

std::unique_ptr<spdlog::formatter> formatter_of(TRITONSERVER_LogFormat of) {
  // The stock server's variable: with value 0 messages are written without quotes.
  const char* const escape = std::getenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES");
  const char* const text = escape != nullptr && std::string_view(escape) == "0" ? "%*" : "%&";
  return log_formatter(
      (of == TRITONSERVER_LOG_ISO8601 ? kIsoPattern : kPattern) + std::string(text),
      spdlog::pattern_time_type::utc);
}

void apply_level() {
  spdlog::set_level(switches[TRITONSERVER_LOG_VERBOSE] ? spdlog::level::debug
                                                       : spdlog::level::info);
}

}  // namespace

void install_log_switches() {
  static std::once_flag once;
  std::call_once(once, [] {
    const auto level = spdlog::get_level();
    switches[TRITONSERVER_LOG_INFO] = level <= spdlog::level::info;
    switches[TRITONSERVER_LOG_WARN] = level <= spdlog::level::warn;
    switches[TRITONSERVER_LOG_ERROR] = level <= spdlog::level::err;
    switches[TRITONSERVER_LOG_VERBOSE] = level <= spdlog::level::debug;
    auto& sinks = spdlog::default_logger()->sinks();
    installed = std::make_shared<SwitchSink>(sinks);
    sinks = {installed};
    spdlog::flush_on(spdlog::level::trace);  // readers of a log file get whole lines at once
    apply_level();
  });
}

void switch_log(TRITONSERVER_LogLevel level, bool on) {
  install_log_switches();
  switches[level] = on;
  apply_level();
}

void set_log_verbosity(int level) {
  terse = level < 0;
  switch_log(TRITONSERVER_LOG_VERBOSE, level > 0);
}

bool is_log_terse() { return terse; }

bool is_log_on(TRITONSERVER_LogLevel level) {
  install_log_switches();
  return switches[level];
}

void set_log_format(TRITONSERVER_LogFormat chosen) {
  install_log_switches();
  format = chosen;
  installed->set_formatter(formatter_of(format));
}

Status set_log_file(const std::string& path) {
  install_log_switches();
  try {
    if (path.empty()) {
      installed->replace(nullptr);
      return ok();
    }
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    sink->set_formatter(formatter_of(format));
    installed->replace(std::move(sink));
  } catch (const std::exception& e) {
    return unavailable("log file '{}': {}", path, e.what());
  }
  return ok();
}

}  // namespace nereid::server
