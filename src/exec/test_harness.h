// Test only: step messages, an opened device with a runner, and greedy decoding that keeps logits.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "exec/runner.h"
#include "exec/step_message.h"
#include "kernels/api/registry.h"

namespace nereid::exec {

using Ids = std::vector<int32_t>;

// Directory of this process's engines; removed at the end.
inline std::filesystem::path test_directory() {
  return std::filesystem::path(::testing::TempDir()) / fmt::format("nereid-exec-test-{}", getpid());
}

// Standard deviation of a row of logits.
inline double spread_of(const std::vector<float>& logits) {
  double mean = 0, squares = 0;
  for (const float x : logits) mean += x / static_cast<double>(logits.size());
  for (const float x : logits) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(logits.size()));
}

// A row of a step with its arrays.
struct RowSpec {
  int32_t slot = 0, start = 0;
  std::span<const int32_t> tokens;
  PerGroup<std::span<const int32_t>> blocks;
  int32_t num_logits = 0;
};

// A step of these rows; rows with logits sample greedily and return all of them.
inline StepMessage step_of(const std::vector<RowSpec>& rows, size_t num_groups,
                           int32_t block_tokens, const std::vector<BlockCopy>& copies = {},
                           const std::vector<BlockCopy>& onboards = {}) {
  StepMessage step;
  step.copies = copies;
  step.onboards = onboards;
  for (const RowSpec& row : rows) {
    step.add({.slot = row.slot,
              .start = row.start,
              .num_logits = row.num_logits,
              .samples = row.num_logits > 0,
              .num_read = row.num_logits},
             row.tokens, row.blocks, num_groups, block_tokens);
    if (row.num_logits > 0) step.loads.push_back({.slot = row.slot});
  }
  return step;
}

inline StatusOr<Ticket> launch(Runner& runner, const std::vector<RowSpec>& rows,
                               const std::vector<BlockCopy>& copies = {},
                               const std::vector<BlockCopy>& onboards = {}) {
  std::vector<std::byte> message;
  encode(step_of(rows, runner.groups().size(), runner.limits().block_tokens, copies, onboards),
         message);
  return runner.launch(message);
}

// A sequence with a slot and blocks. Block ids are scattered and descending, so that kernels must
// read the table.
struct Sequence {
  Sequence(int32_t slot, const RunnerLimits& limits) : slot(slot) {
    const int32_t count = (limits.max_sequence_length - 1) / limits.block_tokens + 1;
    for (int32_t i = 0; i < count; ++i)
      blocks.push_back(limits.num_blocks[0] - 1 -
                       (i * limits.max_rows + slot) % limits.num_blocks[0]);
  }
  RowSpec row(std::span<const int32_t> tokens, int32_t start, int32_t num_logits) const {
    RowSpec row{slot, start, tokens, {}, num_logits};
    for (auto& table : row.blocks.of) table = blocks;  // the same ids in every group
    return row;
  }
  int32_t slot;
  Ids blocks;
};

// Limits with blocks for max_rows sequences of full length.
inline RunnerLimits roomy_limits(int32_t max_rows, int32_t max_tokens, int32_t max_length,
                                 int32_t block_tokens) {
  RunnerLimits limits{max_rows, max_tokens, max_length, 0, block_tokens};
  for (int32_t& blocks : limits.num_blocks.of)
    blocks = max_rows * ((max_length - 1) / block_tokens + 1);
  return limits;
}

class Harness {
 public:
  // Takes the result of kernels::open_device(); ends the process if it or the runner failed.
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
  }

  Runner& runner() { return *runner_; }
  Device& device() { return *device_; }
  const kernels::Registry& registry() const { return registry_; }
  size_t vocab() const { return static_cast<size_t>(runner_->vocab_size()); }

  // Waits for a step; returns the argmax of each row of logits, the logits in `keep`.
  StatusOr<Ids> finish(Ticket& ticket, std::vector<float>* keep = nullptr) {
    ASSIGN_OR_RETURN(const StepResult results, runner_->wait(ticket));
    Ids best;
    if (keep) keep->clear();
    for (const RowResult& result : results) {
      RETURN_IF_ERROR(result.status);
      if (keep) keep->insert(keep->end(), result.logits.begin(), result.logits.end());
      for (std::span<const float> left = result.logits; !left.empty(); left = left.subspan(vocab()))
        best.push_back(
            static_cast<int32_t>(std::ranges::max_element(left.first(vocab())) - left.begin()));
      EXPECT_EQ(result.drawn.empty(), result.logits.empty());
      if (!result.drawn.empty()) {
        EXPECT_EQ(result.drawn[0].token, best.back());
      }
    }
    return best;
  }

  // One synchronous step; returns the argmax ids, the logits in `keep`.
  Ids step(const std::vector<RowSpec>& rows, std::vector<float>* keep = nullptr) {
    auto ticket = launch(*runner_, rows);
    if (!ticket.ok()) fail(ticket.status());
    auto ids = finish(*ticket, keep);
    if (!ids.ok()) fail(ids.status());
    return *std::move(ids);
  }

  // Computes positions [start, tokens.size()) in chunks of at most `chunk`; returns the logits of
  // the last position, their argmax in `best`.
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

  // Greedy continuation of `prompt`; logits of all steps in `keep`.
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

  std::shared_ptr<void> library_;  // has the code of the members below
  kernels::Registry registry_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace nereid::exec
