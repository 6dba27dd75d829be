// Options of a gRPC port, named after the --grpc-* flags of the stock server.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "front/http/tls_options.h"
#include "front/protection/admin.h"

namespace nereid::front {

class ApiKeys;
class ByteBudget;
class Extensions;
class Tracer;

// A group of rpcs for callers with a secret: metadata "triton-grpc-protocol-<key>" must be `value`.
struct GrpcRestriction {
  std::vector<std::string> protocols;  // names in kApiNames
  std::string key;
  std::string value;
};

struct GrpcOptions {
  using Milliseconds = std::chrono::milliseconds;

  std::string host = "0.0.0.0";
  int port = 8001;          // 0: any free one
  bool reuse_port = false;  // other processes may listen on the same port
  int threads = 2;          // event loops, each on a thread of its own; 1 to 128
  size_t max_connections = 16384;
  size_t max_streams = 2048;                     // rpcs at once on one connection
  size_t max_message_bytes = size_t{256} << 20;  // of a request, also when decompressed
  std::shared_ptr<ByteBudget> budget;            // shared with HTTP; null: own
  // Sent answers of a stream that the client has not read.
  size_t max_unread_bytes = size_t{64} << 20;
  std::string header_forward_pattern;               // metadata forwarded as request parameters
  std::string response_compression_level = "none";  // none, low, medium, high
  Milliseconds keepalive_time{7200000};             // silence before the server pings
  Milliseconds keepalive_timeout{20000};            // for the pong
  bool keepalive_permit_without_calls = false;      // pings both ways without a running rpc
  int max_pings_without_data = 2;                   // pings that the server sends; 0: any number
  Milliseconds min_recv_ping_interval_without_data{300000};  // least interval of a client's pings
  int max_ping_strikes = 2;                  // violations before the connection is closed; 0: never
  Milliseconds max_connection_age{0};        // 0: no limit
  Milliseconds max_connection_age_grace{0};  // after the age, for running rpcs; 0: no limit
  Milliseconds handshake_timeout{10000};     // until the client's first complete frame
  Milliseconds message_timeout{30000};       // for a message to arrive, plus 1 s per 64 KiB
  Milliseconds write_timeout{30000};         // for a client that does not read
  std::vector<GrpcRestriction> restrictions;
  bool allow_shared_memory = true;  // clients may register regions of shared memory
  // ModelInfer also accepts decoupled models, for requests with one response.
  bool infers_decoupled = false;
  TlsOptions tls{.flags = "grpc"};
  // Keys for all rpcs but liveness and readiness, as metadata "authorization: Bearer KEY".
  // Null: none needed.
  std::shared_ptr<ApiKeys> api_keys;
  AdminRules admin;

  std::shared_ptr<Extensions> extensions;  // shared with HTTP; null: own
  std::shared_ptr<Tracer> tracer;          // shared with HTTP; null: own, off
};

}  // namespace nereid::front
