#include "runtime/ranks/rank_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/ranks/remote_runner.h"
#include "runtime/ranks/testing/exchange_ranks.h"

namespace nereid::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RankProcesses, RunSteps) {
  {
    ExchangeRanks ranks;
    const Status opened = ranks.open(exchange_options(3));
    ASSERT_TRUE(opened.ok()) << opened;
    const Status ran = ranks.run(500);
    EXPECT_TRUE(ran.ok()) << ran;
    EXPECT_TRUE(ranks.health.failure().ok());
    const auto figures = ranks.group->ranks();
    ASSERT_EQ(figures.size(), 3u);
    for (int32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(figures[static_cast<size_t>(rank)].rank, rank);
      EXPECT_EQ(figures[static_cast<size_t>(rank)].num_steps, 500);
    }
    EXPECT_EQ(ranks.group->memory().size(), 3u);
    EXPECT_EQ(ranks.processes->device(2).info().id(), "cpu");
    EXPECT_GT(ranks.processes->device(2).free_bytes(), 0u);
  }
  EXPECT_TRUE(has_no_children());
}

// The whole model in one process of its own; rows come back.
TEST(RankProcesses, OneProcessDraws) {
  RankProcessOptions options = exchange_options(1);
  options.first = 0;
  const auto processes = RankProcesses::start(options, nullptr).value();
  const std::filesystem::path engine = "any";
  ASSERT_TRUE(processes->begin_load({&engine, 1}, {}).ok());
  const auto runners = processes->finish_load().value();
  ASSERT_EQ(runners.size(), 1u);
  exec::Runner& runner = *runners[0];
  EXPECT_TRUE(runner.draws());
  EXPECT_EQ(runner.limits().depth, kExchangeDepth);
  EXPECT_EQ(runner.groups()[0].window, 3);
  EXPECT_EQ(runner.embedding_width(), 8);
  // One step in flight, then as many as there may be.
  for (const int32_t num_flying : {1, 2, 1}) {
    std::vector<exec::Ticket> flying;
    for (int32_t i = 0; i < num_flying; ++i)
      flying.push_back(runner.launch(exchange_step(10 + i)).value());
    if (num_flying == 2) {
      EXPECT_THAT(runner.launch(exchange_step(1)).status().ToString(), HasSubstr("in flight"));
    }
    for (int32_t i = 0; i < num_flying; ++i) {
      const auto result = runner.wait(flying[static_cast<size_t>(i)]);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ((*result)[0].drawn[0].token, 10 + i);
    }
  }
  EXPECT_EQ(runner.onboarded(true), std::nullopt);
  exec::Ticket bad = runner.launch(std::vector<std::byte>(8)).value();
  EXPECT_EQ(runner.wait(bad).status().code(), absl::StatusCode::kInvalidArgument);
}

std::string name_of(const RankProcesses& processes, int32_t rank) {
  return fmt::format("rank {} (process {})", rank, processes.process(rank));
}

// The first process is the last one to be started, so that all of them have been a victim.
void check_failure(int signal, const std::string& what) {
  for (const int32_t victim : {1, 2}) {
    {
      ExchangeRanks ranks;
      ASSERT_TRUE(ranks.open(exchange_options(3)).ok());
      ASSERT_TRUE(ranks.run(20).ok());
      Status status;
      std::thread steps([&] { status = ranks.run(1 << 30); });
      ::kill(static_cast<pid_t>(ranks.processes->process(victim)), signal);
      steps.join();
      const std::string expected = name_of(*ranks.processes, victim) + what;
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(status.ToString(), HasSubstr(expected));
      EXPECT_THAT(ranks.health.failure().ToString(),
                  AllOf(HasSubstr("the group of ranks has failed"), HasSubstr(expected)));
      EXPECT_EQ(ranks.group->launch(exchange_step(1)).status(), ranks.health.failure());
    }
    EXPECT_TRUE(has_no_children());
  }
}

TEST(RankProcesses, AKilledProcessIsNamed) {
  check_failure(SIGKILL, " was killed by signal 9 (Killed)");
}

TEST(RankProcesses, ASuspendedProcessIsNamedAndKilled) {
  check_failure(SIGSTOP, " gave no sign of life for 1 s and was killed");
}

TEST(RankProcesses, AnIdleGroupFailsToo) {
  ExchangeRanks ranks;
  ASSERT_TRUE(ranks.open(exchange_options(2)).ok());
  ::kill(static_cast<pid_t>(ranks.processes->process(1)), SIGKILL);
  while (ranks.health.failure().ok()) std::this_thread::yield();
  EXPECT_THAT(ranks.health.failure().ToString(), HasSubstr(name_of(*ranks.processes, 1)));
  EXPECT_FALSE(ranks.processes->device(1).health().failure().ok());
}

TEST(RankProcesses, StartsSayWhatIsWrong) {
  const auto message = [](const RankProcessOptions& options) {
    return ExchangeRanks().open(options).ToString();
  };
  RankProcessOptions options = exchange_options(3);
  options.devices[2] = "tpu";
  EXPECT_THAT(message(options), HasSubstr("rank 2: device 'tpu' is not 'cpu'"));
  options = exchange_options(3);
  options.program = "/no/such/program";
  EXPECT_THAT(message(options), HasSubstr("/no/such/program: No such file"));
  options.program = "/bin/false";
  EXPECT_THAT(message(options),
              AllOf(HasSubstr("rank 1"), HasSubstr("has ended with exit code 1")));
  options = exchange_options(3);
  options.devices.pop_back();
  EXPECT_THAT(message(options), HasSubstr("devices: 2 for 3 ranks"));
  options = exchange_options(1);
  options.tp = 100;
  EXPECT_THAT(message(options), HasSubstr("tp 100 * pp 1"));
  const auto processes = RankProcesses::start(exchange_options(2), nullptr).value();
  const std::vector<std::filesystem::path> engines(2, "missing");
  ASSERT_TRUE(processes->begin_load(engines, {}).ok());
  EXPECT_THAT(processes->finish_load().status().ToString(),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("rank 1: missing")));
}

// Workers end with a leader that was killed, also suspended ones. They then become children of this
// process, which waits for each.
TEST(RankProcesses, NoProcessOutlivesItsLeader) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  for (const bool suspended : {false, true}) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t leader = ::fork();
    ASSERT_GE(leader, 0);
    if (leader == 0) {
      ExchangeRanks ranks;
      const bool is_open = ranks.open(exchange_options(4)).ok();
      for (int32_t rank = 1; is_open && suspended && rank < 4; ++rank)
        ::kill(static_cast<pid_t>(ranks.processes->process(rank)), SIGSTOP);
      const char answer = is_open ? 'y' : 'n';
      if (::write(ready[1], &answer, 1) != 1) std::_Exit(1);
      ranks.run(1 << 30).IgnoreError();
      std::_Exit(0);
    }
    char answer = 0;
    ASSERT_EQ(::read(ready[0], &answer, 1), 1);
    ASSERT_EQ(answer, 'y');
    ::kill(leader, SIGKILL);
    int num_ended = 0;
    while (::waitpid(-1, nullptr, 0) > 0) ++num_ended;
    EXPECT_EQ(num_ended, 4);
    for (const int end : ready) ::close(end);
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

// Its clients' connections end with it, and so do its workers.
TEST(RankProcesses, ASuspendedLeaderIsKilled) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const pid_t leader = ::fork();
  ASSERT_GE(leader, 0);
  if (leader == 0) {
    ExchangeRanks ranks;
    if (!ranks.open(exchange_options(3)).ok() || !ranks.run(20).ok()) std::_Exit(1);
    while (true) ::raise(SIGSTOP);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(leader, &status, 0), leader);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  int num_ended = 0;
  while (::waitpid(-1, nullptr, 0) > 0) ++num_ended;
  EXPECT_EQ(num_ended, 2);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

// A process that takes longer than the limit of silence to end hears signs of life until then.
TEST(RankProcesses, ASlowEndIsNoSilenceOfTheLeader) {
  const pid_t leader = ::fork();
  ASSERT_GE(leader, 0);
  if (leader == 0) {
    RankProcessOptions options = exchange_options(1);
    options.first = 0;
    auto processes = RankProcesses::start(options, nullptr).value();
    const std::filesystem::path engine = kSlowToEnd;
    if (!processes->begin_load({&engine, 1}, {}).ok()) std::_Exit(1);
    auto runners = processes->finish_load().value();
    runners.clear();
    processes.reset();
    std::_Exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(leader, &status, 0), leader);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// A worker without a process.
class TestLink final : public WorkerLink {
 public:
  explicit TestLink(int socket) : channel_(comm::Descriptor(socket)) {}
  Channel& channel() override { return channel_; }
  Status failure() const override { return failure_; }
  Status explain(const Status& error) override { return error; }
  void fail(const Status& error) override { failure_ = unavailable("rank 1 {}", message(error)); }
  void abort(const Status&) override {}

 private:
  Channel channel_;
  Status failure_;
};

TEST(RemoteRunner, FindsAWorkerThatIsOutOfStep) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Channel theirs{comm::Descriptor(ends[1])};
  const auto device = make_cpu_device({.num_threads = 1}).value();
  ExchangeRunner inner(*device, {});
  std::thread worker([&] { EXPECT_TRUE(serve_rank(theirs, inner).ok()); });
  const auto link = std::make_shared<TestLink>(ends[0]);
  RemoteRunner runner(link, model_of(inner));
  for (int32_t step = 1; step <= 3; ++step) {
    exec::Ticket ticket = runner.launch(exchange_step(step)).value();
    EXPECT_TRUE(runner.wait(ticket).ok());
  }
  ASSERT_TRUE(
      link->channel().send(Kind::kStep, exchange_step(5)).ok());  // that the runner did not send
  exec::Ticket ticket = runner.launch(exchange_step(4)).value();
  EXPECT_THAT(runner.wait(ticket).status().ToString(),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 1 is out of step")));
  EXPECT_EQ(runner.launch(exchange_step(6)).status(), link->failure());
  link->channel().close();
  worker.join();
}

}  // namespace
}  // namespace nereid::runtime
