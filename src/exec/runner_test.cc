// The runner on a small made-up plan with the reference kernels; real models are in golden_test.cc.
#include "exec/runner.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "exec/measure.h"
#include "exec/memory.h"
#include "exec/runner_fixture.h"
#include "tensor/cpu_device.h"
#include "tensor/wrapped_device.h"

namespace nereid::exec {
namespace {

using ::testing::HasSubstr;

TEST_F(RunnerTest, ChunkedPrefillIsBitForBitTheWhole) {
  const auto whole = harness_.prefill(Sequence(0, kLimits), kPrompt, 32);
  ASSERT_EQ(whole.size(), 32u);
  for (const int32_t chunk : {1, 2, 3, 5})
    EXPECT_EQ(harness_.prefill(Sequence(1, kLimits), kPrompt, chunk), whole) << chunk;
  Ids other = kPrompt;
  other[0] = 2;
  EXPECT_NE(harness_.prefill(Sequence(1, kLimits), other, 3), whole);
}

TEST_F(RunnerTest, AnObserverSeesWhatProductsRead) {
  std::vector<std::string> seen;
  bool goes_on = true;
  harness_.runner().set_observer([&](const std::string& weight, kernels::Linear& call) {
    seen.push_back(fmt::format("{} [{}, {}]", weight, call.x.rows, call.x.cols));
    return goes_on;
  });
  const auto logits = harness_.prefill(Sequence(0, kLimits), kPrompt, 32);
  const std::vector<std::string> all = seen;
  ASSERT_GE(all.size(), 2u);
  EXPECT_EQ(std::ranges::count(all, "proj [11, 32]"), 1);
  seen.clear();
  goes_on = false;
  harness_.prefill(Sequence(1, kLimits), kPrompt, 32);
  EXPECT_EQ(seen, std::vector<std::string>(all.begin(), all.begin() + 1));
  harness_.runner().set_observer({});
  EXPECT_EQ(harness_.prefill(Sequence(2, kLimits), kPrompt, 32), logits);
}

TEST_F(RunnerTest, AnObserverPutsOtherNumbersInAWeightsPlace) {
  const auto logits = harness_.prefill(Sequence(0, kLimits), kPrompt, 32);
  for (const bool zeros : {false, true}) {
    std::vector<uint64_t> numbers;  // aligned for any kernel
    harness_.runner().set_observer([&](const std::string& weight, kernels::Linear& call) {
      if (weight != "proj") return true;
      const auto* from = static_cast<const uint64_t*>(call.weight.data);
      const size_t words = kernels::stored_bytes(call.weight) / sizeof(uint64_t);
      numbers.assign(from, from + words);
      if (zeros) std::ranges::fill(numbers, 0);
      call.weight.data = numbers.data();
      return true;
    });
    const auto others = harness_.prefill(Sequence(1, kLimits), kPrompt, 32);
    EXPECT_EQ(others == logits, !zeros);
  }
  harness_.runner().set_observer({});
}

TEST_F(RunnerTest, BatchIsBitForBitTheSingle) {
  const Ids a = kPrompt, b = {4, 4, 4}, c = {31};
  std::vector<float> expected;
  for (const Ids& prompt : {a, b, c}) {
    const auto logits = harness_.prefill(Sequence(0, kLimits), prompt, 32);
    expected.insert(expected.end(), logits.begin(), logits.end());
  }
  const Sequence s0(0, kLimits), s1(1, kLimits), s2(2, kLimits), s3(3, kLimits);
  std::vector<float> batch;
  harness_.step({s3.row(a, 0, 1), s0.row(kPrompt, 0, 0), s1.row(b, 0, 1), s2.row(c, 0, 1)}, &batch);
  EXPECT_EQ(batch, expected);
}

TEST_F(RunnerTest, MoreLogitsThanSequences) {
  RunnerLimits limits = kLimits;
  limits.max_rows = 1;
  limits.max_logits = static_cast<int32_t>(kPrompt.size());
  Harness harness(engine_, limits, kernels::open_device("cpu", {.num_threads = 1}));
  std::vector<float> expected, all;
  for (size_t n = 1; n <= kPrompt.size(); ++n) {
    const Ids prefix(kPrompt.begin(), kPrompt.begin() + static_cast<ptrdiff_t>(n));
    const auto logits = harness_.prefill(Sequence(0, kLimits), prefix, 32);
    expected.insert(expected.end(), logits.begin(), logits.end());
  }
  harness.step({Sequence(0, limits).row(kPrompt, 0, limits.max_logits)}, &all);
  EXPECT_EQ(all, expected);
  const Ids longer(kPrompt.size() + 1, 3);
  const auto refused =
      launch(harness.runner(), {Sequence(0, limits).row(longer, 0, limits.max_logits + 1)});
  EXPECT_THAT(refused.status().ToString(), HasSubstr("12 logits; at most 11 are allowed"));
}

// The second step is launched before the first is done, with its input token on the device.
TEST_F(RunnerTest, PipelinedStepsEqualSynchronousOnes) {
  const Sequence sequence(1, kLimits);
  const Ids expected = harness_.generate(sequence, kPrompt, 8, 32);
  Ids got;
  const Ids on_device = {kTokenOnDevice};
  auto flying = launch(harness_.runner(), {sequence.row(kPrompt, 0, 1)});
  ASSERT_TRUE(flying.ok()) << flying.status();
  for (int i = 1; i <= 8; ++i) {
    const auto start = static_cast<int32_t>(kPrompt.size()) + i - 1;
    auto next = launch(harness_.runner(), {sequence.row(on_device, start, 1)});
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_THAT(launch(harness_.runner(), {sequence.row(on_device, start, 1)}).status().ToString(),
                HasSubstr("2 steps are in flight"));
    const auto drawn = harness_.finish(*flying);
    ASSERT_TRUE(drawn.ok()) << drawn.status();
    got.insert(got.end(), drawn->begin(), drawn->end());
    flying = std::move(next);
  }
  ASSERT_TRUE(harness_.runner().wait(*flying).ok());
  EXPECT_EQ(got, expected);
  EXPECT_FALSE(harness_.runner().wait(*flying).ok());  // empty after the first wait()
}

// Each position to sample has its own mask: the first draft is accepted, the second rejected.
TEST_F(RunnerTest, DraftsHaveMasksToo) {
  Runner& runner = harness_.runner();
  const Sequence sequence(1, kLimits);
  Ids tokens = kPrompt;
  tokens.insert(tokens.end(), {5, 6});
  StepMessage step = step_of({sequence.row(tokens, 0, 3)}, 1, kLimits.block_tokens);
  step.rows[0].num_drafts = 2;
  step.rows[0].has_mask = 1;
  std::vector<std::byte> message;
  encode(step, message);
  auto flying = runner.launch(message);
  ASSERT_TRUE(flying.ok()) << flying.status();
  const auto num_words = static_cast<size_t>(kernels::mask_words(runner.vocab_size()));
  Masks masks;
  masks.rows = {0};
  masks.words.resize(3 * num_words);
  for (const auto& [row, allowed] : {std::pair(0, 5), std::pair(1, 7), std::pair(2, 8)})
    masks.words[static_cast<size_t>(row) * num_words] = 1u << allowed;
  encode(masks, message);
  runner.draw(*flying, message);
  const StepResult results = runner.wait(*flying).value();
  ASSERT_EQ(results[0].drawn.size(), 2u);
  EXPECT_EQ(results[0].drawn[0].token, 5);
  EXPECT_EQ(results[0].drawn[1].token, 7);
}

// The next step is launched before the masks of the previous one are made; it samples with its own.
TEST_F(RunnerTest, StepsWithMasksAreDrawnInASecondCall) {
  Runner& runner = harness_.runner();
  const Sequence sequence(1, kLimits);
  const auto launch_masked = [&](const Ids& tokens, int32_t start) {
    StepMessage step = step_of({sequence.row(tokens, start, 1)}, 1, kLimits.block_tokens);
    step.rows[0].has_mask = 1;
    std::vector<std::byte> message;
    encode(step, message);
    return runner.launch(message);
  };
  const auto draw = [&](Ticket& ticket, int32_t row, uint32_t allowed) {
    Masks masks;
    masks.rows = {row};
    masks.words.resize(static_cast<size_t>(kernels::mask_words(runner.vocab_size())));
    masks.words[0] = 1u << allowed;
    std::vector<std::byte> message;
    encode(masks, message);
    runner.draw(ticket, message);
    message.assign(message.size(), std::byte{0xee});
  };
  Ids tokens = kPrompt;
  std::vector<std::vector<float>> logits;
  auto flying = launch_masked(tokens, 0);
  ASSERT_TRUE(flying.ok()) << flying.status();
  for (const uint32_t allowed : {3u, 9u, 30u}) {
    const auto start = static_cast<int32_t>(tokens.size());
    EXPECT_THAT(launch_masked({kTokenOnDevice}, start).status().ToString(),
                HasSubstr("waits for its masks"));
    draw(*flying, 0, allowed);
    auto next = launch_masked({kTokenOnDevice}, start);
    ASSERT_TRUE(next.ok()) << next.status();
    const StepResult results = runner.wait(*flying).value();
    EXPECT_EQ(results[0].drawn[0].token, static_cast<int32_t>(allowed));
    logits.emplace_back(results[0].logits.begin(), results[0].logits.end());
    tokens.push_back(static_cast<int32_t>(allowed));
    flying = std::move(next);
  }
  EXPECT_THAT(runner.wait(*flying).status().ToString(), HasSubstr("masks never came"));
  for (size_t i = 0; i < logits.size(); ++i) {
    const Ids known(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(kPrompt.size() + i));
    EXPECT_EQ(logits[i], harness_.prefill(Sequence(2, kLimits), known, 32)) << i;
  }
  auto refused = launch_masked(kPrompt, 0);
  draw(*refused, 1, 3);
  EXPECT_THAT(runner.wait(*refused).status().ToString(), HasSubstr("a mask of row 1"));
  auto plain = launch(runner, {sequence.row(kPrompt, 0, 1)});
  draw(*plain, 0, 3);
  EXPECT_THAT(runner.wait(*plain).status().ToString(), HasSubstr("waits for no masks"));
  auto last = launch_masked(kPrompt, 0);
  draw(*last, 0, 4);
  EXPECT_EQ(runner.wait(*last).value()[0].drawn[0].token, 4);
}

// Logits of all positions in one step equal those of successively longer prompts.
TEST_F(RunnerTest, LogitsOfEveryPosition) {
  const Sequence s0(0, kLimits), s1(1, kLimits), s2(2, kLimits);
  const Ids prompt = {4, 8, 30};
  std::vector<float> expected;
  for (size_t n = 1; n <= prompt.size(); ++n) {
    const auto logits = harness_.prefill(s0, Ids(prompt.begin(), prompt.begin() + n), 32);
    expected.insert(expected.end(), logits.begin(), logits.end());
  }
  const auto last = harness_.prefill(s0, kPrompt, 32);
  expected.insert(expected.end(), last.begin(), last.end());
  std::vector<float> got;
  harness_.step({s1.row(prompt, 0, 3), s2.row(kPrompt, 0, 1)}, &got);
  EXPECT_EQ(got, expected);
  EXPECT_THAT(launch(harness_.runner(), {s1.row(kPrompt, 0, 11)}).status().ToString(),
              HasSubstr("11 logits; at most 4"));
  EXPECT_THAT(launch(harness_.runner(), {s1.row(prompt, 0, 2)}).status().ToString(),
              HasSubstr("2 logits of 3 tokens"));
}

TEST_F(RunnerTest, ARowGivesWhatItAskedFor) {
  const Sequence s0(0, kLimits), s1(1, kLimits), s2(2, kLimits);
  const auto expected = harness_.prefill(s0, kPrompt, 32);
  StepMessage step = step_of({s0.row({{4, 4}}, 0, 0), s1.row(kPrompt, 0, 1), s2.row(kPrompt, 0, 1)},
                             1, kLimits.block_tokens);
  step.rows[1].samples = 0;
  step.rows[2].num_read = 0;
  std::vector<std::byte> message;
  encode(step, message);
  auto ticket = harness_.runner().launch(message);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  message.assign(message.size(), std::byte{0xee});
  const StepResult results = harness_.runner().wait(*ticket).value();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_TRUE(results[0].drawn.empty() && results[0].logits.empty());
  EXPECT_TRUE(results[1].drawn.empty());
  EXPECT_EQ(std::vector<float>(results[1].logits.begin(), results[1].logits.end()), expected);
  ASSERT_FALSE(results[2].drawn.empty());
  EXPECT_EQ(results[2].drawn[0].token, std::ranges::max_element(expected) - expected.begin());
  EXPECT_TRUE(results[2].logits.empty());
}

// A lost message, or missing memory for a slot load: only the slot's rows fail.
TEST_F(RunnerTest, OnlyRowsOfSlotsThatHoldNothingFail) {
  const Sequence s0(0, kLimits), s1(1, kLimits);
  const auto expected = harness_.prefill(s0, kPrompt, 32);
  StepMessage step =
      step_of({s1.row(kPrompt, 0, 1), s0.row(kPrompt, 0, 1)}, 1, kLimits.block_tokens);
  step.loads.erase(step.loads.begin());
  const auto run = [&](const char* error) {
    std::vector<std::byte> message;
    encode(step, message);
    auto ticket = harness_.runner().launch(message);
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    const StepResult results = harness_.runner().wait(*ticket).value();
    EXPECT_THAT(results[0].status.ToString(), HasSubstr(error));
    EXPECT_TRUE(results[0].drawn.empty() && results[0].logits.empty());
    ASSERT_TRUE(results[1].status.ok());
    EXPECT_EQ(std::vector<float>(results[1].logits.begin(), results[1].logits.end()), expected);
  };
  run("the slot has no sampling parameters");
  step.loads.push_back({.params = {.ngram = 2, .keeps_history = 1}, .slot = 1});
  step.histories = {{.slot = 1, .num_tokens = 2}};
  step.history_tokens = {1, 5};
  run("the slot's history has 2 tokens; sampling for position 11 needs them all");
}

// A sequence continues from copies of its blocks: within the device, and through the host pool with
// the device blocks overwritten in between.
TEST_F(RunnerTest, CopiedBlocksHoldTheSame) {
  RunnerLimits limits = kLimits;
  limits.num_host_blocks = 5;
  Harness harness(engine_, limits, kernels::open_device("cpu", {.num_threads = 2}));
  const auto copy = [&](const std::vector<BlockCopy>& copies) {
    auto ticket = launch(harness.runner(), {}, copies);
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    EXPECT_TRUE(harness.runner().wait(*ticket).ok());
  };
  Ids longer = kPrompt;
  longer.push_back(3);
  Sequence source(0, limits), target(1, limits);
  source.blocks = {10, 11, 12};
  target.blocks = {20, 30, 21};
  const auto expected = harness.prefill(source, longer, 32);
  const Ids last = {3};
  std::vector<float> got;

  harness.prefill(source, kPrompt, 32);
  copy({{10, 20}, {11, 30}, {12, 21}});
  harness.step({target.row(last, 11, 1)}, &got);
  EXPECT_EQ(got, expected);

  const int32_t host = limits.num_blocks[0];
  copy({{10, host + 1}, {11, host + 2}, {12, host + 3}});
  harness.prefill(source, {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9}, 32);
  harness.prefill(target, {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}, 32);
  // In order: block 21 is read before it is written, and a host block moves within the pool.
  copy({{host + 1, 21}, {21, 20}, {host + 2, 30}, {host + 3, host + 4}, {host + 4, 21}});
  harness.step({target.row(last, 11, 1)}, &got);
  EXPECT_EQ(got, expected);
  EXPECT_EQ(harness.runner().memory().back().bytes, 2u * 5 * 4 * 16 * 2);
}

// 8-bit caches, windows, sinks: the same equalities as the plain cache; unseen blocks are holes.
TEST_F(RunnerTest, CacheTypesAndWindowsAreExact) {
  for (const DType type : {DType::kBF16, DType::kI8, DType::kF8E4M3})
    for (const auto& [window, sink] : {std::pair{0, 0}, {5, 0}, {5, 2}}) {
      SCOPED_TRACE(fmt::format("{} window {} sink {}", name_of(type), window, sink));
      RunnerLimits limits = kLimits;
      limits.block_tokens = 2;
      limits.kv_type = type, limits.window = window, limits.sink = sink;
      Harness harness(engine_, limits, kernels::open_device("cpu", {.num_threads = 2}));
      const auto whole = harness.prefill(Sequence(0, limits), kPrompt, 32);
      for (const int32_t chunk : {1, 2, 3})
        EXPECT_EQ(harness.prefill(Sequence(1, limits), kPrompt, chunk), whole) << chunk;
      Sequence holes(2, limits);
      harness.prefill(holes, Ids(kPrompt.begin(), kPrompt.end() - 1), 32);
      for (int32_t b = (sink + 1) / 2; window > 0 && 2 * (b + 1) <= 11 - window; ++b)
        holes.blocks[b] = kNoBlock;
      std::vector<float> logits;
      harness.step(
          {Sequence(3, limits).row({{4, 4}}, 0, 0), holes.row(std::span(kPrompt).last(1), 10, 1)},
          &logits);
      EXPECT_EQ(logits, whole);
      EXPECT_EQ(whole == harness_.prefill(Sequence(0, kLimits), kPrompt, 32),
                type == DType::kBF16 && window == 0);
    }
}

TEST_F(RunnerTest, MisuseIsRefused) {
  const Ids bad = {32};
  const Sequence sequence(0, kLimits);
  EXPECT_THAT(launch(harness_.runner(), {sequence.row(bad, 0, 1)}).status().ToString(),
              HasSubstr("row 0: token 32"));
  EXPECT_FALSE(launch(harness_.runner(), {}).ok());
  const BlockCopy outside = {0, kLimits.num_blocks[0]};
  EXPECT_THAT(launch(harness_.runner(), {}, {outside}).status().ToString(),
              HasSubstr("copy 0: block 64 is not in [0, 64)"));
}

TEST_F(RunnerTest, ProfileCountsCallsAndBytes) {
  const Sequence sequence(0, kLimits);
  EXPECT_TRUE(harness_.runner().profile().empty());
  const auto expected = harness_.prefill(sequence, kPrompt, 32);
  harness_.runner().set_profiling(true);
  EXPECT_EQ(harness_.prefill(sequence, kPrompt, 32), expected);
  harness_.prefill(sequence, kPrompt, 32);
  bool seen = false;
  for (const OpTime& time : harness_.runner().profile()) {
    EXPECT_GT(time.num_calls, 0);
    EXPECT_GT(time.seconds, 0);
    if (time.op != "linear" || time.shape != "bf16 [64, 32]") continue;
    seen = true;
    EXPECT_EQ(time.num_calls, 2);
    EXPECT_EQ(time.bytes, 2u * 64 * 32 * sizeof(BF16));
    EXPECT_EQ(time.flops, 2.0 * 2 * 64 * 32 * std::size(kPrompt));
  }
  EXPECT_TRUE(seen);
  harness_.runner().set_profiling(false);
  EXPECT_TRUE(harness_.runner().profile().empty());
}

TEST_F(RunnerTest, MeasuresSteps) {
  const auto cost = measure_steps(harness_.runner(), {4, 20, 3}, 5);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_GT(cost->seconds, 0);
  ASSERT_FALSE(cost->ops.empty());
  for (const OpTime& op : cost->ops)
    if (op.op == "attention") {
      EXPECT_EQ(op.num_calls, 1);
      EXPECT_EQ(op.bytes, 4u * 23 * 2 * 16 * sizeof(BF16));
    }
  const auto mixed = measure_steps(harness_.runner(), {3, 20, 1, 7}, 5);
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  for (const OpTime& op : mixed->ops)
    if (op.op == "attention") {
      EXPECT_EQ(op.bytes, (3u * 21 + 7) * 2 * 16 * sizeof(BF16));
    }
  const auto drawn = measure_steps(harness_.runner(),
                                   {.batch = 4, .context = 20, .sampling = {{.top_p = 0.9f}}}, 5);
  EXPECT_TRUE(drawn.ok()) << drawn.status();
  EXPECT_FALSE(
      measure_steps(harness_.runner(), {.context = 20, .sampling = {{.repetition = -1}}}, 5).ok());
  EXPECT_FALSE(measure_steps(harness_.runner(), {4, 62, 3}, 5).ok());
  EXPECT_FALSE(measure_steps(harness_.runner(), {3, 20, 1, 65}, 5).ok());
  EXPECT_FALSE(measure_steps(harness_.runner(), {5, 20, 3}, 5).ok());
  EXPECT_EQ(harness_.prefill(Sequence(0, kLimits), kPrompt, 32).size(),
            32u);  // the runner is usable
}

// A device whose memory starts full of NaN: results must not depend on it.
class PoisonedDevice : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  StatusOr<Buffer> allocate(size_t bytes) override { return poisoned(inner().allocate(bytes)); }
  StatusOr<Buffer> allocate_host(size_t bytes) override {
    return poisoned(inner().allocate_host(bytes));
  }

 private:
  static StatusOr<Buffer> poisoned(StatusOr<Buffer> buffer) {
    if (buffer.ok()) std::memset(buffer->data(), 0xff, buffer->size());
    return buffer;
  }
};

TEST_F(RunnerTest, ResultsDoNotDependOnOldMemory) {
  const auto expected = harness_.prefill(Sequence(0, kLimits), kPrompt, 32);
  PoisonedDevice device(harness_.device());
  auto runner = make_runner(engine_, device, harness_.registry(), kLimits);
  ASSERT_TRUE(runner.ok()) << runner.status();
  auto ticket = launch(**runner, {Sequence(2, kLimits).row(kPrompt, 0, 1)});
  ASSERT_TRUE(ticket.ok());
  const StepResult results = (*runner)->wait(*ticket).value();
  const std::vector<float> logits(results[0].logits.begin(), results[0].logits.end());
  EXPECT_EQ(logits, expected);
}

TEST_F(RunnerTest, MemoryTableNamesEverything) {
  const auto table = harness_.runner().memory();
  ASSERT_EQ(table.size(), 8u);
  EXPECT_EQ(table[0].what, "weights");
  EXPECT_EQ(table[1].what, "KV cache");
  EXPECT_EQ(table[1].bytes, 2u * kLimits.num_blocks[0] * 4 * 16 * 2);
  EXPECT_EQ(table[4].what, "sampling");
  EXPECT_EQ(table[5].bytes, 64u * 16 * 4);
  EXPECT_EQ(table[6].what, "kernel workspace");
  EXPECT_EQ(table[6].bytes, 0u);
  EXPECT_EQ(table[7].bytes, 0u);
}

}  // namespace
}  // namespace nereid::exec
