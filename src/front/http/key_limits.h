// What a caller with an API key may use: requests and tokens a minute, requests at once.
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

// 0: as much as there is.
struct KeyLimits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // of prompts and answers
  int64_t concurrency = 0;        // requests at once

  bool any() const { return requests_per_minute > 0 || tokens_per_minute > 0 || concurrency > 0; }
};

// "requests_per_minute=60 tokens_per_minute=10000 concurrency=4", any of them in any order, each
// once; "" for none. InvalidArgument names the word.
StatusOr<KeyLimits> parse_key_limits(std::string_view text);

// To a key whose tokens are limited, by an API that does not count them.
inline constexpr char kTokensAreNotCounted[] =
    "the tokens of this API key are limited, and this protocol does not count them; /v1 does";

// Why a request has to wait.
struct KeyRefusal {
  std::string reason;
  int64_t retry_after_s = 1;
};

// What one key has used. Limits may change between requests. Any thread.
class KeyUse : public std::enable_shared_from_this<KeyUse> {
 public:
  // One request of the key; it ends with end() or with the object.
  class Permit {
   public:
    explicit Permit(std::shared_ptr<KeyUse> use) : use_(std::move(use)) {}
    ~Permit() { end(); }
    Permit(const Permit&) = delete;
    Permit& operator=(const Permit&) = delete;

    void end();
    // What the key pays for; more than it has left is paid by later requests, which wait.
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

  // A request begins while the key has one left, has tokens left and runs fewer than it may.
  std::variant<PermitPtr, KeyRefusal> begin(const KeyLimits& limits, Time time);
  void charge(int64_t num_tokens, Time time);
  // Tokens so far.
  int64_t num_charged() const;

 private:
  // Fills up in a minute and is full at first; may be in debt.
  struct Bucket {
    int64_t per_minute = 0;
    double level = 0;
    Time filled{};

    void fill(int64_t limit, Time time);
    // Until `level` is at least that, rounded up; at least 1.
    int64_t seconds_until(double wanted) const;
  };
  void end();

  mutable std::mutex mutex_;
  Bucket requests_, tokens_;
  int64_t num_running_ = 0;
  int64_t num_charged_ = 0;
};

}  // namespace nereid::front
