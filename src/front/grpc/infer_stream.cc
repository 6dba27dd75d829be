// ModelStreamInfer; see infer.h.
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "base/request_flags.h"
#include "front/bridge/inference_call.h"
#include "front/grpc/infer.h"

namespace nereid::front {
namespace {

// Requests of one stream that may run at once; more wait in the client's flow control window.
constexpr size_t kMaxInFlight = 4096;

constexpr char kStopping[] = "GRPC server is shutting down and has stopped accepting new requests.";

class StreamInfer final : public StreamHandler, public std::enable_shared_from_this<StreamInfer> {
 public:
  StreamInfer(InferContextPtr context, CallPtr call)
      : context_(std::move(context)), call_(std::move(call)) {
    const std::string* mode = call_->metadata_value("triton_grpc_error");
    ends_on_error_ = mode != nullptr && *mode == "true";
  }

  // After construction: cancelling the stream cancels what runs on it.
  void watch_cancel() {
    call_->on_cancel([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->cancel_all();
    });
  }

  void on_message(std::string message) override {
    is_reading_ = true;
    const auto start_it = [self = shared_from_this()](ReadRequest read) {
      self->is_reading_ = false;
      self->start(read.status, std::move(read.request));
      self->hold_back();
      self->finish_if_done();
    };
    read_and_start(context_, call_, std::move(message), /*accepts_decoupled=*/true, start_it);
    hold_back();
  }

  void on_half_close() override {
    half_closed_ = true;
    finish_if_done();
  }

  void on_stop() override {
    stopping_ = true;
    finish_if_done();
  }

 private:
  struct Ordered {
    uint64_t key;
    std::vector<std::string> messages;
    bool complete;
  };

  void start(const Status& read, GrpcInferRequest request) {
    if (read.code() == absl::StatusCode::kInternal && read.message() == "Unable to parse request") {
      // The stream's framing is right and its content is not: nothing to address an answer to.
      cancel_all();
      return call_->finish(read);
    }
    const uint64_t key = next_key_++;
    const bool is_ordered = !request.ticket.decoupled;
    if (is_ordered) order_.push_back({key, {}, false});
    if (!read.ok()) return refuse(key, read, request.ticket);
    if (stopping_) return refuse(key, unavailable(kStopping), request.ticket);
    const auto ticket = std::make_shared<const InferTicket>(std::move(request.ticket));
    ++num_running_;
    const auto self = shared_from_this();
    const auto on_reply = [self, key, ticket](InferenceReply reply) {
      self->call_->post([self, key, ticket, reply = std::move(reply)]() mutable {
        self->take(key, *ticket, std::move(reply));
      });
    };
    request.spec.flags |= kMayRunHere;
    auto started = InferenceCall::start(context_->server, std::move(request.spec), on_reply);
    if (!started.ok()) {
      --num_running_;
      return refuse(key, started.status(), *ticket);
    }
    running_[key] = *std::move(started);
  }

  // Messages wait while one is read by a worker, and while many run.
  void hold_back() {
    const bool holds = is_reading_ || num_running_ >= kMaxInFlight;
    if (std::exchange(is_held_, holds) != holds) call_->pause(holds);
  }

  void refuse(uint64_t key, const Status& status, const InferTicket& ticket) {
    write(key, format_stream_refusal(status, ticket));
    complete(key);
  }

  void take(uint64_t key, const InferTicket& ticket, InferenceReply reply) {
    const bool final = reply.final;
    if (call_->is_open()) answer(key, ticket, reply);
    if (!final) return;
    running_.erase(key);
    answered_.erase(key);
    --num_running_;
    complete(key);
    hold_back();
    finish_if_done();
  }

  void answer(uint64_t key, const InferTicket& ticket, const InferenceReply& reply) {
    if (!reply.status.ok() && ends_on_error_) {
      cancel_all();
      return call_->finish(reply.status);
    }
    // A final flag alone is told to those who asked.
    if (reply.empty && !(ticket.empty_final && ticket.decoupled)) return;
    // A model that is not decoupled answers once: its first response counts.
    if (!ticket.decoupled && !answered_.insert(key).second) return;
    StatusOr<std::string> message = format_stream_response(reply, ticket);
    if (ticket.trace != nullptr) ticket.trace->report_now("GRPC_SEND_START");
    write(key, *std::move(message));
    if (ticket.trace != nullptr) ticket.trace->report_now("GRPC_SEND_END");
  }

  // At once, or when the requests before it are complete.
  void write(uint64_t key, std::string message) {
    for (Ordered& entry : order_) {
      if (entry.key != key || &entry == &order_.front()) continue;
      entry.messages.push_back(std::move(message));
      return;
    }
    call_->send(std::move(message));
  }

  void complete(uint64_t key) {
    for (Ordered& entry : order_) {
      if (entry.key == key) entry.complete = true;
    }
    while (!order_.empty() && order_.front().complete) {
      order_.pop_front();
      if (order_.empty()) break;
      for (std::string& message : std::exchange(order_.front().messages, {})) {
        call_->send(std::move(message));
      }
    }
  }

  void finish_if_done() {
    if (num_running_ > 0 || is_reading_ || !(half_closed_ || stopping_)) return;
    call_->finish(half_closed_ ? ok() : unavailable(kStopping));
  }

  void cancel_all() {
    // A core may answer from inside of cancel(), but answers are posted: the map stays as it is.
    for (const auto& [key, call] : running_) call->cancel();
  }

  const InferContextPtr context_;
  const CallPtr call_;
  bool ends_on_error_ = false, half_closed_ = false, stopping_ = false;
  bool is_reading_ = false, is_held_ = false;
  uint64_t next_key_ = 0;
  size_t num_running_ = 0;
  std::map<uint64_t, std::shared_ptr<InferenceCall>> running_;
  std::set<uint64_t> answered_;  // of them, those of models that answer once
  std::deque<Ordered> order_;    // requests whose answers keep their order, the first one is open
};

}  // namespace

std::shared_ptr<StreamHandler> start_model_stream_infer(const InferContextPtr& context,
                                                        const CallPtr& call) {
  auto handler = std::make_shared<StreamInfer>(context, call);
  handler->watch_cancel();
  return handler;
}

}  // namespace nereid::front
