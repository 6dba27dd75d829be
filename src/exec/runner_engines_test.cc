// Engines that do not fit, are changed, or shrink in use.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <thread>

#include "base/check.h"
#include "exec/runner_fixture.h"
#include "tensor/cpu_device.h"

namespace nereid::exec {
namespace {

using ::testing::HasSubstr;

TEST_F(RunnerTest, RefusesEnginesThatDoNotFit) {
  const auto error = [&](const std::function<void(io::Plan&)>& change, RunnerLimits limits) {
    io::Plan plan = small_plan();
    change(plan);
    const auto path = write_engine(plan, "changed");
    return make_runner(path, harness_.device(), harness_.registry(), limits).status().ToString();
  };
  const auto none = [](io::Plan&) {};
  EXPECT_THAT(error([](io::Plan& p) { p.device = "cuda"; }, kLimits),
              HasSubstr("built for 'cuda', the device is 'cpu'"));
  EXPECT_THAT(error([](io::Plan& p) { p.calls[1].kernel = "turbo"; }, kLimits),
              HasSubstr("call 1: kernel 'norm:turbo' is not known on cpu; known: "));
  EXPECT_THAT(error(none, {4, 32, 65, 16, 4}), HasSubstr("max_sequence_length: 65"));
  EXPECT_THAT(error(none, {4, 32, 64, 0, 4}), HasSubstr("num_blocks: 0"));
  EXPECT_THAT(error(none, {4, 32, 64, 2000000000, 1024}), HasSubstr("GiB"));
  EXPECT_THAT(make_runner("/nowhere.engine", harness_.device(), harness_.registry(), kLimits)
                  .status()
                  .ToString(),
              HasSubstr("/nowhere.engine"));
}

// Setters of every number in a plan.
std::vector<std::function<void(int64_t)>> knobs(io::Plan& plan) {
  std::vector<std::function<void(int64_t)>> out;
  const auto add = [&out](auto& field) {
    out.push_back([&field](int64_t x) { field = static_cast<std::decay_t<decltype(field)>>(x); });
  };
  io::ModelFacts& m = plan.model;
  for (int32_t* field : {&m.vocab_size, &m.hidden_size, &m.num_layers, &m.num_heads,
                         &m.num_kv_heads, &m.head_dim, &m.latent, &m.max_positions})
    add(*field);
  for (io::Value& v : plan.values) {
    for (int64_t* field : {&v.cols, &v.stride, &v.column, &v.offset}) add(*field);
    out.push_back([&v](int64_t x) { v.dtype = static_cast<DType>(x & 1); });
    out.push_back([&v](int64_t x) { v.extent = static_cast<io::RowCount>(x & 1); });
  }
  for (int64_t& bytes : plan.arena_bytes_per_row) add(bytes);
  add(plan.logits);
  for (io::Call& call : plan.calls)
    std::visit(
        [&](auto& op) {
          kernels::for_fields(op, [&](const auto&, auto& x) {
            using Operand = std::remove_cvref_t<decltype(x)>;
            if constexpr (std::is_same_v<Operand, kernels::Id>) add(x.index);
            if constexpr (std::is_same_v<Operand, int32_t>) add(x);
            if constexpr (std::is_same_v<Operand, kernels::Heads>)
              add(x.num), add(x.num_kv), add(x.dim), add(x.latent);
          });
        },
        call.op);
  return out;
}

// Hostile plans are refused, or run without access to foreign memory (checked by sanitizer builds);
// their results are arbitrary.
TEST_F(RunnerTest, ChangedPlansAreRefusedOrHarmless) {
  std::mt19937_64 random(7);
  constexpr int64_t kInteresting[] = {-1,
                                      0,
                                      1,
                                      2,
                                      3,
                                      4,
                                      5,
                                      6,
                                      7,
                                      15,
                                      16,
                                      31,
                                      32,
                                      33,
                                      63,
                                      64,
                                      65,
                                      128,
                                      192,
                                      320,
                                      448,
                                      576,
                                      1 << 20,
                                      int64_t{1} << 31,
                                      int64_t{1} << 40,
                                      int64_t{-1} << 63};
  int num_run = 0, num_refused = 0;
  for (int round = 0; round < 400; ++round) {
    io::Plan plan = small_plan();
    const auto turn = knobs(plan);
    for (int i = 0; i <= round % 2; ++i)
      turn[random() % turn.size()](kInteresting[random() % std::size(kInteresting)]);
    // The check of every opened file.
    if (!io::check_plan(plan).ok()) {
      ++num_refused;
      continue;
    }
    const auto path = write_engine(plan, "hostile");
    auto runner = make_runner(path, harness_.device(), harness_.registry(), kLimits);
    if (!runner.ok()) {
      ++num_refused;
      continue;
    }
    ++num_run;
    const Sequence sequence(3, kLimits);
    auto ticket = launch(**runner, {sequence.row(kPrompt, 50, 1)});
    if (ticket.ok()) (*runner)->wait(*ticket).IgnoreError();
  }
  EXPECT_GT(num_run, 20);
  EXPECT_GT(num_refused, 200);
}

// Weights are hashed once, at opening.
TEST_F(RunnerTest, AnOpenFileIsNotVerifiedAgain) {
  const auto path = test_directory() / "altered.engine";
  std::filesystem::copy(engine_, path);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put('\x7f');
  EXPECT_THAT(
      make_runner(path, harness_.device(), harness_.registry(), kLimits).status().ToString(),
      HasSubstr("is damaged"));
  auto file = io::EngineFile::open(path, io::Verify::kHeader);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto runner =
      make_runner(*std::move(file), harness_.device(), harness_.registry(), kLimits);
  EXPECT_TRUE(runner.ok()) << runner.status();
}

kernels::AlgorithmChoices g_used;

// Measured kernel choices are passed to the device; one without use for them ignores them.
TEST_F(RunnerTest, TheDeviceGetsWhatWasMeasuredOfProducts) {
  kernels::Registry registry = harness_.registry();
  registry.tuner.use = [](const kernels::AlgorithmChoices& choices, Stream&) { g_used = choices; };
  const auto runner = make_runner(engine_, harness_.device(), registry, kLimits);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const kernels::AlgorithmChoices given = small_plan().choices;
  EXPECT_EQ(g_used.library, given.library);
  EXPECT_EQ(g_used.device, given.device);
  ASSERT_EQ(g_used.products.size(), 1u);
  EXPECT_EQ(g_used.products[0].rows, given.products[0].rows);
  EXPECT_EQ(g_used.products[0].algorithm, given.products[0].algorithm);
}

// A file copied over an engine in use: mapped pages, and so the weights, are lost.
TEST_F(RunnerTest, AnEngineThatShrinksIsAnErrorOfTheStep) {
  const auto path = test_directory() / "shrinking.engine";
  std::filesystem::copy(engine_, path);
  const auto device = make_cpu_device({.num_threads = 1}).value();
  const auto runner = make_runner(path, *device, harness_.registry(), kLimits);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto step = [&]() -> Status {
    const Sequence sequence(0, kLimits);
    auto ticket = launch(**runner, {sequence.row(kPrompt, 0, 1)});
    RETURN_IF_ERROR(ticket.status());
    return (*runner)->wait(*ticket).status();
  };
  EXPECT_TRUE(step().ok());
  std::filesystem::resize_file(path, 0);
  const std::string what = path.string() + " has become smaller while it was in use";
  EXPECT_EQ(step(), data_loss("{}", what));
  EXPECT_EQ(device->health().failure(), unavailable("device cpu has failed: {}", what));
  EXPECT_EQ(step(), device->health().failure());
}

// A call that never returns: the step fails after the device's timeout; the runner is leaked.
TEST_F(RunnerTest, AStepThatHangsEndsAndItsRunnerStays) {
  std::shared_ptr<Device> device = make_cpu_device({.num_threads = 1}).value();
  keep_for_ever(device);
  auto runner = make_runner(engine_, *device, harness_.registry(), kLimits).value();
  std::promise<void> release;
  std::atomic<bool> over = false;
  runner->set_observer(
      [&, released = release.get_future().share()](const std::string&, kernels::Linear& call) {
        if (over) return false;
        released.wait();
        std::memset(call.out.data, 0, sizeof(float));  // its memory is still allocated
        over = true;
        return false;
      });
  device->health().set_timeout(std::chrono::milliseconds(40));
  const Sequence sequence(0, kLimits);
  auto ticket = launch(*runner, {sequence.row(kPrompt, 0, 1)});
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  const Status expected = unavailable(
      "device cpu has failed: it has made no progress for 0.04 s (device_timeout_secs)");
  EXPECT_EQ(runner->wait(*ticket).status(), expected);
  EXPECT_EQ(launch(*runner, {sequence.row(kPrompt, 0, 1)}).status(), expected);
  runner.reset();
  EXPECT_FALSE(over);
  release.set_value();
  while (!over) std::this_thread::yield();
}

}  // namespace
}  // namespace nereid::exec
