// One rpc as its handler sees it, and the table of rpcs. No HTTP/2 and no sockets here.
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
#include "front/http/budget_memory.h"
#include "front/http/protection.h"

namespace nereid::front {

using Work = absl::AnyInvocable<void()>;

// Brings work to the thread of a connection, in order. Any thread. Outlives connections and calls.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  virtual void post(Work work) = 0;
  // The same, but at once when called on that thread while nothing posted waits.
  virtual void dispatch(Work work) { post(std::move(work)); }
};

// Counters of one port; any thread may read.
struct GrpcStats {
  std::atomic<uint64_t> connections_accepted{0};
  std::atomic<uint64_t> connections_refused{0};
  std::atomic<int64_t> connections_open{0};
  std::atomic<int64_t> calls_active{0};      // until the handler lets go of them
  std::atomic<uint64_t> calls_cancelled{0};  // by the client or its deadline
  std::atomic<size_t> buffered_bytes{0};     // of requests that are not complete
};

// The connection's side of a call. Everything but post() on the connection's thread.
class CallStream {
 public:
  virtual ~CallStream() = default;
  virtual void send(std::string message) = 0;
  virtual void finish(const Status& status) = 0;
  virtual void pause(bool paused) = 0;
};

// Calls `body`; ResourceExhausted when it finds no memory, Internal for another exception.
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

// One rpc, held by its handler. Everything but post() must run on the connection's thread: handlers
// are called there, and post() brings other threads' news there. Answer with any number of send()
// and one finish(). A call that is dropped without finish() ends as Internal: never silence.
class Call {
 public:
  Call(std::weak_ptr<CallStream> stream, std::shared_ptr<Mailbox> mailbox,
       std::shared_ptr<GrpcStats> stats, Metadata metadata);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // What the client sent beside the message, without the protocol's own headers.
  const Metadata& metadata() const { return metadata_; }
  // Why the caller may not change settings of the server (Access::kSettings); "": it may.
  std::string_view admin_refusal() const { return admin_refusal_; }
  void set_admin_refusal(std::string_view why) { admin_refusal_ = why; }
  // The last value of that name; nullptr when absent.
  const std::string* metadata_value(std::string_view name) const;

  // A message of protobuf bytes behind kGrpcPrefixBytes of room.
  void send(std::string message);
  // The one end. Later calls are ignored.
  void finish(const Status& status);
  // Streams: no further message is delivered until unpaused; flow control holds the client up.
  void pause(bool paused);

  // False once it is finished, or cancelled by client, deadline or server. Any thread.
  bool is_open() const { return open_; }
  // Runs once when the call is cancelled before finish(); at once if that has happened already.
  void on_cancel(Work callback);

  // Any thread. Work posted after the client has gone still runs; its answers go nowhere. It holds
  // the call. What it throws is the call's status.
  void post(Work work) { mailbox_->post(ends_call(std::move(work))); }
  void dispatch(Work work) { mailbox_->dispatch(ends_call(std::move(work))); }

  // For the connection: the client has gone, or may not wait any longer.
  void cancel();

 private:
  Work ends_call(Work work) {
    return [this, work = std::move(work)]() mutable {
      const Status status = without_exceptions(work);
      if (!status.ok()) give_up(status);
    };
  }
  // What runs is cancelled.
  void give_up(const Status& status);

  std::weak_ptr<CallStream> stream_;
  std::shared_ptr<Mailbox> mailbox_;
  std::shared_ptr<GrpcStats> stats_;
  Metadata metadata_;
  std::string_view admin_refusal_;  // a literal
  Work on_cancel_;
  std::atomic<bool> open_{true};
  bool cancelled_ = false;
};

using CallPtr = std::shared_ptr<Call>;

// Takes the messages of a client stream, on the connection's thread.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  virtual void on_message(std::string message) = 0;
  virtual void on_half_close() = 0;  // no further message
  // The server stops: end as soon as nothing runs any more.
  virtual void on_stop() {}
};

// One rpc of the table: either of the two functions is set.
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
