// Threads for work that would hold up an event loop: reading large requests, writing large replies.
// They come after event loops and models where all processors are busy.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/queue.h"
#include "front/http/message.h"

namespace nereid::front {

// JSON that an event loop reads, and tensor bytes that it writes as JSON, in a few milliseconds.
inline constexpr size_t kQuickJsonBytes = 256 << 10;
inline constexpr size_t kQuickReplyBytes = 64 << 10;

class Workers {
 public:
  explicit Workers(int num_threads);
  ~Workers();  // does what is queued
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls `then` with the result of `work`: all here and now when it `is_quick`, else `work` on a
  // thread of this and `then` on the exchange's strand. Nothing is done for a client that has left.
  // Both must be copyable, `work` may use nothing of the exchange but its request. A shortage of
  // memory in `work` is one in `then`'s place.
  template <class Work, class Then>
  void run(const ExchangePtr& exchange, bool is_quick, Work work, Then then) {
    if (is_quick) return then(work());
    push([exchange, work = std::move(work), then = std::move(then)]() mutable {
      std::shared_ptr<decltype(work())> result;
      std::exception_ptr shortage;
      try {
        result = std::make_shared<decltype(work())>(work());
      } catch (const std::bad_alloc&) {
        shortage = std::current_exception();
      }
      exchange->post([exchange, result, shortage, then = std::move(then)]() mutable {
        if (shortage != nullptr) std::rethrow_exception(shortage);
        if (!exchange->disconnected()) then(std::move(*result));
      });
    });
  }

  // Does `job` on a thread of this.
  void push(std::function<void()> job);

 private:
  Queue<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
};

}  // namespace nereid::front
