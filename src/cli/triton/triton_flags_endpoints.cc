// Flags of the HTTP and gRPC ports.
#include "cli/flags/access_flags.h"
#include "cli/flags/flag_values.h"
#include "cli/triton/triton_flags.h"

namespace nereid::cli {
namespace {

using config::Action;
using config::field;
using config::Option;
using config::Options;
using config::Range;

constexpr const char* kEndpointGroup = "Endpoints";

Option milliseconds(const char* name, const char* help, std::chrono::milliseconds& to,
                    double low = 0, const char* fallback = "") {
  const auto act = [&to, low](const Option&, const std::string& v) -> Status {
    ASSIGN_OR_RETURN(const int64_t value, value_of<int64_t>(v, {low, kMaxInt}));
    to = std::chrono::milliseconds(value);
    return ok();
  };
  return row(name, "MS", help, act, {}, fallback);
}

// A pool of the stock server's request states, which does not exist here.
Option pool(TritonOptions& o, const char* name, const char* help, const char* why) {
  const auto act = [&o, why](const Option& flag, const std::string& v) -> Status {
    RETURN_IF_ERROR(value_of<int64_t>(v, {1, kMaxInt}).status());
    o.warnings.push_back(fmt::format("{}={}: no effect, {}", flag.flag, v, why));
    return ok();
  };
  return row(name, "N", help, act);
}

// Appends to `list`.
Action add_key(std::vector<std::string>& list) {
  return [&list](const Option&, const std::string& v) -> Status {
    if (v.empty()) return invalid_argument("a key must not be empty");
    list.push_back(v);
    return ok();
  };
}

void add_http_flags(Options& flags, TritonOptions& o) {
  add_group(
      flags, kEndpointGroup,
      {row("--allow-http", "BOOL", "open the HTTP port", field(o.allow_http)),
       row("--http-address", "ADDRESS", "address that the HTTP port listens on",
           field(o.http.host)),
       row("--http-port", "PORT", "HTTP port; 0 = any free one", field(o.http.http_port), kPorts),
       row("--reuse-http-port", "BOOL", "let several servers share the HTTP port",
           field(o.http.reuse_port)),
       row("--http-thread-count", "N", "HTTP event loops", field(o.http.threads), {1, 1024},
           "one for each core, 2 to 8"),
       row("--http-header-forward-pattern", "REGEX",
           "headers with a match in their names become request parameters",
           field(o.http.header_forward_pattern)),
       row("--http-max-input-size", "BYTES", "largest request body", field(o.http.max_body_bytes),
           {1, int64_t{1} << 40}),
       row("--api-key", "KEY",
           "key that HTTP and gRPC requests must have (Authorization: Bearer KEY); may be repeated",
           add_key(o.api_keys)),
       row("--api-key-file", "FILE",
           "file with a key, or sha256:<hex> of one, on each line, followed by its limits; read "
           "again on change",
           field(o.api_key_file)),
       row("--admin-key", "KEY",
           "key of an administrator, which allows to load and unload models and to change log and "
           "trace settings; may be repeated",
           add_key(o.admin_keys)),
       row("--allow-code-upload", "BOOL", "accept shared objects in load requests",
           field(o.allow_code_upload)),
       row("--client-memory-bytes", "BYTES",
           "most bytes of requests and replies in memory, HTTP and gRPC together",
           field(o.client_memory_bytes), {1 << 20, int64_t{1} << 50}),
       row("--http-restricted-api", "API,..:K=V",
           "requests to these APIs need header K with value V",
           [&o](const Option&, const std::string& v) { return restrict_http(o.http, v); }),
       row("--http-cors-origin", "ORIGIN",
           "origin of web pages that may use the HTTP port, such as https://example.com; * = any; "
           "may be repeated",
           [&o](const Option&, const std::string& v) { return add_cors_origin(o.http, v); }),
       row("--allowed-host", "HOST",
           "accepted value of the Host header; on a loopback address beside its own names; * = "
           "any; may be repeated",
           [&o](const Option&, const std::string& v) { return add_allowed_host(o.http, v); })});
}

// `http`: the names of HTTP's flags, else of gRPC's.
void add_tls_flags(Options& flags, front::TlsOptions& tls, bool http) {
  const auto name = [http](const char* of_http, const char* of_grpc) {
    return http ? of_http : of_grpc;
  };
  add_group(
      flags, kEndpointGroup,
      {row(name("--http-use-ssl", "--grpc-use-ssl"), "BOOL",
           "use TLS with the server's certificate", field(tls.enabled)),
       row(name("--http-use-ssl-mutual", "--grpc-use-ssl-mutual"), "BOOL",
           "use TLS with certificates of both sides", field(tls.is_mutual)),
       row(name("--http-server-cert", "--grpc-server-cert"), "FILE",
           "PEM file: the server's certificate chain; read again on change, like the others",
           field(tls.server_cert)),
       row(name("--http-server-key", "--grpc-server-key"), "FILE",
           "PEM file: the certificate's private key", field(tls.server_key)),
       row(name("--http-root-cert", "--grpc-root-cert"), "FILE",
           "PEM file: the certificate that signs clients' certificates", field(tls.root_cert))});
}

void add_grpc_flags(Options& flags, TritonOptions& o) {
  add_group(flags, kEndpointGroup,
            {row("--allow-grpc", "BOOL", "open the gRPC port", field(o.allow_grpc)),
             row("--grpc-address", "ADDRESS", "address that the gRPC port listens on",
                 field(o.grpc.host)),
             row("--grpc-port", "PORT", "gRPC port; 0 = any free one", field(o.grpc.port), kPorts),
             row("--reuse-grpc-port", "BOOL", "let several servers share the gRPC port",
                 field(o.grpc.reuse_port)),
             row("--grpc-header-forward-pattern", "REGEX",
                 "metadata with a match in its name becomes request parameters",
                 field(o.grpc.header_forward_pattern)),
             row("--grpc-infer-thread-count", "N", "gRPC event loops, 2 to 128",
                 field(o.grpc.threads), {2, 128}, "one for each core, 2 to 8"),
             pool(o, "--grpc-infer-allocation-pool-size",
                  "no effect here: memory follows the requests", "memory follows the requests"),
             pool(o, "--grpc-max-response-pool-size",
                  "no effect here: unread answers are bounded by bytes",
                  "a stream's unread answers are bounded by their bytes"),
             row("--grpc-max-message-bytes", "BYTES", "largest request message in bytes",
                 field(o.grpc.max_message_bytes), {1, kMaxInt})});
}

void add_grpc_connection_flags(Options& flags, TritonOptions& o) {
  front::GrpcOptions& grpc = o.grpc;
  Option compression = row("--grpc-infer-response-compression-level", "LEVEL",
                           "compression of responses: none, low, medium or high",
                           field(grpc.response_compression_level));
  compression.words = "none|low|medium|high";
  add_group(
      flags, kEndpointGroup,
      {compression,
       milliseconds("--grpc-keepalive-time", "silence before the server sends a ping",
                    grpc.keepalive_time, 1, "7200000"),
       milliseconds("--grpc-keepalive-timeout",
                    "time for the answer to a ping, after which the connection ends",
                    grpc.keepalive_timeout, 1, "20000"),
       row("--grpc-keepalive-permit-without-calls", "BOOL",
           "allow pings on connections without a running call",
           field(grpc.keepalive_permit_without_calls)),
       row("--grpc-http2-max-pings-without-data", "N",
           "pings that the server sends without data between; 0 = any number",
           field(grpc.max_pings_without_data), {0, kMaxInt}),
       milliseconds("--grpc-http2-min-recv-ping-interval-without-data",
                    "least interval of a client's pings without data between",
                    grpc.min_recv_ping_interval_without_data, 0, "300000"),
       row("--grpc-http2-max-ping-strikes", "N",
           "pings of a client below that interval before the connection ends; 0 = any number",
           field(grpc.max_ping_strikes), {0, kMaxInt}),
       milliseconds("--grpc-max-connection-age", "age at which a connection gets no further calls",
                    grpc.max_connection_age, 0, "no limit"),
       milliseconds("--grpc-max-connection-age-grace",
                    "time for running calls after --grpc-max-connection-age",
                    grpc.max_connection_age_grace, 0, "no limit"),
       row("--grpc-restricted-protocol", "API,..:K=V",
           "rpcs of these protocols need metadata triton-grpc-protocol-K with value V",
           [&grpc](const Option&, const std::string& v) { return restrict_grpc(grpc, v); })});
}

// Flags of endpoints that cannot be switched on: checked, without effect.
void add_cloud_flags(Options& flags) {
  const Action refused = [](const Option& flag, const std::string& v) -> Status {
    ASSIGN_OR_RETURN(const bool on, value_of<bool>(v));
    return on ? unsupported("{}: this endpoint is not part of this server (allowed: false)",
                            flag.flag)
              : ok();
  };
  const Action port = [](const Option&, const std::string& v) {
    return value_of<int64_t>(v, kPorts).status();
  };
  const Action threads = [](const Option&, const std::string& v) {
    return value_of<int64_t>(v, {1, kMaxInt}).status();
  };
  const Action any = [](const Option&, const std::string&) { return ok(); };
  const Action ports = [](const Option&, const std::string& v) -> Status {
    ASSIGN_OR_RETURN(const auto range,
                     parse_pair(v, '-', "--sagemaker-safe-port-range", "<integer>-<integer>"));
    ASSIGN_OR_RETURN(const int low, value_of<int>(range.first, kPorts));
    return value_of<int>(range.second, {double(low), kPorts.high}).status();
  };
  constexpr const char *kSagemaker = "no effect without --allow-sagemaker",
                       *kVertex = "no effect without --allow-vertex-ai";
  add_group(flags, kEndpointGroup,
            {row("--allow-sagemaker", "BOOL", "not supported", refused, {}, "false"),
             row("--sagemaker-port", "PORT", kSagemaker, port),
             row("--sagemaker-safe-port-range", "N-M", kSagemaker, ports),
             row("--sagemaker-thread-count", "N", kSagemaker, threads),
             row("--allow-vertex-ai", "BOOL", "not supported", refused, {}, "false"),
             row("--vertex-ai-port", "PORT", kVertex, port),
             row("--vertex-ai-thread-count", "N", kVertex, threads),
             row("--vertex-ai-default-model", "NAME", kVertex, any)});
}

}  // namespace

void add_endpoint_flags(Options& flags, TritonOptions& o) {
  add_http_flags(flags, o);
  add_tls_flags(flags, o.http.tls, /*http=*/true);
  add_grpc_flags(flags, o);
  add_tls_flags(flags, o.grpc.tls, /*http=*/false);
  add_grpc_connection_flags(flags, o);
  add_cloud_flags(flags);
}

}  // namespace nereid::cli
