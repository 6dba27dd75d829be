#include "front/protection/key_limits.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <utility>

namespace nereid::front {

StatusOr<KeyLimits> parse_key_limits(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  constexpr int64_t kMost = 1'000'000'000;
  KeyLimits out;
  const std::pair<std::string_view, int64_t*> fields[] = {
      {"requests_per_minute", &out.requests_per_minute},
      {"tokens_per_minute", &out.tokens_per_minute},
      {"concurrency", &out.concurrency}};
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    if (text.empty()) return out;
    const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
    text.remove_prefix(word.size());
    const size_t equals = std::min(word.find('='), word.size());
    const auto field =
        std::ranges::find(fields, word.substr(0, equals), [](const auto& f) { return f.first; });
    int64_t value = 0;
    const char* const begin = word.data() + std::min(equals + 1, word.size());
    const auto [end, error] = std::from_chars(begin, word.data() + word.size(), value);
    const bool is_number = error == std::errc() && end == word.data() + word.size();
    if (field == std::end(fields) || !is_number || value < 1 || value > kMost ||
        *field->second != 0) {
      return invalid_argument(
          "'{}': requests_per_minute=N, tokens_per_minute=N or concurrency=N is expected, each at "
          "most once, N in [1, {}]",
          word, kMost);
    }
    *field->second = value;
  }
}

void KeyUse::Bucket::fill(int64_t limit, Time time) {
  const bool is_new = per_minute == 0;
  per_minute = limit;
  const auto most = static_cast<double>(limit);
  const std::chrono::duration<double, std::ratio<60>> minutes = time - std::exchange(filled, time);
  level = is_new ? most : std::min(most, level + most * std::max(0.0, minutes.count()));
}

int64_t KeyUse::Bucket::seconds_until(double wanted) const {
  const double seconds = (wanted - level) * 60 / static_cast<double>(per_minute);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(seconds)));
}

std::variant<KeyUse::PermitPtr, KeyRefusal> KeyUse::begin(const KeyLimits& limits, Time time) {
  {
    std::lock_guard lock(mutex_);
    if (limits.concurrency > 0 && num_running_ >= limits.concurrency)
      return KeyRefusal{
          fmt::format("{} requests of this API key are running; its limit is {} at once",
                      num_running_, limits.concurrency),
          1};
    requests_.fill(limits.requests_per_minute, time);
    if (limits.requests_per_minute > 0 && requests_.level < 1)
      return KeyRefusal{fmt::format("this API key may make {} requests a minute, and has made them",
                                    limits.requests_per_minute),
                        requests_.seconds_until(1)};
    tokens_.fill(limits.tokens_per_minute, time);
    if (limits.tokens_per_minute > 0 && tokens_.level < 1)
      return KeyRefusal{fmt::format("this API key may use {} tokens a minute, and has used them",
                                    limits.tokens_per_minute),
                        tokens_.seconds_until(1)};
    requests_.level -= 1;
    ++num_running_;
  }
  return std::make_shared<Permit>(shared_from_this());
}

void KeyUse::charge(int64_t num_tokens, Time time) {
  std::lock_guard lock(mutex_);
  num_charged_ += num_tokens;
  if (tokens_.per_minute == 0) return;
  tokens_.fill(tokens_.per_minute, time);
  tokens_.level -= static_cast<double>(num_tokens);
}

int64_t KeyUse::num_charged() const {
  std::lock_guard lock(mutex_);
  return num_charged_;
}

void KeyUse::end() {
  std::lock_guard lock(mutex_);
  --num_running_;
}

void KeyUse::Permit::end() {
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
    callback = std::exchange(on_end_, nullptr);
  }
  use_->end();
  if (callback) callback();
}

void KeyUse::Permit::on_end(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_) {
      on_end_ = std::move(callback);
      return;
    }
  }
  callback();
}

}  // namespace nereid::front
