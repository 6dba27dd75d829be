#include "front/grpc/call.h"

#include "base/contained.h"

namespace nereid::front {

Call::Call(std::weak_ptr<CallStream> stream, std::shared_ptr<Mailbox> mailbox,
           std::shared_ptr<GrpcStats> stats, Metadata metadata)
    : stream_(std::move(stream)),
      mailbox_(std::move(mailbox)),
      stats_(std::move(stats)),
      metadata_(std::move(metadata)) {
  ++stats_->calls_active;
}

Call::~Call() {
  // A handler may drop the call on any thread; the stream is the connection's.
  if (open_) {
    contained("a gRPC request", [this] {
      mailbox_->post([stream = std::move(stream_)] {
        if (const auto alive = stream.lock()) {
          alive->finish(internal_error("the request was dropped without an answer"));
        }
      });
    });
  }
  --stats_->calls_active;
}

const std::string* Call::metadata_value(std::string_view name) const {
  for (auto it = metadata_.rbegin(); it != metadata_.rend(); ++it) {
    if (it->first == name) return &it->second;
  }
  return nullptr;
}

void Call::send(std::string message) {
  if (!open_) return;
  if (const auto stream = stream_.lock()) stream->send(std::move(message));
}

void Call::finish(const Status& status) {
  if (!open_.exchange(false)) return;
  on_cancel_ = nullptr;
  if (const auto stream = stream_.lock()) stream->finish(status);
}

void Call::pause(bool paused) {
  if (!open_) return;
  if (const auto stream = stream_.lock()) stream->pause(paused);
}

void Call::on_cancel(Work callback) {
  if (cancelled_) {
    callback();
  } else if (open_) {
    on_cancel_ = std::move(callback);
  }
}

void Call::give_up(const Status& status) {
  const auto stream = stream_.lock();
  cancel();
  if (stream != nullptr) stream->finish(status);
}

void Call::cancel() {
  if (!open_.exchange(false)) return;
  cancelled_ = true;
  ++stats_->calls_cancelled;
  if (on_cancel_) std::exchange(on_cancel_, nullptr)();
}

}  // namespace nereid::front
