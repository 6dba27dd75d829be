// The command line of `tritonserver`, parsed to options of the core and of the endpoints.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "config/option.h"
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
  int32_t poll_seconds = 15;
  int32_t exit_seconds = 30;
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

  // `flag`: the option that makes the call.
  void set_core(const config::Option& flag, CoreSetting setting) {
    core.emplace_back(flag.flag, std::move(setting));
  }
};

// A flag, with dashes: its placeholder in --help ("" = it takes no value), a line of help, and
// where its value goes. `fallback`: the default in --help if it is not the present value.
config::Option row(const char* name, const char* value, const char* help, config::Field field,
                   config::Range range = {}, const char* fallback = "");

// Flags whose value is passed to the core, and kept in `copy`, too.
config::Option core_bool(TritonOptions& o, const char* name, const char* help, bool fallback,
                         TRITONSERVER_Error* (*set)(Core, bool), bool* copy = nullptr);
config::Option core_text(TritonOptions& o, const char* name, const char* value, const char* help,
                         TRITONSERVER_Error* (*set)(Core, const char*), const char* fallback = "",
                         std::string* copy = nullptr);

inline constexpr config::Range kPorts = {0, 65535};

// All flags, in groups. They fill `o`, which must outlive them.
config::Options triton_flags(TritonOptions& o);
void add_server_flags(config::Options& flags, TritonOptions& o);    // repository, core
void add_endpoint_flags(config::Options& flags, TritonOptions& o);  // HTTP, gRPC
void add_report_flags(config::Options& flags, TritonOptions& o);    // metrics, logging, tracing

// Long options with "=" or a blank, and unambiguous prefixes; a later one overrides where one value
// is kept. The error has the text that the stock server prints below its usage.
StatusOr<TritonOptions> parse_triton_flags(const std::vector<std::string>& words);

// A line on what other machines may do with the server; "" when they cannot reach it.
std::string what_is_open(const TritonOptions& options);

std::string triton_usage(const std::string& program);

}  // namespace nereid::cli
