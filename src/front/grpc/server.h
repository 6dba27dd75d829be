// The gRPC port of one Triton core. Link with `tritonserver`; everything goes through its C API.
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
  // `server` must outlive the result. InvalidArgument names the option; Unavailable: port in use.
  static StatusOr<std::unique_ptr<GrpcServer>> start(TRITONSERVER_Server* server,
                                                     GrpcOptions options);
  ~GrpcServer();  // stop() without grace
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const;
  std::shared_ptr<const GrpcStats> stats() const;  // never null

  // Closes the port, refuses new rpcs and lets running ones finish for at most `grace`, or until
  // `hurry` turns true. The others end as Unavailable; then the threads end. Call it before
  // stopping the core; a second call does nothing.
  void stop(std::chrono::milliseconds grace, const std::atomic<bool>* hurry = nullptr);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nereid::front
