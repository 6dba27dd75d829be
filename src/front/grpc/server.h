// The gRPC port of one Triton core. Link with `tritonserver`: all calls use its C API.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "base/status.h"
#include "front/grpc/options.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

struct GrpcStats;

class GrpcServer {
 public:
  // `server` must outlive the result. InvalidArgument names the option; Unavailable:
  // the port is in use.
  static StatusOr<std::unique_ptr<GrpcServer>> start(TRITONSERVER_Server* server,
                                                     GrpcOptions options);
  ~GrpcServer();  // stop() without grace
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const;
  std::shared_ptr<const GrpcStats> stats() const;  // never null

  // Closes the port, refuses new rpcs and waits for running ones at most `grace`, or until `hurry`
  // becomes true; the rest end as Unavailable. Then the threads end. To be called before the core
  // stops; a second call has no effect.
  void stop(std::chrono::milliseconds grace, const std::atomic<bool>* hurry = nullptr);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nereid::front
