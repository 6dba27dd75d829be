// Hidden states as an output of steps, on a small made-up plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "exec/test_engine.h"
#include "exec/test_harness.h"
#include "io/engine_file.h"
#include "kernels/api/pack.h"
#include "kernels/open.h"

namespace nereid::exec {
namespace {

using ::testing::HasSubstr;

const RunnerLimits kHiddenLimits = [] {
  RunnerLimits limits = roomy_limits(4, 32, 64, 4);
  limits.max_logits = 32;
  return limits;
}();
const Ids kHiddenText = {1, 5, 9, 2, 30, 31, 0, 7, 7, 8, 11};

struct Outputs {
  std::vector<float> hidden, logits;
};

class HiddenTest : public ::testing::Test {
 protected:
  explicit HiddenTest(const io::Plan& plan = small_plan())
      : path_(write_engine(plan, "hidden_test")),
        harness_(path_, kHiddenLimits, kernels::open_device("cpu", {.num_threads = 2})) {}

  // Each row returns hidden states and logits for all of its num_logits positions.
  StatusOr<std::vector<Outputs>> run(const std::vector<RowSpec>& rows, bool samples = true) {
    StepMessage step = step_of(rows, 1, kHiddenLimits.block_tokens);
    for (StepRow& row : step.rows) {
      row.num_hidden = row.num_logits;
      if (!samples) row.samples = 0;
    }
    return run(step);
  }
  StatusOr<std::vector<Outputs>> run(const StepMessage& step) {
    std::vector<std::byte> message;
    encode(step, message);
    ASSIGN_OR_RETURN(Ticket ticket, harness_.runner().launch(message));
    ASSIGN_OR_RETURN(const StepResult results, harness_.runner().wait(ticket));
    std::vector<Outputs> all;
    for (const RowResult& result : results) {
      RETURN_IF_ERROR(result.status);
      Outputs& out = all.emplace_back();
      for (const BF16 x : result.hidden) out.hidden.push_back(to_float(x));
      out.logits.assign(result.logits.begin(), result.logits.end());
    }
    return all;
  }
  // Outputs of all positions, computed in chunks.
  Outputs in_chunks(const Sequence& sequence, int32_t chunk) {
    Outputs all;
    const auto size = static_cast<int32_t>(kHiddenText.size());
    for (int32_t at = 0; at < size; at += chunk) {
      const int32_t count = std::min(chunk, size - at);
      const auto tokens = std::span(kHiddenText).subspan(at, count);
      const Outputs part = run({sequence.row(tokens, at, count)}).value()[0];
      all.hidden.insert(all.hidden.end(), part.hidden.begin(), part.hidden.end());
      all.logits.insert(all.logits.end(), part.logits.begin(), part.logits.end());
    }
    return all;
  }

  const std::filesystem::path path_;
  Harness harness_;
};

// Logits = hidden states times the head's matrix.
TEST_F(HiddenTest, TheyAreWhatTheHeadReads) {
  ASSERT_EQ(harness_.runner().hidden_size(), 32);
  const io::EngineFile file = io::EngineFile::open(path_).value();
  const kernels::WeightView head = io::view_of(file.plan().weights[0], file.blob().data());
  const Outputs all = in_chunks(Sequence(0, kHiddenLimits), 11);
  ASSERT_EQ(all.hidden.size(), 11u * 32);
  ASSERT_EQ(all.logits.size(), 11u * 32);
  for (size_t row = 0; row < 11; ++row)
    for (int64_t id = 0; id < 32; ++id) {
      double sum = 0;
      for (int64_t c = 0; c < 32; ++c)
        sum +=
            double{kernels::weight_at(head, id, c)} * all.hidden[row * 32 + static_cast<size_t>(c)];
      EXPECT_NEAR(all.logits[row * 32 + static_cast<size_t>(id)], sum, 1e-4);
    }
}

TEST_F(HiddenTest, TheSameInChunksAndBesideOthers) {
  const Sequence one(0, kHiddenLimits), two(1, kHiddenLimits), three(2, kHiddenLimits);
  const Outputs whole = in_chunks(one, 11);
  for (const int32_t chunk : {1, 3, 4}) EXPECT_EQ(in_chunks(one, chunk).hidden, whole.hidden);
  const std::span<const int32_t> text(kHiddenText);
  // No row samples; the second returns nothing.
  const auto all =
      run({one.row(text, 0, 11), two.row(text.first(5), 0, 0), three.row(text, 0, 1)}, false);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ((*all)[0].hidden, whole.hidden);
  EXPECT_TRUE((*all)[1].hidden.empty());
  EXPECT_EQ((*all)[2].hidden, std::vector<float>(whole.hidden.end() - 32, whole.hidden.end()));
}

TEST_F(HiddenTest, AsManyAsThereAreLogits) {
  const Sequence sequence(0, kHiddenLimits);
  StepMessage step = step_of({sequence.row(kHiddenText, 0, 1)}, 1, kHiddenLimits.block_tokens);
  for (const int32_t count : {-1, 2, 11}) {
    step.rows[0].num_hidden = count;
    EXPECT_THAT(run(step).status().ToString(),
                HasSubstr(fmt::format("num_hidden {} is not in [0, 1]", count)));
  }
}

io::Plan plan_without_hidden() {
  io::Plan plan = small_plan();
  plan.hidden = {};
  return plan;
}
class NoHiddenTest : public HiddenTest {
 protected:
  NoHiddenTest() : HiddenTest(plan_without_hidden()) {}
};

TEST_F(NoHiddenTest, RowsThatAskForThemAreRefused) {
  EXPECT_EQ(harness_.runner().hidden_size(), 0);
  const Sequence sequence(0, kHiddenLimits);
  EXPECT_THAT(run({sequence.row(kHiddenText, 0, 1)}).status().ToString(),
              HasSubstr("num_hidden 1 is not in [0, 0]"));
  const StepMessage step =
      step_of({sequence.row(kHiddenText, 0, 1)}, 1, kHiddenLimits.block_tokens);
  EXPECT_TRUE(run(step).ok());
}

}  // namespace
}  // namespace nereid::exec
