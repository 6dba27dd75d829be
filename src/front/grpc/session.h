// The server side of one HTTP/2 connection with gRPC, in memory: bytes in, bytes out, and time as
// an argument. Framing, HPACK and flow control are nghttp2's. It enforces limits on all memory that
// a client can make grow.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "front/grpc/call.h"
#include "front/grpc/options.h"
#include "front/http/listen.h"
#include "front/http/workers.h"
#include "front/protection/api_keys.h"
#include "front/protection/byte_budget.h"

struct nghttp2_session;

namespace nereid::front {

class GrpcStream;
class TlsContext;

// State shared by the connections of a port.
struct GrpcShared {
  GrpcOptions options;
  MethodTable methods;
  std::shared_ptr<GrpcStats> stats = std::make_shared<GrpcStats>();
  std::shared_ptr<ByteBudget> budget = std::make_shared<ByteBudget>();
  std::shared_ptr<TlsContext> tls;    // null: plain text
  std::atomic<bool> stopping{false};  // new rpcs are refused
  // For large messages; null: they are decompressed and parsed on the event loop.
  std::unique_ptr<Workers> workers;
};

class Session {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `on_output` is called when there may be output, from any call into the session or its calls; it
  // must not call back.
  Session(std::shared_ptr<const GrpcShared> shared, std::shared_ptr<Mailbox> mailbox, Time now,
          std::function<void()> on_output);
  ~Session();  // cancels running rpcs
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void set_peer(const Peer& peer) { peer_ = peer; }

  // Processes bytes from the client.
  void receive(std::string_view bytes, Time now);
  // Appends output until `out` has about `limit` bytes or nothing is left.
  void fill(std::string& out, size_t limit);
  // True when the connection is to be closed after all output is sent.
  bool is_over() const;
  // Checks deadlines, keepalive and age. To be called about every 100 ms.
  void tick(Time now);
  // Ends running rpcs with `status`.
  void end_calls(const Status& status);
  // Refuses further rpcs; running ones may finish. When the server stops, idle streams end.
  void drain();

 private:
  friend class GrpcStream;
  friend struct SessionCallbacks;

  GrpcStream* open_stream(int32_t id);
  void start_call(GrpcStream& stream, bool end_stream);
  Status check_call(GrpcStream& stream) const;
  Status check_caller(const Method& method, GrpcStream& stream) const;
  static Status take_permit(const ApiKeys::Caller& caller, const Method& method,
                            GrpcStream& stream);
  void close_stream(GrpcStream& stream, uint32_t error_code);
  void on_ping();
  void on_frame_sent(int32_t stream_id, int type, bool end_stream);
  void check_keepalive(Time now);
  void check_streams(Time now);
  // Counts messages of a turn of the event loop: beyond a limit their streams
  // continue in a later turn.
  void count_work(size_t message_bytes);
  bool turn_is_over() const;
  void go_on_later(std::weak_ptr<GrpcStream> stream);
  void go_on_with_resting();
  void stop_streams();
  void fail(const char* why);

  const std::shared_ptr<const GrpcShared> shared_;
  const std::shared_ptr<Mailbox> mailbox_;
  const std::function<void()> on_output_;
  nghttp2_session* h2_ = nullptr;
  std::unordered_map<int32_t, std::shared_ptr<GrpcStream>> streams_;
  std::string* out_ = nullptr;  // set during fill()
  size_t unread_bytes_ = 0;     // queued in all streams
  bool dead_ = false;           // further input is dropped
  bool got_frame_ = false;
  Peer peer_;

  // For work in the mailbox.
  const std::shared_ptr<Session*> self_ = std::make_shared<Session*>(this);
  size_t work_ = 0;  // work of this turn
  std::deque<std::weak_ptr<GrpcStream>> resting_;

  Time now_, created_, last_receive_, next_deadline_, next_scan_;
  Time age_limit_, age_grace_limit_;
  enum class Drain { kNo, kNoticed, kDone } drain_ = Drain::kNo;
  Time drain_began_;

  bool ping_pending_ = false;
  Time ping_sent_;
  int pings_without_data_ = 0;
  Time last_ping_received_;
  int ping_strikes_ = 0;
};

}  // namespace nereid::front
