// A serial executor without a thread: events run one at a time, in order, on the thread
// that posts one while none is running. State that only events access needs no lock, and an
// event may post more.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

namespace nereid {

class SerialEvents {
 public:
  // Runs `event` now, or leaves it to the thread that is running events. The owner must outlive the
  // call. An exception of an event goes to that thread's caller once all events have run.
  template <class Event>
  void post(Event event) {
    std::unique_lock lock(mutex_);
    if (handling_) {
      events_.emplace_back(std::move(event));
      return;
    }
    handling_ = true;
    lock.unlock();
    std::exception_ptr thrown;
    const auto run = [&thrown](auto& one) {
      try {
        one();
      } catch (...) {
        thrown = std::current_exception();
      }
    };
    {
      Event first(std::move(event));
      run(first);
    }
    lock.lock();
    while (!events_.empty()) {
      auto next = std::move(events_.front());
      events_.pop_front();
      lock.unlock();
      run(next);
      next = nullptr;  // destroys the captures outside of the lock
      lock.lock();
    }
    handling_ = false;
    lock.unlock();
    if (thrown != nullptr) std::rethrow_exception(thrown);
  }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> events_;
  bool handling_ = false;
};

}  // namespace nereid
