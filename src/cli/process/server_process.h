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
#include "front/protection/api_keys.h"
#include "front/protection/byte_budget.h"
#include "front/server.h"

struct TRITONSERVER_Server;

namespace nereid::cli {

// Opens and closes a port before models are loaded, so that a start does not fail late; -1: no
// port. The error names the flags.
Status check_port(const char* port_flag, const char* host_flag, const std::string& host, int port);

// Default number of a port's event loops: one for each core, 2 to 8. More loops than cores would
// share time slices, and some connections would wait for milliseconds.
int default_event_loops();

struct ServerProcessOptions {
  std::filesystem::path repository;
  std::filesystem::path backend_dir;
  std::chrono::seconds exit_timeout{30};
  size_t client_memory_bytes = front::kDefaultBudgetBytes;  // for requests and replies of all ports
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> admin_keys;
  bool allow_client_shm = false;
  // By default only local clients can connect, and clients cannot register shared memory.
  front::HttpOptions http{.host = "127.0.0.1", .threads = default_event_loops()};
  front::GrpcOptions grpc{.port = -1, .threads = default_event_loops()};  // -1: no gRPC
};

class ServerProcess {
 public:
  // Loads every model of the repository, then opens the ports. Errors have the core's message.
  static StatusOr<std::unique_ptr<ServerProcess>> start(const ServerProcessOptions& options);
  ~ServerProcess();

  int http_port() const;
  int metrics_port() const;
  int grpc_port() const;  // -1 when off

  // Whether the encoder of the repository's model takes sound.
  bool takes_sound(const std::string& model) const;

  // Sets readiness to false and refuses new connections; see stop_server.h for the rest.
  void stop(const StopDeadline& deadline);

 private:
  ServerProcess() = default;
  TRITONSERVER_Server* server_ = nullptr;
  std::unique_ptr<front::HttpServer> http_;
  std::unique_ptr<front::GrpcServer> grpc_;  // null when off
};

// The keys; null without any.
StatusOr<std::shared_ptr<front::ApiKeys>> make_api_keys(const std::vector<std::string>& keys,
                                                        const std::string& file,
                                                        const std::vector<std::string>& admin_keys);

// <dir of this executable>/../backends.
std::filesystem::path default_backend_dir();

}  // namespace nereid::cli
