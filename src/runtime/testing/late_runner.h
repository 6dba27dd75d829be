// Test only: a runner whose onboards appear to take several steps.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "exec/runner.h"

namespace nereid::runtime {

class LateRunner : public exec::Runner {
 public:
  explicit LateRunner(std::unique_ptr<exec::Runner> inner) : inner_(std::move(inner)) {}

  StatusOr<exec::Ticket> launch(std::span<const std::byte> message) override {
    return inner_->launch(message);
  }
  void draw(exec::Ticket& ticket, std::span<const std::byte> masks) override {
    inner_->draw(ticket, masks);
  }
  StatusOr<exec::StepResult> wait(exec::Ticket& ticket) override { return inner_->wait(ticket); }
  std::optional<Status> onboarded(bool may_wait) override {
    constexpr int kTurns = 5;
    if (!may_wait && num_asked_++ % kTurns != 0) return std::nullopt;
    return inner_->onboarded(may_wait);
  }
  const exec::RunnerLimits& limits() const override { return inner_->limits(); }
  std::span<const exec::CacheGroup> groups() const override { return inner_->groups(); }
  int32_t vocab_size() const override { return inner_->vocab_size(); }
  int32_t hidden_size() const override { return inner_->hidden_size(); }
  int32_t num_states() const override { return inner_->num_states(); }
  bool weighs_drafts() const override { return inner_->weighs_drafts(); }
  int32_t embedding_width() const override { return inner_->embedding_width(); }
  std::vector<exec::MemoryItem> memory() const override { return inner_->memory(); }

 private:
  const std::unique_ptr<exec::Runner> inner_;
  int num_asked_ = 0;
};

}  // namespace nereid::runtime
