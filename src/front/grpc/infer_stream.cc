// ModelStreamInfer; see infer.h.
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/request_flags.h"
#include "front/bridge/inference_call.h"
#include "front/grpc/infer.h"

namespace nereid::front {
namespace {

// Most requests of one stream in flight; flow control stops the client beyond.
constexpr size_t kMaxInFlight = 4096;
// Most answers that wait for an earlier one, by number and by bytes: beyond, requests wait. Beyond
// the larger number an answer is replaced by a refusal.
constexpr size_t kMaxOrdered = 4096;
constexpr size_t kManyWaitingBytes = size_t{8} << 20;
constexpr size_t kMaxWaitingBytes = size_t{64} << 20;
constexpr size_t kAnswerOverhead = 128;  // bytes beside the text of a waiting answer

constexpr char kStopping[] = "GRPC server is shutting down and has stopped accepting new requests.";

class StreamInfer final : public StreamHandler, public std::enable_shared_from_this<StreamInfer> {
 public:
  StreamInfer(InferContextPtr context, CallPtr call)
      : context_(std::move(context)), call_(std::move(call)), waiting_share_(context_->budget) {
    const std::string* mode = call_->metadata_value("triton_grpc_error");
    ends_on_error_ = mode != nullptr && *mode == "true";
  }

  // To be called after construction: cancelling the stream cancels its requests.
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
    std::vector<std::string> messages;
    bool complete = false;
  };
  // A request: its number, and its position among those whose answers keep their order.
  struct Slot {
    uint64_t key = 0;
    std::optional<uint64_t> place;
  };

  void start(const Status& read, GrpcInferRequest request) {
    if (read.code() == absl::StatusCode::kInternal && read.message() == "Unable to parse request") {
      // The framing is right but the message is malformed, so it has no id to answer to.
      cancel_all();
      return call_->finish(read);
    }
    Slot slot{next_key_++, std::nullopt};
    const bool is_ordered = !request.ticket.decoupled;
    if (is_ordered) {
      slot.place = first_place_ + order_.size();
      order_.emplace_back();
    }
    if (!read.ok()) return refuse(slot, read, request.ticket);
    if (stopping_) return refuse(slot, unavailable(kStopping), request.ticket);
    const auto ticket = std::make_shared<const InferTicket>(std::move(request.ticket));
    ++num_running_;
    const auto self = shared_from_this();
    const auto on_reply = [self, slot, ticket](InferenceReply reply) {
      self->call_->post([self, slot, ticket, reply = std::move(reply)]() mutable {
        self->take(slot, *ticket, std::move(reply));
      });
    };
    request.spec.flags |= kMayRunHere;
    auto started = InferenceCall::start(context_->server, std::move(request.spec), on_reply);
    if (!started.ok()) {
      --num_running_;
      return refuse(slot, started.status(), *ticket);
    }
    running_[slot.key] = *std::move(started);
  }

  // Pauses the stream while a worker parses a message, while many requests run, and while
  // many answers wait.
  void hold_back() {
    const bool holds = is_reading_ || num_running_ >= kMaxInFlight ||
                       order_.size() >= kMaxOrdered || waiting_bytes_ >= kManyWaitingBytes;
    if (std::exchange(is_held_, holds) != holds) call_->pause(holds);
  }

  void refuse(const Slot& slot, const Status& status, const InferTicket& ticket) {
    write(slot, ticket, format_stream_refusal(status, ticket));
    complete(slot);
  }

  void take(const Slot& slot, const InferTicket& ticket, InferenceReply reply) {
    const bool final = reply.final;
    if (call_->is_open()) answer(slot, ticket, reply);
    if (!final) return;
    running_.erase(slot.key);
    answered_.erase(slot.key);
    --num_running_;
    complete(slot);
    hold_back();
    finish_if_done();
  }

  void answer(const Slot& slot, const InferTicket& ticket, const InferenceReply& reply) {
    if (!reply.status.ok() && ends_on_error_) {
      cancel_all();
      return call_->finish(reply.status);
    }
    // A final flag alone is sent only if requested.
    if (reply.empty && !(ticket.empty_final && ticket.decoupled)) return;
    // A model that is not decoupled answers once: later responses are dropped.
    if (!ticket.decoupled && !answered_.insert(slot.key).second) return;
    StatusOr<std::string> message = format_stream_response(reply, ticket);
    if (ticket.trace != nullptr) ticket.trace->report_now("GRPC_SEND_START");
    write(slot, ticket, *std::move(message));
    if (ticket.trace != nullptr) ticket.trace->report_now("GRPC_SEND_END");
  }

  // Sends at once, or when the requests before it are complete.
  void write(const Slot& slot, const InferTicket& ticket, std::string message) {
    if (!slot.place || *slot.place == first_place_) return call_->send(std::move(message));
    if (const Status room = make_room(message.size()); !room.ok()) {
      message = format_stream_refusal(room, ticket);
      count_waiting(waiting_bytes_ + message.size() + kAnswerOverhead);
    }
    order_[*slot.place - first_place_].messages.push_back(std::move(message));
  }

  // An error when an answer of that size may not wait.
  Status make_room(size_t size) {
    const size_t bytes = waiting_bytes_ + size + kAnswerOverhead;
    if (bytes > kMaxWaitingBytes) {
      return resource_exhausted(
          "answers of this stream behind an unfinished one would have {} bytes, at most {} are "
          "allowed",
          bytes, kMaxWaitingBytes);
    }
    if (const Status status = waiting_share_.reserve(bytes); !status.ok())
      return resource_exhausted("{}", message(status));
    waiting_bytes_ = bytes;
    return ok();
  }

  void count_waiting(size_t bytes) { waiting_share_.set(waiting_bytes_ = bytes); }

  void complete(const Slot& slot) {
    if (!slot.place) return;
    order_[*slot.place - first_place_].complete = true;
    while (!order_.empty() && order_.front().complete) {
      order_.pop_front();
      ++first_place_;
      if (order_.empty()) break;
      for (std::string& text : std::exchange(order_.front().messages, {})) {
        count_waiting(waiting_bytes_ - text.size() - kAnswerOverhead);
        call_->send(std::move(text));
      }
    }
  }

  void finish_if_done() {
    if (num_running_ > 0 || is_reading_ || !(half_closed_ || stopping_)) return;
    call_->finish(half_closed_ ? ok() : unavailable(kStopping));
  }

  void cancel_all() {
    // A core may answer from inside of cancel(), but answers are posted: the map
    // does not change here.
    for (const auto& [key, call] : running_) call->cancel();
  }

  const InferContextPtr context_;
  const CallPtr call_;
  bool ends_on_error_ = false, half_closed_ = false, stopping_ = false;
  bool is_reading_ = false, is_held_ = false;
  uint64_t next_key_ = 0;
  size_t num_running_ = 0;
  std::map<uint64_t, std::shared_ptr<InferenceCall>> running_;
  std::set<uint64_t> answered_;  // running requests of models that answer once
  std::deque<Ordered> order_;    // requests whose answers keep their order; the first one is open
  uint64_t first_place_ = 0;     // position of the first entry
  size_t waiting_bytes_ = 0;     // bytes of waiting answers
  BudgetShare waiting_share_;
};

}  // namespace

std::shared_ptr<StreamHandler> start_model_stream_infer(const InferContextPtr& context,
                                                        const CallPtr& call) {
  auto handler = std::make_shared<StreamInfer>(context, call);
  handler->watch_cancel();
  return handler;
}

}  // namespace nereid::front
