// Helpers of the tests in this folder: an opened device with a runner on it, and greedy decoding
// that keeps logits.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "exec/runner.h"
#include "kernels/api/registry.h"

namespace nereid::exec {

using Ids = std::vector<int32_t>;

// Where this process's tests put engines; removed when they have run.
inline std::filesystem::path test_directory() {
  return std::filesystem::path(::testing::TempDir()) / fmt::format("nereid-exec-test-{}", getpid());
}

// A sequence with a slot and blocks of its own. Blocks are handed out scattered and descending, so
// that a kernel that ignores the table cannot pass.
struct Sequence {
  Sequence(int32_t slot, const RunnerLimits& limits) : slot(slot) {
    const int32_t count = (limits.max_sequence_length - 1) / limits.block_tokens + 1;
    for (int32_t i = 0; i < count; ++i)
      blocks.push_back(limits.num_blocks[0] - 1 -
                       (i * limits.max_rows + slot) % limits.num_blocks[0]);
  }
  StepRow row(std::span<const int32_t> tokens, int32_t start, int32_t num_logits) const {
    StepRow row{slot, start, tokens, {}, num_logits};
    for (auto& table : row.blocks.of) table = blocks;  // every group alike
    return row;
  }
  int32_t slot;
  Ids blocks;
};

// Limits with enough blocks for max_rows sequences of full length.
inline RunnerLimits roomy_limits(int32_t max_rows, int32_t max_tokens, int32_t max_length,
                                 int32_t block_tokens) {
  RunnerLimits limits{max_rows, max_tokens, max_length, 0, block_tokens};
  for (int32_t& blocks : limits.num_blocks.of)
    blocks = max_rows * ((max_length - 1) / block_tokens + 1);
  return limits;
}

class Harness {
 public:
  // Takes over what kernels::open_device() gave. Ends the process when it or the runner failed.
  template <class Opened>
  Harness(const std::filesystem::path& engine, const RunnerLimits& limits,
          StatusOr<Opened> opened) {
    if (!opened.ok()) fail(opened.status());
    library_ = std::move(opened->library);
    registry_ = std::move(opened->registry);
    device_ = std::move(opened->device);
    auto runner = make_runner(engine, *device_, registry_, limits);
    if (!runner.ok()) fail(runner.status());
    runner_ = *std::move(runner);
    auto staging = device_->allocate_host(static_cast<size_t>(limits.num_logits_rows()) *
                                          (vocab() + 1) * sizeof(float));
    if (!staging.ok()) fail(staging.status());
    staging_ = *std::move(staging);
  }

  Runner& runner() { return *runner_; }
  Device& device() { return *device_; }
  const kernels::Registry& registry() const { return registry_; }
  size_t vocab() const { return static_cast<size_t>(runner_->vocab_size()); }

  // A hook that draws the best id of each row of logits; the ids go to `drawn` and the logits to
  // `keep` (when given), valid once the step has been waited for. `slots` has the slot of each row.
  PostForward greedy(Ids slots, Ids* drawn = nullptr, std::vector<float>* keep = nullptr) {
    return [this, slots = std::move(slots), drawn, keep](const Logits& l, Stream& stream) {
      EXPECT_EQ(l.logits.rows, static_cast<int64_t>(slots.size()));
      auto* const host = static_cast<float*>(staging_.data());
      for (int64_t r = 0; r < l.logits.rows; ++r)
        RETURN_IF_ERROR(stream.copy(host + r * vocab(), l.logits.row<float>(r), 4 * vocab()));
      RETURN_IF_ERROR(stream.synchronize());
      if (keep) keep->assign(host, host + slots.size() * vocab());
      auto* const best = reinterpret_cast<int32_t*>(host + slots.size() * vocab());
      for (size_t r = 0; r < slots.size(); ++r) {
        const float* row = host + r * vocab();
        best[r] = static_cast<int32_t>(std::max_element(row, row + vocab()) - row);
        RETURN_IF_ERROR(stream.copy(l.slot_tokens + slots[r], best + r, sizeof(int32_t)));
      }
      if (drawn) drawn->assign(best, best + slots.size());
      return stream.synchronize();
    };
  }

  // One synchronous step; the sampled ids, logits in `keep`.
  Ids step(const std::vector<StepRow>& rows, std::vector<float>* keep = nullptr) {
    Ids slots;
    for (const StepRow& row : rows) slots.insert(slots.end(), row.num_logits, row.slot);
    Ids drawn;
    auto ticket = runner_->launch(rows, {}, greedy(slots, &drawn, keep));
    if (!ticket.ok()) fail(ticket.status());
    if (Status status = runner_->wait(*ticket); !status.ok()) fail(status);
    return drawn;
  }

  // Computes positions [start, tokens.size()) in chunks of at most `chunk`; logits of the last
  // position, its best id in `best`.
  std::vector<float> prefill(const Sequence& sequence, const Ids& tokens, int32_t chunk,
                             int32_t* best = nullptr, int32_t start = 0) {
    std::vector<float> logits;
    const auto size = static_cast<int32_t>(tokens.size());
    for (int32_t at = start; at < size; at += chunk) {
      const int32_t count = std::min(chunk, size - at);
      const Ids ids = step(
          {sequence.row(std::span(tokens).subspan(at, count), at, at + count == size)}, &logits);
      if (best && !ids.empty()) *best = ids[0];
    }
    return logits;
  }

  // Greedy continuation of `prompt`; logits of every step in `keep`, one after another.
  Ids generate(const Sequence& sequence, const Ids& prompt, int32_t count, int32_t chunk,
               std::vector<float>* keep = nullptr) {
    Ids tokens = prompt, out;
    for (int32_t i = 0; i < count; ++i) {
      int32_t best = 0;
      const auto start = i == 0 ? 0 : static_cast<int32_t>(tokens.size()) - 1;
      const std::vector<float> logits = prefill(sequence, tokens, chunk, &best, start);
      if (keep) keep->insert(keep->end(), logits.begin(), logits.end());
      tokens.push_back(best);
      out.push_back(best);
    }
    return out;
  }

 private:
  [[noreturn]] static void fail(const Status& status) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }

  std::shared_ptr<void> library_;  // code of the members below
  kernels::Registry registry_;
  std::unique_ptr<Device> device_;
  Buffer staging_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace nereid::exec
