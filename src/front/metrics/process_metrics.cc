// Reads /proc/self; see process_metrics.h.
#include "front/metrics/process_metrics.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "front/http/io_stall.h"

namespace nereid::front {
namespace {

void add(std::string& out, std::string_view name, std::string_view type, std::string_view help,
         double value) {
  out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n{0} {3:.15g}\n", name, type, help, value);
}

size_t num_open_descriptors() {
  size_t count = 0;
  if (DIR* dir = opendir("/proc/self/fd")) {
    while (readdir(dir) != nullptr) ++count;
    closedir(dir);
  }
  // ".", ".." and the directory's own descriptor.
  return count > 3 ? count - 3 : 0;
}

// Computed for the first page; exact to a second.
double start_time() {
  static const double started = [] {
    double uptime = 0;
    std::ifstream("/proc/uptime") >> uptime;
    std::ifstream stat("/proc/self/stat");
    std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
    // Field 22 is counted from behind the name, which may contain spaces and parentheses.
    size_t at = text.rfind(')');
    for (int field = 2; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
    const double ticks = at == std::string::npos ? 0 : std::strtod(text.c_str() + at, nullptr);
    const double age = uptime - ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
    return static_cast<double>(std::time(nullptr)) - age;
  }();
  return started;
}

}  // namespace

std::string process_metrics_text() {
  std::string out;
  long virtual_pages = 0;
  long resident_pages = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  add(out, "process_cpu_seconds_total", "counter", "User and system CPU time spent in seconds",
      seconds(usage.ru_utime) + seconds(usage.ru_stime));
  add(out, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes",
      static_cast<double>(resident_pages) * page);
  add(out, "process_peak_resident_memory_bytes", "gauge", "Largest resident memory size in bytes",
      static_cast<double>(usage.ru_maxrss) * 1024);
  add(out, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes",
      static_cast<double>(virtual_pages) * page);
  add(out, "process_open_fds", "gauge", "Open file descriptors",
      static_cast<double>(num_open_descriptors()));
  add(out, "process_start_time_seconds", "gauge", "Start time in seconds since the epoch",
      start_time());
  return out;
}

std::string http_metrics_text(const ListenerStats& stats) {
  std::string out;
  add(out, "nereid_http_connections", "gauge", "Open client connections",
      static_cast<double>(stats.connections_open.load()));
  add(out, "nereid_http_connections_total", "counter", "Accepted client connections",
      static_cast<double>(stats.connections_accepted.load()));
  add(out, "nereid_http_connections_refused_total", "counter",
      "Connections refused because of the connection limit",
      static_cast<double>(stats.connections_refused.load()));
  add(out, "nereid_http_requests_active", "gauge", "Requests being answered",
      static_cast<double>(stats.requests_active.load()));
  add(out, "nereid_http_disconnects_total", "counter",
      "Requests whose client left before the answer was complete",
      static_cast<double>(stats.disconnects.load()));
  out +=
      "# HELP nereid_http_responses_total Answers by class of status code\n"
      "# TYPE nereid_http_responses_total counter\n";
  for (size_t i = 2; i < stats.responses.size(); ++i) {
    out += fmt::format("nereid_http_responses_total{{code=\"{}xx\"}} {}\n", i,
                       stats.responses[i].load());
  }
  return out;
}

std::string front_metrics_text(const ByteBudget& budget) {
  std::string out;
  add(out, "nereid_client_bytes", "gauge", "Bytes of requests and replies held for clients",
      static_cast<double>(budget.used()));
  add(out, "nereid_client_bytes_limit", "gauge", "Beyond it large requests are refused",
      static_cast<double>(budget.limit()));
  return out + IoStalls::get().text();
}

std::string grpc_metrics_text(const GrpcStats& stats) {
  std::string out;
  add(out, "nereid_grpc_connections", "gauge", "Open client connections",
      static_cast<double>(stats.connections_open.load()));
  add(out, "nereid_grpc_connections_total", "counter", "Accepted client connections",
      static_cast<double>(stats.connections_accepted.load()));
  add(out, "nereid_grpc_connections_refused_total", "counter",
      "Connections refused because of the connection limit",
      static_cast<double>(stats.connections_refused.load()));
  add(out, "nereid_grpc_calls_active", "gauge", "Calls being answered",
      static_cast<double>(stats.calls_active.load()));
  add(out, "nereid_grpc_calls_cancelled_total", "counter",
      "Calls that the client or its deadline cancelled",
      static_cast<double>(stats.calls_cancelled.load()));
  add(out, "nereid_grpc_buffered_bytes", "gauge", "Bytes of requests that are not complete",
      static_cast<double>(stats.buffered_bytes.load()));
  return out;
}

}  // namespace nereid::front
