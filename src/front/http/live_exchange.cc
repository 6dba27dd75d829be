// Exchanges of live connections; see connection.h.
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "base/contained.h"
#include "base/log_limit.h"
#include "front/http/connection.h"
#include "front/http/io_stall.h"
#include "front/protection/budget_memory.h"

namespace nereid::front {
namespace asio = boost::asio;

namespace {

// The handler's handle; the connection keeps the Answer. Its destructor ends an answer that
// the handler did not.
class LiveExchange final : public Exchange {
 public:
  LiveExchange(std::shared_ptr<Connection> connection, std::shared_ptr<Answer> answer,
               std::shared_ptr<Listener::Impl> listener)
      : connection_(std::move(connection)),
        answer_(std::move(answer)),
        listener_(std::move(listener)) {}

  ~LiveExchange() override {
    // The last reference may be dropped on any thread.
    contained("the end of a request", [this] { end_unanswered(); });
  }

  void end_unanswered() {
    asio::dispatch(connection_->executor(), [c = connection_, a = answer_, l = listener_] {
      if (a->finished || a->gone) return;
      if (a->started) {
        c->give_up(*a);
      } else {
        const bool is_short = !a->shortage.empty();
        a->head =
            l->router.error_page(a->request, is_short ? 503 : 500,
                                 is_short ? a->shortage : "internal error: request was dropped");
        a->started = a->finished = true;
      }
      c->notify();
    });
  }

  Request& request() override { return answer_->request; }

  void post(std::function<void()> work) override {
    ++answer_->num_posted;
    try {
      asio::post(connection_->executor(), [work = std::move(work), answer = answer_] {
        const IoTurn turn;
        answer->close();
        --answer->num_posted;
        answer->run(work);
      });
    } catch (...) {
      --answer_->num_posted;
      throw;
    }
  }

  void dispatch(std::function<void()> work) override {
    if (answer_->num_posted.load() > 0 || !connection_->is_on_strand()) {
      post(std::move(work));
    } else {
      answer_->close();
      answer_->run(work);
    }
  }

  void deliver(std::function<void()> work) override {
    {
      std::lock_guard lock(answer_->turn);
      if (answer_->is_open && answer_->num_posted.load() == 0) {
        take_turn(work);
        return;
      }
    }
    post(std::move(work));
  }

  void send(Response response) override {
    if (answer_->started) return;
    answer_->head = std::move(response);
    answer_->unread_bytes = answer_->head.body.size();
    answer_->count();
    answer_->started = true;
    finish();
  }

  void begin_stream(Response head, std::string if_stopped) override {
    if (answer_->started) return;
    answer_->head = std::move(head);
    answer_->if_stopped = std::move(if_stopped);
    answer_->started = answer_->streaming = true;
    notify_change();
  }

  void write(std::string_view text) override {
    if (text.empty() || !answer_->streaming || answer_->finished || answer_->gone) return;
    // One piece may exceed the limit: only the unread rest of earlier ones counts.
    const ListenerOptions& options = listener_->options;
    const bool is_behind =
        answer_->unread_bytes > options.max_unread_bytes ||
        (answer_->unread_bytes > 0 && answer_->share.is_large() && options.budget->is_full());
    if (!answer_->is_inside && is_behind) {
      connection_->give_up(*answer_);
    } else {
      answer_->chunks.emplace_back(text);
      answer_->unread_bytes += text.size();
      answer_->count();
    }
    notify_change();
  }

  void end() override {
    if (answer_->streaming && !answer_->finished) finish();
  }

  bool hold(size_t bytes) override {
    answer_->held_bytes = bytes;
    answer_->count();
    return !answer_->share.is_large() || !listener_->options.budget->is_full();
  }

  void on_disconnect(std::function<void()> callback) override {
    if (answer_->gone || answer_->is_cut) {
      callback();
    } else if (!answer_->finished) {
      answer_->on_disconnect = std::move(callback);
    }
  }

  bool disconnected() const override { return answer_->gone || answer_->is_cut; }

  void on_written(OnWritten callback) override {
    answer_->on_written.push_back(std::move(callback));
  }

 private:
  // Runs `work` while this thread holds the answer's turn, then sends the stream's new bytes. Wakes
  // the strand when the answer began, finished or filled the socket buffer; otherwise the strand
  // would only go on waiting.
  void take_turn(const std::function<void()>& work) {
    const bool was_started = answer_->started;
    answer_->is_inside = true;
    answer_->run(work);
    answer_->is_inside = false;
    if (answer_->streaming && !answer_->gone) connection_->send_now(*answer_);
    if (answer_->started == was_started && !answer_->finished && answer_->rest.empty()) return;
    answer_->is_open = false;
    asio::post(connection_->executor(), [c = connection_] { c->notify(); });
  }

  void finish() {
    answer_->finished = true;
    if (const auto& permit = answer_->request.permit) permit->end();
    answer_->on_disconnect = nullptr;
    notify_change();
  }

  void notify_change() {
    if (!answer_->is_inside) connection_->notify();  // else take_turn() notifies
  }

  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Answer> answer_;
  std::shared_ptr<Listener::Impl> listener_;
};

}  // namespace

void Answer::open() {
  std::lock_guard lock(turn);
  is_open = true;
}

void Answer::close() {
  std::lock_guard lock(turn);
  is_open = false;
}

void Answer::run(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::bad_alloc& e) {
    shortage = front::shortage(e);
  } catch (const std::exception& e) {
    static LogLimit log;
    log.error("while answering a request: {}", e.what());
  }
}

void Answer::count() { share.set(body_bytes + held_bytes + unread_bytes); }

ExchangePtr make_exchange(std::shared_ptr<Connection> connection, std::shared_ptr<Answer> answer,
                          std::shared_ptr<Listener::Impl> listener) {
  return std::make_shared<LiveExchange>(std::move(connection), std::move(answer),
                                        std::move(listener));
}

}  // namespace nereid::front
