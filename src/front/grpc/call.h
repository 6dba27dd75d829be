// One rpc for its handler, and the table of rpcs; independent of HTTP/2 and sockets.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/log_limit.h"
#include "base/status.h"
#include "front/grpc/wire.h"
#include "front/protection/budget_memory.h"
#include "front/protection/protection.h"

namespace nereid::front {

using Work = absl::AnyInvocable<void()>;

// A queue of work for the thread of a connection, in order. Any thread. Outlives
// connections and calls.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  virtual void post(Work work) = 0;
  // post(), but runs at once when called on that thread while the queue is empty.
  virtual void dispatch(Work work) { post(std::move(work)); }
};

// Counters of one port; any thread may read.
struct GrpcStats {
  std::atomic<uint64_t> connections_accepted{0};
  std::atomic<uint64_t> connections_refused{0};
  std::atomic<int64_t> connections_open{0};
  std::atomic<int64_t> calls_active{0};      // until the handler drops them
  std::atomic<uint64_t> calls_cancelled{0};  // by the client or its deadline
  std::atomic<size_t> buffered_bytes{0};     // of incomplete requests
};

// The connection's side of a call. All calls but post() on the connection's thread.
class CallStream {
 public:
  virtual ~CallStream() = default;
  virtual void send(std::string message) = 0;
  virtual void finish(const Status& status) = 0;
  virtual void pause(bool paused) = 0;
};

// Calls `body`; bad_alloc becomes ResourceExhausted, another exception Internal.
template <class Body>
Status without_exceptions(Body&& body) {
  try {
    body();
    return ok();
  } catch (const std::bad_alloc& e) {
    return resource_exhausted("{}", shortage(e));
  } catch (const std::exception& e) {
    static LogLimit log;
    log.error("while answering a gRPC request: {}", e.what());
    return internal_error("internal error: {}", e.what());
  }
}

using Metadata = std::vector<std::pair<std::string, std::string>>;

// One rpc, held by its handler. All calls but post() must be on the connection's thread: handlers
// run there, and post() moves work of other threads there. An answer is any number of send() and
// one finish(). A call dropped without finish() ends as Internal.
class Call {
 public:
  Call(std::weak_ptr<CallStream> stream, std::shared_ptr<Mailbox> mailbox,
       std::shared_ptr<GrpcStats> stats, Metadata metadata);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The client's metadata, without the protocol's own headers.
  const Metadata& metadata() const { return metadata_; }
  // The reason why the caller may not change settings of the server
  // (Access::kSettings); "": it may.
  std::string_view admin_refusal() const { return admin_refusal_; }
  void set_admin_refusal(std::string_view why) { admin_refusal_ = why; }
  // Whose it is: by its API key, else by its address.
  uint64_t tenant() const { return tenant_; }
  void set_tenant(uint64_t tenant) { tenant_ = tenant; }
  // The last value of that name; nullptr when absent.
  const std::string* metadata_value(std::string_view name) const;

  // Sends a protobuf message, stored behind kGrpcPrefixBytes of room.
  void send(std::string message);
  // Ends the call with a status. Later calls are ignored.
  void finish(const Status& status);
  // For streams: no further message is delivered until unpaused; flow control stops the client.
  void pause(bool paused);

  // False once it is finished, or cancelled by client, deadline or server. Any thread.
  bool is_open() const { return open_; }
  // Runs once when the call is cancelled before finish(); at once if it was already.
  void on_cancel(Work callback);

  // Any thread. Work posted after the client has gone still runs; its answers are dropped. It holds
  // the call. An exception of it is the call's status.
  void post(Work work) { mailbox_->post(ends_call(std::move(work))); }
  void dispatch(Work work) { mailbox_->dispatch(ends_call(std::move(work))); }

  // Called by the connection when the client has gone, or its deadline has passed.
  void cancel();

 private:
  Work ends_call(Work work) {
    return [this, work = std::move(work)]() mutable {
      const Status status = without_exceptions(work);
      if (!status.ok()) give_up(status);
    };
  }
  // Cancels the call with a status.
  void give_up(const Status& status);

  std::weak_ptr<CallStream> stream_;
  std::shared_ptr<Mailbox> mailbox_;
  std::shared_ptr<GrpcStats> stats_;
  Metadata metadata_;
  std::string_view admin_refusal_;  // a literal
  uint64_t tenant_ = 0;
  Work on_cancel_;
  std::atomic<bool> open_{true};
  bool cancelled_ = false;
};

using CallPtr = std::shared_ptr<Call>;

// Receives the messages of a client stream, on the connection's thread.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  virtual void on_message(std::string message) = 0;
  virtual void on_half_close() = 0;  // no further message
  // The server stops: the stream ends as soon as no request runs.
  virtual void on_stop() {}
};

// One rpc of the table: one of the two functions is set.
struct Method {
  std::function<void(const CallPtr&, std::string message)> unary;
  std::function<std::shared_ptr<StreamHandler>(const CallPtr&)> stream;
  // Metadata that a caller must have (name and value); name "": none.
  std::string required_name;
  std::string required_value;
  Protection protection{Api::kMetadata, Access::kCallers, Cost::kNothing};
};

// Methods by path, "/package.Service/Rpc".
using MethodTable = std::unordered_map<std::string, Method>;

}  // namespace nereid::front
