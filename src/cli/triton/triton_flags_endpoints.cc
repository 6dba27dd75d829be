// Flags of the HTTP and gRPC ports.
#include "cli/flags/access_flags.h"
#include "cli/flags/flag_values.h"
#include "cli/triton/triton_flags.h"

namespace nereid::cli {
namespace {

Status port(const std::string& v, int& to) {
  ASSIGN_OR_RETURN(const int64_t value, parse_integer(v, 0, 65535));
  to = static_cast<int>(value);
  return ok();
}

Status boolean(const std::string& v, bool& to) {
  ASSIGN_OR_RETURN(to, parse_bool(v));
  return ok();
}

Status milliseconds(const std::string& v, std::chrono::milliseconds& to, int64_t low = 0) {
  ASSIGN_OR_RETURN(const int64_t value, parse_integer(v, low, kMaxInt));
  to = std::chrono::milliseconds(value);
  return ok();
}

Status small_count(const std::string& v, int64_t low, int64_t high, int& to) {
  ASSIGN_OR_RETURN(const int64_t value, parse_integer(v, low, high));
  to = static_cast<int>(value);
  return ok();
}

Status set_compression(TritonOptions& o, const std::string& v) {
  for (const char* level : {"none", "low", "medium", "high"}) {
    if (v == level) {
      o.grpc.response_compression_level = v;
      return ok();
    }
  }
  return invalid_argument(
      "invalid argument for --grpc-infer-response-compression-level: {} (allowed: none, low, "
      "medium, high)",
      v);
}

// Notes a pool of the stock server's request states, which does not exist here.
Status note_pool(TritonOptions& o, const char* flag, const std::string& v, const char* why) {
  RETURN_IF_ERROR(parse_integer(v, 1, kMaxInt).status());
  o.warnings.push_back(fmt::format("{}={}: no effect, {}", flag, v, why));
  return ok();
}

Status refuse_when_on(const char* flag, const std::string& v) {
  ASSIGN_OR_RETURN(const bool on, parse_bool(v));
  return on ? unsupported("{}: this endpoint is not part of this server (allowed: false)", flag)
            : ok();
}

std::vector<TritonFlag> http_flags() {
  return {
      {"allow-http", "BOOL", "open the HTTP port; default true",
       [](TritonOptions& o, const std::string& v) { return boolean(v, o.allow_http); }},
      {"http-address", "ADDRESS", "address that the HTTP port listens on; default 0.0.0.0",
       [](TritonOptions& o, const std::string& v) {
         o.http.host = v;
         return ok();
       }},
      {"http-port", "PORT", "HTTP port; default 8000; 0 = any free one",
       [](TritonOptions& o, const std::string& v) { return port(v, o.http.http_port); }},
      {"reuse-http-port", "BOOL", "let several servers share the HTTP port; default false",
       [](TritonOptions& o, const std::string& v) { return boolean(v, o.http.reuse_port); }},
      {"http-thread-count", "N", "HTTP event loops; default one for each core, 2 to 8",
       [](TritonOptions& o, const std::string& v) {
         return small_count(v, 1, 1024, o.http.threads);
       }},
      {"http-header-forward-pattern", "REGEX",
       "headers with a match in their names become request parameters",
       [](TritonOptions& o, const std::string& v) {
         o.http.header_forward_pattern = v;
         return ok();
       }},
      {"http-max-input-size", "BYTES", "largest request body; default 67108864",
       [](TritonOptions& o, const std::string& v) -> Status {
         ASSIGN_OR_RETURN(const int64_t bytes, parse_integer(v, 1, int64_t{1} << 40));
         o.http.max_body_bytes = static_cast<size_t>(bytes);
         return ok();
       }},
      {"api-key", "KEY",
       "key that HTTP and gRPC requests must have (Authorization: Bearer KEY); may be repeated",
       [](TritonOptions& o, const std::string& v) -> Status {
         if (v.empty()) return invalid_argument("an API key must not be empty");
         o.api_keys.push_back(v);
         return ok();
       }},
      {"api-key-file", "FILE",
       "file with a key, or sha256:<hex> of one, on each line, followed by its limits; read again "
       "on change",
       [](TritonOptions& o, const std::string& v) {
         o.api_key_file = v;
         return ok();
       }},
      {"admin-key", "KEY",
       "key of an administrator, which allows to load and unload models and to change log and "
       "trace settings; may be repeated",
       [](TritonOptions& o, const std::string& v) -> Status {
         if (v.empty()) return invalid_argument("a key must not be empty");
         o.admin_keys.push_back(v);
         return ok();
       }},
      {"allow-code-upload", "BOOL", "accept shared objects in load requests; default false",
       [](TritonOptions& o, const std::string& v) { return boolean(v, o.allow_code_upload); }},
      {"client-memory-bytes", "BYTES",
       "most bytes of requests and replies in memory, HTTP and gRPC together; default 4294967296",
       [](TritonOptions& o, const std::string& v) -> Status {
         ASSIGN_OR_RETURN(const int64_t bytes, parse_integer(v, 1 << 20, int64_t{1} << 50));
         o.client_memory_bytes = static_cast<size_t>(bytes);
         return ok();
       }},
      {"http-restricted-api", "API,..:K=V", "requests to these APIs need header K with value V",
       [](TritonOptions& o, const std::string& v) { return restrict_http(o.http, v); }},
      {"http-cors-origin", "ORIGIN",
       "origin of web pages that may use the HTTP port, such as https://example.com; * = any; may "
       "be repeated",
       [](TritonOptions& o, const std::string& v) { return add_cors_origin(o.http, v); }},
      {"allowed-host", "HOST",
       "accepted value of the Host header; on a loopback address beside its own names; * = any; "
       "may be repeated",
       [](TritonOptions& o, const std::string& v) { return add_allowed_host(o.http, v); }},
  };
}

std::vector<TritonFlag> http_tls_flags() {
  return {
      {"http-use-ssl", "BOOL", "use TLS with the server's certificate; default false",
       [](TritonOptions& o, const std::string& v) { return boolean(v, o.http.tls.enabled); }},
      {"http-use-ssl-mutual", "BOOL", "use TLS with certificates of both sides; default false",
       [](TritonOptions& o, const std::string& v) { return boolean(v, o.http.tls.is_mutual); }},
      {"http-server-cert", "FILE",
       "PEM file: the server's certificate chain; read again on change, like the others",
       [](TritonOptions& o, const std::string& v) {
         o.http.tls.server_cert = v;
         return ok();
       }},
      {"http-server-key", "FILE", "PEM file: the certificate's private key",
       [](TritonOptions& o, const std::string& v) {
         o.http.tls.server_key = v;
         return ok();
       }},
      {"http-root-cert", "FILE", "PEM file: the certificate that signs clients' certificates",
       [](TritonOptions& o, const std::string& v) {
         o.http.tls.root_cert = v;
         return ok();
       }},
  };
}

std::vector<TritonFlag> grpc_flags() {
  return {
      {"allow-grpc", "BOOL", "open the gRPC port; default true",
       [](TritonOptions& o, const std::string& v) { return boolean(v, o.allow_grpc); }},
      {"grpc-address", "ADDRESS", "address that the gRPC port listens on; default 0.0.0.0",
       [](TritonOptions& o, const std::string& v) {
         o.grpc.host = v;
         return ok();
       }},
      {"grpc-port", "PORT", "gRPC port; default 8001; 0 = any free one",
       [](TritonOptions& o, const std::string& v) { return port(v, o.grpc.port); }},
      {"reuse-grpc-port", "BOOL", "let several servers share the gRPC port; default false",
       [](TritonOptions& o, const std::string& v) { return boolean(v, o.grpc.reuse_port); }},
      {"grpc-header-forward-pattern", "REGEX",
       "metadata with a match in its name becomes request parameters",
       [](TritonOptions& o, const std::string& v) {
         o.grpc.header_forward_pattern = v;
         return ok();
       }},
      {"grpc-infer-thread-count", "N",
       "gRPC event loops, 2 to 128; default one for each core, 2 to 8",
       [](TritonOptions& o, const std::string& v) {
         return small_count(v, 2, 128, o.grpc.threads);
       }},
      {"grpc-infer-allocation-pool-size", "N", "no effect here: memory follows the requests",
       [](TritonOptions& o, const std::string& v) {
         return note_pool(o, "--grpc-infer-allocation-pool-size", v, "memory follows the requests");
       }},
      {"grpc-max-response-pool-size", "N", "no effect here: unread answers are bounded by bytes",
       [](TritonOptions& o, const std::string& v) {
         return note_pool(o, "--grpc-max-response-pool-size", v,
                          "a stream's unread answers are bounded by their bytes");
       }},
      {"grpc-max-message-bytes", "BYTES", "largest request message in bytes; default 268435456",
       [](TritonOptions& o, const std::string& v) -> Status {
         ASSIGN_OR_RETURN(const int64_t bytes, parse_integer(v, 1, kMaxInt));
         o.grpc.max_message_bytes = static_cast<size_t>(bytes);
         return ok();
       }},
  };
}

std::vector<TritonFlag> grpc_tls_flags() {
  return {
      {"grpc-use-ssl", "BOOL", "use TLS with the server's certificate; default false",
       [](TritonOptions& o, const std::string& v) { return boolean(v, o.grpc.tls.enabled); }},
      {"grpc-use-ssl-mutual", "BOOL", "use TLS with certificates of both sides; default false",
       [](TritonOptions& o, const std::string& v) { return boolean(v, o.grpc.tls.is_mutual); }},
      {"grpc-server-cert", "FILE", "PEM file: the server's certificate chain",
       [](TritonOptions& o, const std::string& v) {
         o.grpc.tls.server_cert = v;
         return ok();
       }},
      {"grpc-server-key", "FILE", "PEM file: the certificate's private key",
       [](TritonOptions& o, const std::string& v) {
         o.grpc.tls.server_key = v;
         return ok();
       }},
      {"grpc-root-cert", "FILE", "PEM file: the certificate that signs clients' certificates",
       [](TritonOptions& o, const std::string& v) {
         o.grpc.tls.root_cert = v;
         return ok();
       }},
  };
}

std::vector<TritonFlag> grpc_connection_flags() {
  return {
      {"grpc-infer-response-compression-level", "LEVEL",
       "compression of responses: none (default), low, medium or high", set_compression},
      {"grpc-keepalive-time", "MS", "silence before the server sends a ping; default 7200000",
       [](TritonOptions& o, const std::string& v) {
         return milliseconds(v, o.grpc.keepalive_time, 1);
       }},
      {"grpc-keepalive-timeout", "MS",
       "time for the answer to a ping, after which the connection ends; default 20000",
       [](TritonOptions& o, const std::string& v) {
         return milliseconds(v, o.grpc.keepalive_timeout, 1);
       }},
      {"grpc-keepalive-permit-without-calls", "BOOL",
       "allow pings on connections without a running call; default false",
       [](TritonOptions& o, const std::string& v) {
         return boolean(v, o.grpc.keepalive_permit_without_calls);
       }},
      {"grpc-http2-max-pings-without-data", "N",
       "pings that the server sends without data between; default 2; 0 = any number",
       [](TritonOptions& o, const std::string& v) {
         return small_count(v, 0, kMaxInt, o.grpc.max_pings_without_data);
       }},
      {"grpc-http2-min-recv-ping-interval-without-data", "MS",
       "least interval of a client's pings without data between; default 300000",
       [](TritonOptions& o, const std::string& v) {
         return milliseconds(v, o.grpc.min_recv_ping_interval_without_data);
       }},
      {"grpc-http2-max-ping-strikes", "N",
       "pings of a client below that interval before the connection ends; default 2; 0 = any "
       "number",
       [](TritonOptions& o, const std::string& v) {
         return small_count(v, 0, kMaxInt, o.grpc.max_ping_strikes);
       }},
      {"grpc-max-connection-age", "MS",
       "age at which a connection gets no further calls; default: no limit",
       [](TritonOptions& o, const std::string& v) {
         return milliseconds(v, o.grpc.max_connection_age);
       }},
      {"grpc-max-connection-age-grace", "MS",
       "time for running calls after --grpc-max-connection-age; default: no limit",
       [](TritonOptions& o, const std::string& v) {
         return milliseconds(v, o.grpc.max_connection_age_grace);
       }},
      {"grpc-restricted-protocol", "API,..:K=V",
       "rpcs of these protocols need metadata triton-grpc-protocol-K with value V",
       [](TritonOptions& o, const std::string& v) { return restrict_grpc(o.grpc, v); }},
  };
}

// Flags of endpoints that cannot be switched on: checked, without effect.
std::vector<TritonFlag> cloud_flags() {
  constexpr auto any_port = [](TritonOptions&, const std::string& v) {
    return parse_integer(v, 0, 65535).status();
  };
  constexpr auto threads = [](TritonOptions&, const std::string& v) {
    return parse_integer(v, 1, kMaxInt).status();
  };
  return {
      {"allow-sagemaker", "BOOL", "not supported; default false",
       [](TritonOptions&, const std::string& v) { return refuse_when_on("--allow-sagemaker", v); }},
      {"sagemaker-port", "PORT", "no effect without --allow-sagemaker", any_port},
      {"sagemaker-safe-port-range", "N-M", "no effect without --allow-sagemaker",
       [](TritonOptions&, const std::string& v) -> Status {
         ASSIGN_OR_RETURN(const auto range,
                          parse_pair(v, '-', "--sagemaker-safe-port-range", "<integer>-<integer>"));
         ASSIGN_OR_RETURN(const int64_t low, parse_integer(range.first, 0, 65535));
         return parse_integer(range.second, low, 65535).status();
       }},
      {"sagemaker-thread-count", "N", "no effect without --allow-sagemaker", threads},
      {"allow-vertex-ai", "BOOL", "not supported; default false",
       [](TritonOptions&, const std::string& v) { return refuse_when_on("--allow-vertex-ai", v); }},
      {"vertex-ai-port", "PORT", "no effect without --allow-vertex-ai", any_port},
      {"vertex-ai-thread-count", "N", "no effect without --allow-vertex-ai", threads},
      {"vertex-ai-default-model", "NAME", "no effect without --allow-vertex-ai",
       [](TritonOptions&, const std::string&) { return ok(); }},
  };
}

}  // namespace

std::vector<TritonFlag> endpoint_flags() {
  auto flags = http_flags();
  for (const auto& more :
       {http_tls_flags(), grpc_flags(), grpc_tls_flags(), grpc_connection_flags(), cloud_flags()}) {
    flags.insert(flags.end(), more.begin(), more.end());
  }
  return flags;
}

}  // namespace nereid::cli
