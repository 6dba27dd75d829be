// Flags of metrics, logging and tracing.
#include "cli/flags/flag_values.h"
#include "cli/triton/triton_flags.h"
#include "triton/core/tritonserver.h"

namespace nereid::cli {
namespace {

using config::Action;
using config::field;
using config::Option;
using config::Options;

constexpr const char* kReportGroup = "Metrics, logging, tracing";

Action set_metrics_config(TritonOptions& o) {
  return [&o](const Option& flag, const std::string& v) -> Status {
    ASSIGN_OR_RETURN(const auto pair, parse_pair(v, '=', "--metrics-config", "<setting>=<value>"));
    o.set_core(flag, [pair](Core core) {
      return TRITONSERVER_ServerOptionsSetMetricsConfig(core, "", pair.first.c_str(),
                                                        pair.second.c_str());
    });
    return ok();
  };
}

// A number, or a bool for 1 and 0.
Action set_log_verbose(TritonOptions& o) {
  return [&o](const Option& flag, const std::string& v) -> Status {
    if (const std::optional<bool> on = config::parse_bool(v)) {
      o.log.verbose_level = *on ? 1 : 0;
    } else {
      ASSIGN_OR_RETURN(o.log.verbose_level, value_of<int>(v, {0, kMaxInt}));
    }
    o.set_core(flag, [level = o.log.verbose_level](Core core) {
      return TRITONSERVER_ServerOptionsSetLogVerbose(core, level);
    });
    return ok();
  };
}

Action set_log_format(TritonOptions& o) {
  return [&o](const Option& flag, const std::string& v) -> Status {
    RETURN_IF_ERROR(parse_value(
        {.name = flag.name, .field = &o.log.format, .help = "", .words = "default|ISO8601"}, v));
    const auto format = v == "default" ? TRITONSERVER_LOG_DEFAULT : TRITONSERVER_LOG_ISO8601;
    o.set_core(
        flag, [format](Core core) { return TRITONSERVER_ServerOptionsSetLogFormat(core, format); });
    return ok();
  };
}

Action set_metrics_interval(TritonOptions& o) {
  return [&o](const Option& flag, const std::string& v) -> Status {
    ASSIGN_OR_RETURN(const double interval, value_of<double>(v, {1, 1e12}));
    o.set_core(flag, [interval](Core core) {
      return TRITONSERVER_ServerOptionsSetMetricsInterval(core, static_cast<uint64_t>(interval));
    });
    return ok();
  };
}

void add_metrics_flags(Options& flags, TritonOptions& o) {
  add_group(flags, kReportGroup,
            {
                core_bool(o, "--allow-metrics", "open the metrics port", true,
                          TRITONSERVER_ServerOptionsSetMetrics, &o.allow_metrics),
                core_bool(o, "--allow-gpu-metrics", "publish metrics of GPUs", true,
                          TRITONSERVER_ServerOptionsSetGpuMetrics),
                core_bool(o, "--allow-cpu-metrics", "publish metrics of CPUs", true,
                          TRITONSERVER_ServerOptionsSetCpuMetrics),
                row("--metrics-address", "ADDRESS", "address that the metrics port listens on",
                    field(o.http.metrics_host), {}, "that of HTTP"),
                row("--metrics-port", "PORT", "metrics port; 0 = any free one",
                    field(o.http.metrics_port), kPorts),
                row("--metrics-use-ssl", "BOOL", "use TLS with the files of --http-use-ssl",
                    field(o.http.metrics_use_tls)),
                row("--metrics-interval-ms", "MS", "interval at which GPU and CPU metrics are read",
                    set_metrics_interval(o), {}, "2000"),
                row("--metrics-config", "K=V",
                    "kinds of latency metrics, such as summary_latencies=true; may be repeated",
                    set_metrics_config(o)),
            });
}

void add_log_flags(Options& flags, TritonOptions& o) {
  add_group(
      flags, kReportGroup,
      {
          row("--log-verbose", "N", "log verbose messages when above 0", set_log_verbose(o), {},
              "0"),
          core_bool(o, "--log-info", "log informational messages", true,
                    TRITONSERVER_ServerOptionsSetLogInfo),
          core_bool(o, "--log-warning", "log warnings", true, TRITONSERVER_ServerOptionsSetLogWarn),
          core_bool(o, "--log-error", "log errors", true, TRITONSERVER_ServerOptionsSetLogError),
          row("--log-format", "FORMAT", "format of log lines: default or ISO8601",
              set_log_format(o)),
          core_text(o, "--log-file", "FILE", "file that log lines are appended to",
                    TRITONSERVER_ServerOptionsSetLogFile, "standard error", &o.log.file),
      });
}

// A flag with an entry of --trace-config in its place.
Option deprecated_trace(TritonOptions& o, const char* name, const char* value, const char* help,
                        std::string setting) {
  Option flag = row(name, value, help, [&o, setting](const Option&, const std::string& v) {
    o.deprecated_trace.push_back(setting + v);
    return ok();
  });
  flag.is_deprecated = true;
  return flag;
}

void add_trace_flags(Options& flags, TritonOptions& o) {
  add_group(
      flags, kReportGroup,
      {
          row("--trace-config", "[MODE,]K=V",
              "request tracing, such as level=TIMESTAMPS, rate=100, mode=opentelemetry, "
              "triton,file=F, "
              "opentelemetry,url=U; may be repeated",
              [&o](const Option&, const std::string& v) -> Status {
                o.trace.push_back(v);
                return parse_pair(v, '=', "--trace-config", "<mode>,<setting>=<value>").status();
              }),
          deprecated_trace(o, "--trace-file", "FILE", "--trace-config triton,file=FILE",
                           "triton,file="),
          deprecated_trace(o, "--trace-level", "LEVEL", "--trace-config level=LEVEL", "level="),
          deprecated_trace(o, "--trace-rate", "N", "--trace-config rate=N", "rate="),
          deprecated_trace(o, "--trace-count", "N", "--trace-config count=N", "count="),
          deprecated_trace(o, "--trace-log-frequency", "N", "--trace-config triton,log-frequency=N",
                           "triton,log-frequency="),
      });
}

}  // namespace

void add_report_flags(Options& flags, TritonOptions& o) {
  add_metrics_flags(flags, o);
  add_log_flags(flags, o);
  add_trace_flags(flags, o);
}

}  // namespace nereid::cli
