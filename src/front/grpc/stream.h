// One HTTP/2 stream of a session: its headers, and the messages in both directions.
// Internal to front/grpc.
#pragma once

#include <deque>

#include "front/grpc/session.h"
#include "front/http/compression.h"
#include "front/protection/key_limits.h"

struct nghttp2_session;

namespace nereid::front {

class GrpcStream final : public CallStream, public std::enable_shared_from_this<GrpcStream> {
 public:
  using Time = Session::Time;

  GrpcStream(Session* session, int32_t id)
      : session_(session), id_(id), share_(session->shared_->budget) {}
  ~GrpcStream() override;

  void send(std::string message) override;
  void finish(const Status& status) override;
  void pause(bool paused) override;

  // Takes a header of the request.
  void add_header(std::string_view name, std::string_view value);
  // Calls `body`, the work of an event; an exception becomes the status of the call.
  template <class Body>
  void run(Body&& body) {
    const auto alive = shared_from_this();
    const Status status = without_exceptions(body);
    if (status.ok()) return;
    feeding_ = false;
    give_up(status);
  }
  // Takes bytes of the request's body.
  void receive(std::string_view data);
  // The client has sent everything.
  void end_input();
  // Cancels the call; only a reset follows.
  void reset(uint32_t error_code);
  // Cancels the call and sends the status.
  void give_up(const Status& status);
  // The stream is closed on the wire, or the session is destroyed.
  void detach();

  // Bytes of the answer that may be sent now, at most `limit`; 0 with is_complete(): the end.
  size_t readable(size_t limit) const { return std::min(limit, out_bytes_); }
  void copy_out(std::string& out, size_t length);
  bool is_complete() const { return finished_ && out_bytes_ == 0; }
  void submit_trailers();

 private:
  friend class Session;
  friend struct SessionCallbacks;

  // Request headers used here.
  struct Head {
    std::string method, path, content_type, encoding;
    Encoding accepted = Encoding::kIdentity;
    Metadata metadata;
    std::chrono::nanoseconds timeout{0};
    bool bad_timeout = false;
    size_t bytes = 0;
  };

  void feed(std::string_view data);
  void take_message();
  void take_opened(StatusOr<std::string> message, BudgetShare& share);
  void refuse_when_full();
  void go_on();  // continues with held_ if no reason to hold is left
  bool is_held() const { return paused_ || is_opening_ || is_resting_; }
  void deliver_end();
  void account();
  // Time at which the incomplete message began; Time::max() without one.
  Time arriving_since() const;
  // Starts the time limit in which the client must read kLeastProgressBytes, or all.
  void begin_reading();
  std::chrono::milliseconds write_timeout() const;
  void cancel_call();
  void submit_head();
  void resume();
  bool is_unary() const { return method_ != nullptr && method_->unary != nullptr; }

  Session* session_;  // null once detached
  const int32_t id_;
  Head head_;
  const Method* method_ = nullptr;
  KeyUse::PermitPtr permit_;        // of a key whose limits the call counts in
  std::string_view admin_refusal_;  // see Call
  uint64_t tenant_ = 0;             // see Call
  std::weak_ptr<Call> call_;
  CallPtr waiting_call_;  // unary: until the request is complete
  std::shared_ptr<StreamHandler> handler_;
  Time started_, deadline_ = Time::max(), last_progress_;

  MessageReader reader_;
  std::string message_;  // unary: the complete request
  bool has_message_ = false;
  bool is_opening_ = false;  // a worker decompresses a message
  bool is_resting_ = false;  // waits for the event loop's next turn
  std::string held_;  // input not yet divided into messages, because of a pause or one of the above
  size_t unconsumed_ = 0;
  size_t accounted_ = 0;  // bytes of the incomplete request
  BudgetShare share_;     // of these and of the answer
  Time message_began_ = Time::max(), last_receive_;
  bool paused_ = false, feeding_ = false, half_closed_ = false, end_delivered_ = false;
  bool discarding_ = false;  // the call is over; further input is dropped

  Encoding answer_encoding_ = Encoding::kIdentity;
  std::deque<std::string> out_;
  size_t out_at_ = 0;  // offset in the first message
  size_t out_bytes_ = 0;
  size_t progress_bytes_ = 0;  // read by the client since last_progress_
  bool head_sent_ = false, deferred_ = false, finished_ = false, reset_ = false;
  Status status_;
};

}  // namespace nereid::front
