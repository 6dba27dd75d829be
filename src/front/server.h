// The HTTP server of one Triton core: KServe and OpenAI routes on one port, metrics on another.
// Link with `tritonserver`: all calls use its C API.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "front/http/router.h"
#include "front/http/tls_options.h"
#include "front/openai/options.h"
#include "front/protection/admin.h"
#include "front/trace/tracer.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

class ApiKeys;
class ByteBudget;
class Extensions;
struct GrpcStats;

// A group of APIs for callers with a secret: header `key` must be `value`.
struct HttpRestriction {
  std::vector<std::string> apis;  // names in kApiNames; docs/security.md lists the routes of each
  std::string key, value;
};

struct HttpOptions {
  std::string host = "0.0.0.0";
  int http_port = 8000;      // 0: any free one; -1: no HTTP port
  bool reuse_port = false;   // other processes may listen on the HTTP port too
  std::string metrics_host;  // "": as host
  int metrics_port = 8002;   // 0: any free one; -1: no metrics port
  int threads = 2;
  size_t max_body_bytes = size_t{64} << 20;
  size_t max_connections = 16384;
  std::chrono::milliseconds idle_timeout{75000};    // kept connections between requests
  std::chrono::milliseconds header_timeout{10000};  // first byte to end of header
  std::chrono::milliseconds body_timeout{30000};    // plus 1 s per 64 KiB received
  std::chrono::milliseconds write_timeout{30000};   // for a client that does not read
  OpenAiOptions openai;
  bool allow_kserve = true;  // /v2 and all below
  // infer also accepts decoupled models, for requests with one response; the stock
  // server refuses them.
  bool infers_decoupled = false;
  // Request headers whose name contains a match of this regular expression (case is ignored) become
  // parameters of infer requests. "": none.
  std::string header_forward_pattern;
  std::shared_ptr<Extensions> extensions;  // shared with gRPC; null: own
  std::vector<HttpRestriction> restrictions;
  std::shared_ptr<const GrpcStats> grpc_stats;  // for the metrics page; null: no gRPC port
  bool allow_shared_memory = true;              // clients may register regions of shared memory
  // The tracer shared by all front ends of the server; null: one of its own, with tracing off.
  std::shared_ptr<Tracer> tracer;
  std::shared_ptr<ByteBudget> budget;  // shared with gRPC; null: own
  // Keys for all routes of the HTTP port but probes (Access::kAnybody), as "Authorization: Bearer
  // KEY" or "X-API-Key: KEY". Null: none needed.
  std::shared_ptr<ApiKeys> api_keys;
  AdminRules admin;
  std::vector<std::string> allowed_hosts;  // names of the server; see http/web_pages.h
  TlsOptions tls{.flags = "http"};         // of the HTTP port
  bool metrics_use_tls = false;            // the metrics port uses `tls`, too
  std::vector<std::string> cors_origins;   // web pages that may use the HTTP port; see http/cors.h
};

class HttpServer {
 public:
  // `server` must outlive the result. InvalidArgument: bad host or port; Unavailable: port in use.
  static StatusOr<std::unique_ptr<HttpServer>> start(TRITONSERVER_Server* server,
                                                     HttpOptions options);
  ~HttpServer();  // stop() without grace
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int http_port() const;     // -1 when off
  int metrics_port() const;  // -1 when off
  // Routes of the HTTP port.
  const std::vector<Router::Entry>& routes() const;

  // Closes the ports and waits for running answers at most `grace`, or until `hurry` becomes true;
  // the rest end with an error: an event of their stream, or 503. Then the threads end. The metrics
  // port stays open meanwhile. To be called before the core stops; a second call has no effect.
  void stop(std::chrono::milliseconds grace, const std::atomic<bool>* hurry = nullptr);

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nereid::front
