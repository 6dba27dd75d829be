// The command line of `tritonserver`, parsed to options of the core and of the endpoints.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "front/grpc/options.h"
#include "front/kserve/extensions.h"
#include "front/protection/byte_budget.h"
#include "front/server.h"

struct TRITONSERVER_Error;
struct TRITONSERVER_ServerOptions;

namespace nereid::cli {

using Core = TRITONSERVER_ServerOptions*;

// Names of the flags for address and port, for errors.
struct PortFlags {
  const char *http = "--http-port", *http_host = "--http-address", *kserve = "--kserve-http-port",
             *grpc = "--grpc-port", *grpc_host = "--grpc-address";
};

struct TritonOptions {
  // Calls on the core's options in the order of the command line, each with its flag.
  using CoreSetting = std::function<TRITONSERVER_Error*(Core)>;
  std::vector<std::pair<std::string, CoreSetting>> core;

  std::vector<std::string> repositories;
  std::string control_mode = "none";
  std::vector<std::string> load_models;
  std::chrono::seconds poll_interval{15};
  std::chrono::seconds exit_timeout{30};
  std::string cache_name;  // of --cache-config
  std::vector<std::pair<std::string, std::string>> cache_settings;
  bool has_old_cache_size = false;      // --response-cache-byte-size
  bool uses_config_as_written = false;  // --disable-auto-complete-config
  // The deprecated flag's value; uses_config_as_written overrides it.
  std::optional<bool> strict_model_config;
  bool allow_http = true, allow_grpc = true, allow_metrics = true;
  size_t client_memory_bytes = front::kDefaultBudgetBytes;
  bool allow_code_upload = false;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> admin_keys;
  bool has_metrics_address = false;
  front::LogStart log;  // also in `core`
  front::HttpOptions http;
  int kserve_http_port = -1;  // a second HTTP port, with KServe's routes; 0: any free one; -1: none
  front::GrpcOptions grpc;
  PortFlags port_flags;
  std::vector<std::string> trace;  // of --trace-config, as written
  // Entries of the deprecated trace flags, which `trace` overrides.
  std::vector<std::string> deprecated_trace;
  bool wants_help = false;
  std::vector<std::string> warnings;  // for deprecated flags and flags without effect here

  void set_core(std::string flag, CoreSetting setting) {
    core.emplace_back(std::move(flag), std::move(setting));
  }
  // InvalidArgument: `value` is no bool.
  Status set_core_bool(const char* flag, const std::string& value,
                       TRITONSERVER_Error* (*set)(Core, bool));
};

// One flag: its value's placeholder ("" = none), a line of help, and its effect. For a deprecated
// flag `help` is its replacement.
struct TritonFlag {
  const char* name;
  const char* value;
  const char* help;
  Status (*set)(TritonOptions& options, const std::string& value);
  bool is_deprecated = false;
};

// Every flag, in the groups of the usage text.
std::vector<TritonFlag> server_flags();    // repository, core
std::vector<TritonFlag> endpoint_flags();  // HTTP, gRPC
std::vector<TritonFlag> report_flags();    // metrics, logging, tracing
std::vector<TritonFlag> triton_flags();    // all of them

// Long options with "=" or a blank, and unambiguous prefixes; a later one overrides where one value
// is kept. The error has the text that the stock server prints below its usage.
StatusOr<TritonOptions> parse_triton_flags(int argc, char** argv);

// A line on what other machines may do with the server; "" when they cannot reach it.
std::string what_is_open(const TritonOptions& options);

std::string triton_usage(const std::string& program);

}  // namespace nereid::cli
