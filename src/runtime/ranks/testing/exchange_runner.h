// Test only: a rank whose steps only exchange, and a worker program of it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "exec/exchange.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "runtime/ranks/rank_worker.h"
#include "tensor/cpu_device.h"

namespace nereid::runtime {

inline constexpr int32_t kExchangeDepth = 2;
// An engine whose rank takes 3 s to end.
inline constexpr const char* kSlowToEnd = "slow";

// A step with one row; its first position is the sum that all ranks must find.
inline std::vector<std::byte> exchange_step(int32_t number) {
  exec::StepMessage step;
  step.rows.push_back({.start = number, .num_tokens = 1});
  step.tokens.push_back(1);
  std::vector<std::byte> message;
  exec::encode(step, message);
  return message;
}

// Each step adds up start * (rank + 1) over the tensor ranks, many times. A drawing rank returns
// one row with the sum as its token.
class ExchangeRunner final : public exec::Runner {
 public:
  ExchangeRunner(Device& device, exec::RankComms comms)
      : stream_(device.create_stream().value()), comms_(std::move(comms)) {
    limits_.depth = kExchangeDepth;
    limits_.max_rows = 1;
  }
  ~ExchangeRunner() override {
    abort(cancelled("closed"));
    stream_.reset();  // before the communicators
  }

  StatusOr<exec::Ticket> launch(std::span<const std::byte> message) override {
    ASSIGN_OR_RETURN(const auto step, exec::decode(message));
    if (step.rows.size() != 1) return invalid_argument("{} rows instead of 1", step.rows.size());
    const int32_t start = step.rows[0].start;
    int32_t& sum = sums_[num_launched_++ % kExchangeDepth];
    ASSIGN_OR_RETURN(
        auto event, stream_->submit([this, start, &sum](Stream& s) { return run(start, sum, s); }));
    return exec::Ticket(std::move(event), 0);
  }
  void draw(exec::Ticket&, std::span<const std::byte>) override {}
  StatusOr<exec::StepResult> wait(exec::Ticket& ticket) override {
    const Status status = event_of(ticket)->wait();
    ticket = exec::Ticket();
    const int32_t sum = sums_[num_waited_++ % kExchangeDepth];
    RETURN_IF_ERROR(status);
    ++num_steps_;
    if (!draws()) return exec::StepResult();
    drawn_ = {.token = sum};
    row_ = {.drawn = {&drawn_, 1}};
    return exec::StepResult(&row_, 1);
  }
  std::optional<Status> onboarded(bool) override { return std::nullopt; }
  const exec::RunnerLimits& limits() const override { return limits_; }
  std::span<const exec::CacheGroup> groups() const override { return groups_; }
  int32_t vocab_size() const override { return 4; }
  int32_t hidden_size() const override { return 0; }
  int32_t embedding_width() const override { return 8; }
  bool draws() const override { return rank() == 0; }
  std::vector<exec::RankFigures> ranks() const override { return {{rank(), "cpu", num_steps_, 0}}; }
  std::vector<exec::MemoryItem> memory() const override { return {{"cells", 64, rank()}}; }
  void abort(const Status& reason) override {
    if (comms_.tensor) comms_.tensor->abort(reason);
  }

 private:
  static constexpr int kTurns = 50;
  static constexpr int64_t kCount = 999;

  int32_t rank() const { return comms_.tensor ? comms_.tensor->rank() : 0; }
  // On the stream's thread.
  Status run(int32_t start, int32_t& sum, Stream& stream) {
    const int32_t size = comms_.tensor ? comms_.tensor->size() : 1;
    for (int turn = 0; turn < kTurns; ++turn) {
      x_.assign(kCount, static_cast<float>(start * (rank() + 1)));
      if (size > 1)
        RETURN_IF_ERROR(
            comms_.tensor->all_reduce(x_.data(), x_.data(), kCount, DType::kF32, stream));
      sum = static_cast<int32_t>(x_[kCount - 1]);
      if (sum != start * size * (size + 1) / 2)
        return internal_error("rank {}: a sum of {} for {}", rank(), sum, start);
    }
    return ok();
  }

  std::unique_ptr<Stream> stream_;
  const exec::RankComms comms_;
  exec::RunnerLimits limits_;
  const std::vector<exec::CacheGroup> groups_ = {{.window = 3, .layers = {0, 1}}};
  std::vector<float> x_;
  std::array<int32_t, kExchangeDepth> sums_ = {};  // of the steps in flight
  size_t num_launched_ = 0, num_waited_ = 0;
  int64_t num_steps_ = 0;
  kernels::SampleResult drawn_;
  exec::RowResult row_;
};

class ExchangeOpener final : public RankOpener {
 public:
  ~ExchangeOpener() override {
    if (is_slow_) std::this_thread::sleep_for(std::chrono::seconds(3));
  }
  StatusOr<Device*> open_device(const std::string& device, const std::string&, int) override {
    if (device != "cpu") return invalid_argument("device '{}' is not 'cpu'", device);
    device_ = make_cpu_device({.num_threads = 1}).value();
    return device_.get();
  }
  StatusOr<std::unique_ptr<exec::Runner>> load(const RankLoad& load,
                                               exec::RankComms comms) override {
    is_slow_ = load.engine == kSlowToEnd;
    if (load.engine != "any" && !is_slow_) return not_found("{}: no such engine", load.engine);
    return std::make_unique<ExchangeRunner>(*device_, std::move(comms));
  }

 private:
  std::unique_ptr<Device> device_;
  bool is_slow_ = false;
};

}  // namespace nereid::runtime
