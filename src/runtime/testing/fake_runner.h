// Test only: a Runner whose "model" is a hash of the prefix as read through the block table. It
// runs on a real CPU stream with real threads, staging and sampling; faults can be injected.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "exec/runner.h"
#include "exec/slot_sampler.h"
#include "exec/step_data.h"
#include "exec/step_message.h"
#include "tensor/device.h"

namespace nereid::runtime {

class FakeRunner : public exec::Runner {
 public:
  static constexpr int32_t kNanToken = 7;  // a prompt with it makes logits and states NaN
  static constexpr int32_t kHiddenSize = 3;

  FakeRunner(Device& device, const kernels::Registry& registry, const exec::RunnerLimits& limits,
             int32_t vocab_size)
      : health_(device.health()),
        limits_(limits),
        vocab_size_(vocab_size),
        groups_({{.window = limits.window, .sink = limits.sink}}),
        cells_(static_cast<size_t>(limits.num_blocks[0] + limits.num_host_blocks[0]) *
                   limits.block_tokens,
               -1),
        slot_tokens_(limits.max_rows, -1) {
    sampler_ =
        exec::SlotSampler::create(device, registry, {}, limits, vocab_size, kHiddenSize).value();
    auto stream = device.create_stream();
    NEREID_CHECK(stream.ok());
    stream_ = *std::move(stream);
    onboard_stream_ = device.create_stream().value();
    staging_.resize(static_cast<size_t>(limits.depth));
    for (Staging& s : staging_) {
      s.logits.resize(static_cast<size_t>(limits.num_logits_rows()) * vocab_size);
      s.hidden.resize(static_cast<size_t>(limits.num_logits_rows()) * kHiddenSize);
      s.data.resize(exec::StepData::max_bytes(limits, 1));
    }
  }

  StatusOr<exec::Ticket> launch(std::span<const std::byte> message) override {
    const int step = num_steps_++;
    wait_while(launches_held_);
    if (step == fail_launch_) return unavailable("launch {} fails", step);
    const int32_t turn = std::exchange(turn_, (turn_ + 1) % limits_.depth);
    Staging& s = staging_[turn];
    s.message.assign(message.begin(), message.end());
    ASSIGN_OR_RETURN(s.step, exec::decode(s.message));
    NEREID_CHECK(!s.step.rows.empty() || !s.step.onboards.empty());
    if (!s.step.rows.empty()) {
      RETURN_IF_ERROR(
          exec::StepData::pack(s.step, groups_, limits_, vocab_size_, s.data.data()).status());
    }
    RETURN_IF_ERROR(sampler_->stage(s.step, turn));
    s.waits_for_masks = std::ranges::any_of(
        s.step.rows, [](const exec::StepRow& row) { return row.has_mask != 0; });
    s.number = step;
    auto event = stream_->submit([this, &s, turn](Stream& stream) -> Status {
      wait_while(held_);
      RETURN_IF_ERROR(failure_of(s));
      for (const exec::BlockCopy& c : s.step.copies) copy_block(c);
      s.num_logits = compute(s.step, s.logits.data(), s.hidden.data());
      return s.waits_for_masks ? ok() : sample(turn, stream);
    });
    if (!event.ok()) return event.status();
    if (!s.step.onboards.empty()) onboard(s.step.onboards, **event);
    return exec::Ticket(*std::move(event), turn);
  }

  void draw(exec::Ticket& ticket, std::span<const std::byte> masks) override {
    const int32_t turn = staging_of(ticket);
    Staging& s = staging_[turn];
    NEREID_CHECK(s.waits_for_masks);
    ++num_draws_;
    NEREID_CHECK(sampler_->set_masks(exec::decode_masks(masks).value(), turn).ok());
    event_of(ticket) = stream_
                           ->submit([this, &s, turn](Stream& stream) -> Status {
                             RETURN_IF_ERROR(failure_of(s));
                             return sample(turn, stream);
                           })
                           .value();
  }

  std::optional<Status> onboarded(bool may_wait) override {
    ++num_polls_;
    if (onboards_.empty() || (!may_wait && !onboards_.front()->done())) return std::nullopt;
    const Status status = onboards_.front()->wait();
    onboards_.pop_front();
    return status;
  }

  StatusOr<exec::StepResult> wait(exec::Ticket& ticket) override {
    RETURN_IF_ERROR(event_of(ticket)->wait());
    return sampler_->results(staging_of(ticket));
  }

  const exec::RunnerLimits& limits() const override { return limits_; }
  std::span<const exec::CacheGroup> groups() const override { return groups_; }
  int32_t vocab_size() const override { return vocab_size_; }
  int32_t embedding_width() const override { return 4; }
  int32_t hidden_size() const override { return kHiddenSize; }
  bool weighs_drafts() const override { return sampler_->weighs_drafts(); }

  // While true, submitted steps do not start.
  void hold(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  // While true, launch() blocks.
  void hold_launches(bool held) {
    std::lock_guard lock(mutex_);
    launches_held_ = held;
    changed_.notify_all();
  }
  // While true, onboards do not start. `steps_too`: calls hold(true) after the first one.
  void hold_onboards(bool held, bool steps_too = false) {
    onboards_hold_steps_ = steps_too;
    std::lock_guard lock(mutex_);
    onboards_held_ = held;
    changed_.notify_all();  // under the lock: the object may be destroyed afterwards
  }
  void fail_onboards(bool fails) { onboards_fail_ = fails; }
  int num_onboards() const { return num_onboards_; }
  int num_polls() const { return num_polls_; }     // calls of onboarded()
  void fail_step(int step) { fail_step_ = step; }  // counted from 0
  void fail_launch(int step) { fail_launch_ = step; }
  int num_steps() const { return num_steps_; }
  int num_draws() const { return num_draws_; }  // of steps with masks
  int num_drafts() const { return num_drafts_; }

 private:
  struct Row {
    exec::StepRow in;
    std::span<const int32_t> tokens, blocks;
  };
  struct Staging {
    std::vector<std::byte> message;
    exec::StepMessageView step;  // decoded message
    std::vector<std::byte> data;
    std::vector<float> logits;
    std::vector<BF16> hidden;
    int number = 0;
    bool waits_for_masks = false;
    int32_t num_logits = 0;
  };

  Status failure_of(const Staging& s) const {
    return s.number == fail_step_ ? internal_error("step {} fails", s.number) : ok();
  }

  Status sample(int32_t turn, Stream& stream) {
    Staging& s = staging_[turn];
    RETURN_IF_ERROR(sampler_->send(turn, stream));
    return sampler_->run(
        turn, View::matrix(s.logits.data(), DType::kF32, s.num_logits, vocab_size_),
        slot_tokens_.data(), stream,
        std::array{View::matrix(s.hidden.data(), DType::kBF16, s.num_logits, kHiddenSize)});
  }

  // Stores the rows' tokens; returns the number of logits.
  int32_t compute(const exec::StepMessageView& step, float* logits, BF16* hidden) {
    std::span<const int32_t> tokens = step.tokens, blocks = step.blocks;
    int32_t num_logits = 0;
    for (const exec::StepRow& in : step.rows) {
      const auto num_blocks =
          static_cast<size_t>(exec::num_blocks_for(in.end(), limits_.block_tokens));
      const Row row{in, tokens.first(static_cast<size_t>(in.num_tokens)), blocks.first(num_blocks)};
      tokens = tokens.subspan(row.tokens.size());
      blocks = blocks.subspan(num_blocks);
      store(row);
      num_logits += in.num_logits;
      num_drafts_ += in.num_drafts;
      const auto end = static_cast<int32_t>(in.end());
      for (int32_t e = end - in.num_logits; e < end; ++e, logits += vocab_size_) {
        fill_logits(row, e + 1, logits);
        // A part of the logits, so that states depend on the prefix too.
        for (int32_t i = 0; i < kHiddenSize; ++i) *hidden++ = to_bf16(logits[i]);
      }
    }
    return num_logits;
  }

  // Nothing is held on a device that has failed.
  void wait_while(const bool& held) {
    std::unique_lock lock(mutex_);
    const auto goes_on = [&] { return !held || health_.state() == Health::State::kFailed; };
    while (!changed_.wait_for(lock, std::chrono::milliseconds(1), goes_on)) continue;
  }

  // Runs after the step of the message and its copies.
  void onboard(std::span<const exec::BlockCopy> copies, const Event& step) {
    NEREID_CHECK(onboard_stream_->wait(step).ok());
    if (onboards_hold_steps_) hold(true);
    ++num_onboards_;
    auto event = onboard_stream_->submit(
        [this, all = std::vector(copies.begin(), copies.end())](Stream&) -> Status {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [&] { return !onboards_held_; });
          if (onboards_fail_) return internal_error("no way from the host");
          for (const exec::BlockCopy& copy : all) copy_block(copy);
          return ok();
        });
    onboards_.push_back(std::move(event).value());
  }

  void copy_block(const exec::BlockCopy& copy) {
    const int32_t t = limits_.block_tokens;
    std::copy_n(cells_.begin() + static_cast<int64_t>(copy.from) * t, t,
                cells_.begin() + static_cast<int64_t>(copy.to) * t);
  }

  int32_t& cell(const Row& row, int32_t position) {
    const int32_t t = limits_.block_tokens;
    return cells_[static_cast<size_t>(row.blocks[position / t]) * t + position % t];
  }

  void store(const Row& row) {
    int32_t position = row.in.start;
    for (int32_t token : row.tokens)
      cell(row, position++) = token == exec::kTokenOnDevice ? slot_tokens_[row.in.slot] : token;
  }

  // Each logit depends on the whole prefix of `end` positions; a few are much larger than the rest.
  void fill_logits(const Row& row, int32_t end, float* logits) {
    uint64_t h = 1469598103934665603u;
    bool nan = false;
    for (int32_t p = 0; p < end; ++p) {
      h = (h ^ static_cast<uint64_t>(cell(row, p) + 2)) * 1099511628211u;
      nan |= cell(row, p) == kNanToken;
    }
    for (int32_t v = 0; v < vocab_size_; ++v) {
      uint64_t x = (h + static_cast<uint64_t>(v)) * 0x9E3779B97F4A7C15u;
      x ^= x >> 29;
      // kNanToken is never sampled: only prompts have it.
      logits[v] =
          v == kNanToken ? -INFINITY : static_cast<float>(x * 0xBF58476D1CE4E5B9u >> 40) * 0x1p-21f;
    }
    if (nan) logits[0] = NAN;
  }

  const Health& health_;
  const exec::RunnerLimits limits_;
  const int32_t vocab_size_;
  const std::vector<exec::CacheGroup> groups_;
  std::vector<int32_t> cells_;  // KV: token at [block, position in block]
  std::vector<int32_t> slot_tokens_;
  std::vector<Staging> staging_;  // [depth]
  std::unique_ptr<exec::SlotSampler> sampler_;
  int32_t turn_ = 0;
  std::atomic<int> num_steps_ = 0, fail_step_ = -1, fail_launch_ = -1, num_onboards_ = 0,
                   num_polls_ = 0, num_draws_ = 0, num_drafts_ = 0;
  std::atomic<bool> onboards_fail_ = false, onboards_hold_steps_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false, launches_held_ = false, onboards_held_ = false;
  std::deque<std::unique_ptr<Event>> onboards_;  // not yet reported by onboarded()
  std::unique_ptr<Stream> onboard_stream_;
  std::unique_ptr<Stream> stream_;  // destroyed first: joins its thread
};

}  // namespace nereid::runtime
