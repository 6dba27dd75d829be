// Limits of an API key: requests and tokens per minute, requests at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>

#include "base/clock.h"
#include "base/status.h"

namespace nereid::front {

// 0: no limit.
struct KeyLimits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // of prompts and outputs
  int64_t concurrency = 0;        // requests at once

  bool any() const { return requests_per_minute > 0 || tokens_per_minute > 0 || concurrency > 0; }
};

// Parses "requests_per_minute=60 tokens_per_minute=10000 concurrency=4", any of them in any order,
// each once; "" for none. InvalidArgument names the word.
StatusOr<KeyLimits> parse_key_limits(std::string_view text);

// The error for a key with a token limit, of an API that does not count tokens.
inline constexpr char kTokensAreNotCounted[] =
    "the tokens of this API key are limited, and this protocol does not count them; /v1 does";

// The reason why a request has to wait.
struct KeyRefusal {
  std::string reason;
  int64_t retry_after_s = 1;
};

// The use of one key. Limits may change between requests. Any thread.
class KeyUse : public std::enable_shared_from_this<KeyUse> {
 public:
  // One request of the key; it ends with end() or the destructor.
  class Permit {
   public:
    explicit Permit(std::shared_ptr<KeyUse> use) : use_(std::move(use)) {}
    ~Permit() { end(); }
    Permit(const Permit&) = delete;
    Permit& operator=(const Permit&) = delete;

    void end();
    // Charges tokens; a debt delays later requests.
    void charge(int64_t num_tokens) { use_->charge(num_tokens, now()); }
    // Called once, by end(); on any thread.
    void on_end(std::function<void()> callback);
    KeyUse& use() const { return *use_; }

   private:
    const std::shared_ptr<KeyUse> use_;
    std::mutex mutex_;
    bool ended_ = false;
    std::function<void()> on_end_;
  };
  using PermitPtr = std::shared_ptr<Permit>;

  // Admits a request while the key has requests and tokens left and is below its concurrency.
  std::variant<PermitPtr, KeyRefusal> begin(const KeyLimits& limits, Time time);
  void charge(int64_t num_tokens, Time time);
  // Tokens charged so far.
  int64_t num_charged() const;

 private:
  // A token bucket that refills in a minute and is full at first; its level may be negative.
  struct Bucket {
    int64_t per_minute = 0;
    double level = 0;
    Time filled{};

    void fill(int64_t limit, Time time);
    // Seconds until `level` >= `wanted`, rounded up; at least 1.
    int64_t seconds_until(double wanted) const;
  };
  void end();

  mutable std::mutex mutex_;
  Bucket requests_, tokens_;
  int64_t num_running_ = 0;
  int64_t num_charged_ = 0;
};

}  // namespace nereid::front
