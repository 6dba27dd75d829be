// Test only: collects the responses of many requests and checks that each ends exactly once.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "nereid/executor.h"

namespace nereid::runtime {

struct Received {
  std::vector<TokenId> tokens;   // of all responses, joined
  std::vector<float> log_probs;  // of all responses, joined
  int num_responses = 0;
  Response last;

  FinishReason reason() const {
    return last.outputs.empty() ? FinishReason::kNotFinished : last.outputs[0].finish_reason;
  }
};

// Must outlive the executor's callbacks.
class TestClient {
 public:
  // Sends a request that must be accepted; returns its id.
  RequestId send(Executor& executor, Request request) {
    auto id = executor.enqueue(std::move(request), [this](Response r) { take(std::move(r)); });
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }

  // Blocks until the request's final response.
  Received wait(RequestId id) {
    std::unique_lock lock(mutex_);
    const bool in_time = changed_.wait_for(lock, std::chrono::seconds(120),
                                           [&] { return received_[id].last.is_final; });
    EXPECT_TRUE(in_time) << "request " << id << " has no final response";
    return received_[id];
  }

  Received run(Executor& executor, Request request) {
    return wait(send(executor, std::move(request)));
  }

  size_t num_tokens(RequestId id) {
    std::lock_guard lock(mutex_);
    return received_[id].tokens.size();
  }

 private:
  void take(Response response) {
    {
      std::lock_guard lock(mutex_);
      Received& r = received_[response.request_id];
      EXPECT_FALSE(r.last.is_final) << "a response after the final one";
      ++r.num_responses;
      if (!response.outputs.empty()) {
        const auto& ids = response.outputs[0].token_ids;
        r.tokens.insert(r.tokens.end(), ids.begin(), ids.end());
        const auto& log_probs = response.outputs[0].log_probs;
        r.log_probs.insert(r.log_probs.end(), log_probs.begin(), log_probs.end());
      }
      r.last = std::move(response);
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Received> received_;
};

}  // namespace nereid::runtime
