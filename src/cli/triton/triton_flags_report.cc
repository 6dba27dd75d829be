// Flags of metrics, logging and tracing.
#include "cli/flags/flag_values.h"
#include "cli/triton/triton_flags.h"
#include "triton/core/tritonserver.h"

namespace nereid::cli {
namespace {

Status set_metrics_config(TritonOptions& o, const std::string& v) {
  ASSIGN_OR_RETURN(const auto pair, parse_pair(v, '=', "--metrics-config", "<setting>=<value>"));
  o.set_core("--metrics-config", [pair](Core core) {
    return TRITONSERVER_ServerOptionsSetMetricsConfig(core, "", pair.first.c_str(),
                                                      pair.second.c_str());
  });
  return ok();
}

Status set_log_verbose(TritonOptions& o, const std::string& v) {
  int64_t level = 0;
  if (const auto on = parse_bool(v); on.ok()) {
    level = *on ? 1 : 0;
  } else {
    ASSIGN_OR_RETURN(level, parse_integer(v, 0, kMaxInt));
  }
  o.log.verbose_level = static_cast<int>(level);
  o.set_core("--log-verbose", [level](Core core) {
    return TRITONSERVER_ServerOptionsSetLogVerbose(core, static_cast<int>(level));
  });
  return ok();
}

Status set_log_format(TritonOptions& o, const std::string& v) {
  if (v != "default" && v != "ISO8601") {
    return invalid_argument("invalid argument for --log-format: {} (allowed: default, ISO8601)", v);
  }
  o.log.format = v;
  const auto format = v == "default" ? TRITONSERVER_LOG_DEFAULT : TRITONSERVER_LOG_ISO8601;
  o.set_core("--log-format",
             [format](Core core) { return TRITONSERVER_ServerOptionsSetLogFormat(core, format); });
  return ok();
}

Status set_metrics_interval(TritonOptions& o, const std::string& v) {
  ASSIGN_OR_RETURN(const double interval, parse_number(v));
  if (interval < 1 || interval > 1e12) {
    return invalid_argument("Invalid option value. Got {} (allowed: 1 to 1e12)", v);
  }
  o.set_core("--metrics-interval-ms", [interval](Core core) {
    return TRITONSERVER_ServerOptionsSetMetricsInterval(core, static_cast<uint64_t>(interval));
  });
  return ok();
}

Status deprecated_trace(TritonOptions& o, std::string_view setting, const std::string& v) {
  o.deprecated_trace.push_back(std::string(setting) + v);
  return ok();
}

std::vector<TritonFlag> metrics_flags() {
  return {
      {"allow-metrics", "BOOL", "open the metrics port; default true",
       [](TritonOptions& o, const std::string& v) -> Status {
         ASSIGN_OR_RETURN(o.allow_metrics, parse_bool(v));
         return o.set_core_bool("--allow-metrics", v, TRITONSERVER_ServerOptionsSetMetrics);
       }},
      {"allow-gpu-metrics", "BOOL", "publish metrics of GPUs; default true",
       [](TritonOptions& o, const std::string& v) {
         return o.set_core_bool("--allow-gpu-metrics", v, TRITONSERVER_ServerOptionsSetGpuMetrics);
       }},
      {"allow-cpu-metrics", "BOOL", "publish metrics of CPUs; default true",
       [](TritonOptions& o, const std::string& v) {
         return o.set_core_bool("--allow-cpu-metrics", v, TRITONSERVER_ServerOptionsSetCpuMetrics);
       }},
      {"metrics-address", "ADDRESS",
       "address that the metrics port listens on; default: that of HTTP",
       [](TritonOptions& o, const std::string& v) {
         o.has_metrics_address = true;
         o.http.metrics_host = v;
         return ok();
       }},
      {"metrics-port", "PORT", "metrics port; default 8002; 0 = any free one",
       [](TritonOptions& o, const std::string& v) -> Status {
         ASSIGN_OR_RETURN(const int64_t port, parse_integer(v, 0, 65535));
         o.http.metrics_port = static_cast<int>(port);
         return ok();
       }},
      {"metrics-use-ssl", "BOOL", "use TLS with the files of --http-use-ssl; default false",
       [](TritonOptions& o, const std::string& v) -> Status {
         ASSIGN_OR_RETURN(o.http.metrics_use_tls, parse_bool(v));
         return ok();
       }},
      {"metrics-interval-ms", "MS", "interval at which GPU and CPU metrics are read; default 2000",
       set_metrics_interval},
      {"metrics-config", "K=V",
       "kinds of latency metrics, such as summary_latencies=true; may be repeated",
       set_metrics_config},
  };
}

std::vector<TritonFlag> log_flags() {
  return {
      {"log-verbose", "N", "log verbose messages when above 0; default 0", set_log_verbose},
      {"log-info", "BOOL", "log informational messages; default true",
       [](TritonOptions& o, const std::string& v) {
         return o.set_core_bool("--log-info", v, TRITONSERVER_ServerOptionsSetLogInfo);
       }},
      {"log-warning", "BOOL", "log warnings; default true",
       [](TritonOptions& o, const std::string& v) {
         return o.set_core_bool("--log-warning", v, TRITONSERVER_ServerOptionsSetLogWarn);
       }},
      {"log-error", "BOOL", "log errors; default true",
       [](TritonOptions& o, const std::string& v) {
         return o.set_core_bool("--log-error", v, TRITONSERVER_ServerOptionsSetLogError);
       }},
      {"log-format", "FORMAT", "format of log lines: default or ISO8601", set_log_format},
      {"log-file", "FILE", "file that log lines are appended to; default: standard error",
       [](TritonOptions& o, const std::string& v) {
         o.log.file = v;
         o.set_core("--log-file", [v](Core core) {
           return TRITONSERVER_ServerOptionsSetLogFile(core, v.c_str());
         });
         return ok();
       }},
  };
}

std::vector<TritonFlag> trace_flags() {
  return {
      {"trace-config", "[MODE,]K=V",
       "request tracing, such as level=TIMESTAMPS, rate=100, mode=opentelemetry, triton,file=F, "
       "opentelemetry,url=U; may be repeated",
       [](TritonOptions& o, const std::string& v) -> Status {
         RETURN_IF_ERROR(parse_pair(v, '=', "--trace-config", "<mode>,<setting>=<value>").status());
         o.trace.push_back(v);
         return ok();
       }},
      {"trace-file", "FILE", "--trace-config triton,file=FILE",
       [](TritonOptions& o, const std::string& v) {
         return deprecated_trace(o, "triton,file=", v);
       },
       /*is_deprecated=*/true},
      {"trace-level", "LEVEL", "--trace-config level=LEVEL",
       [](TritonOptions& o, const std::string& v) { return deprecated_trace(o, "level=", v); },
       /*is_deprecated=*/true},
      {"trace-rate", "N", "--trace-config rate=N",
       [](TritonOptions& o, const std::string& v) { return deprecated_trace(o, "rate=", v); },
       /*is_deprecated=*/true},
      {"trace-count", "N", "--trace-config count=N",
       [](TritonOptions& o, const std::string& v) { return deprecated_trace(o, "count=", v); },
       /*is_deprecated=*/true},
      {"trace-log-frequency", "N", "--trace-config triton,log-frequency=N",
       [](TritonOptions& o, const std::string& v) {
         return deprecated_trace(o, "triton,log-frequency=", v);
       },
       /*is_deprecated=*/true},
  };
}

}  // namespace

std::vector<TritonFlag> report_flags() {
  auto flags = metrics_flags();
  for (const auto& more : {log_flags(), trace_flags()}) {
    flags.insert(flags.end(), more.begin(), more.end());
  }
  return flags;
}

}  // namespace nereid::cli
