// The Triton core and the front ends of one process, started together and stopped in order.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/process/stop_server.h"
#include "front/grpc/server.h"
#include "front/http/api_keys.h"
#include "front/http/byte_budget.h"
#include "front/server.h"

struct TRITONSERVER_Server;

namespace nereid::cli {

// Opens and closes a port, so that a start that would end at it does not load models first; -1: no
// port. The error names the flags.
Status check_port(const char* port_flag, const char* host_flag, const std::string& host, int port);

// Event loops of a port unless a flag says how many: one for each core, 2 to 8. More than cores
// would take turns by the kernel's time slices, and some connections would wait for milliseconds.
int default_event_loops();

struct ServerProcessOptions {
  std::filesystem::path repository;
  std::filesystem::path backend_dir;
  std::chrono::seconds exit_timeout{30};
  size_t client_memory_bytes = front::kDefaultBudgetBytes;  // requests and replies, all ports
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> admin_keys;
  bool allow_client_shm = false;
  // Nothing listens to the network and clients name no memory unless the options say so.
  front::HttpOptions http{.host = "127.0.0.1", .threads = default_event_loops()};
  front::GrpcOptions grpc{.port = -1, .threads = default_event_loops()};  // -1: no gRPC
};

class ServerProcess {
 public:
  // Loads every model of the repository, then listens. Errors carry the core's message.
  static StatusOr<std::unique_ptr<ServerProcess>> start(const ServerProcessOptions& options);
  ~ServerProcess();

  int http_port() const;
  int metrics_port() const;
  int grpc_port() const;  // -1 when off

  // Ready turns false, no new connections; see stop_server.h for the rest.
  void stop(const StopDeadline& deadline);

 private:
  ServerProcess() = default;
  TRITONSERVER_Server* server_ = nullptr;
  std::unique_ptr<front::HttpServer> http_;
  std::unique_ptr<front::GrpcServer> grpc_;  // null when off
};

// Null when there are none.
StatusOr<std::shared_ptr<front::ApiKeys>> make_api_keys(const std::vector<std::string>& keys,
                                                        const std::string& file,
                                                        const std::vector<std::string>& admin_keys);

// <dir of this executable>/../backends.
std::filesystem::path default_backend_dir();

}  // namespace nereid::cli
