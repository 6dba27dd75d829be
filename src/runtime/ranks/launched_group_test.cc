#include "runtime/ranks/launched_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/ranks/rendezvous.h"
#include "runtime/ranks/testing/launched_processes.h"

namespace nereid::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RankProcessOptions launched_options(std::vector<int32_t> participants) {
  RankProcessOptions options = exchange_options(static_cast<int32_t>(participants.size()) + 1);
  options.participants = std::move(participants);
  return options;
}

Peer lead(const LaunchedProcesses& launched, int32_t rank) {
  Peer peer = connect_to(launched.job(), rank, now() + LaunchedProcesses::kForever).value();
  const auto kind = PeerMessageKind::kLead;
  EXPECT_TRUE(send_to(peer, std::as_bytes(std::span(&kind, 1))).ok());
  return peer;
}

std::string end_of(ChildProcess& process) {
  return process.ended(LaunchedProcesses::kForever).value_or("goes on");
}

// Ranks of two models at once, one after the other, and in another order.
TEST(LaunchedGroup, ProcessesRunTheRanksOfModels) {
  LaunchedProcesses launched(3);
  launched.start(2);
  auto group = LaunchedGroup::lead(launched.job()).value();
  std::thread late([&] { launched.start(1); });
  {
    ExchangeRanks first, second;
    Status opened = first.open(launched_options({1, 2}));
    late.join();
    ASSERT_TRUE(opened.ok()) << opened;
    opened = second.open(launched_options({2, 1}));
    ASSERT_TRUE(opened.ok()) << opened;
    EXPECT_EQ(first.processes->process(1), launched[1].id());
    EXPECT_EQ(second.processes->process(1), launched[2].id());
    for (int turn = 0; turn < 3; ++turn)
      for (ExchangeRanks* const ranks : {&first, &second}) {
        const Status ran = ranks->run(100);
        EXPECT_TRUE(ran.ok()) << ran;
      }
  }
  ExchangeRanks again;
  const Status opened = again.open(launched_options({2}));
  ASSERT_TRUE(opened.ok()) << opened;
  EXPECT_TRUE(again.run(100).ok());
  again.group.reset();
  again.processes.reset();
  group.reset();
  for (const int32_t rank : {1, 2}) EXPECT_EQ(end_of(launched[rank]), "has ended with exit code 0");
}

TEST(LaunchedGroup, AProcessEndsWithProcess0) {
  for (const bool in_order : {false, true}) {
    LaunchedProcesses launched(2);
    launched.start(1);
    {
      const Peer peer = lead(launched, 1);
      EXPECT_EQ(peer.process.id(), launched[1].id());
      const auto kind = PeerMessageKind::kEnd;
      const Status sent = in_order ? send_to(peer, std::as_bytes(std::span(&kind, 1))) : ok();
      EXPECT_TRUE(sent.ok()) << sent;
    }
    EXPECT_EQ(end_of(launched[1]), fmt::format("has ended with exit code {}", in_order ? 0 : 1));
  }
}

TEST(LaunchedGroup, AProcessDoesNotWaitForEver) {
  LaunchedProcesses launched(2);
  EXPECT_EQ(end_of(launched.start(1, /*meet_ms=*/50)), "has ended with exit code 1");
  RankProcessOptions options = launched_options({1});
  options.meet_limit = std::chrono::milliseconds(50);
  EXPECT_THAT(ExchangeRanks().open(options).ToString(),
              AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("process 1 of 2 (nereid)")));
}

TEST(LaunchedGroup, ASignalAsksProcess0) {
  for (const int signal : {SIGTERM, SIGINT}) {
    LaunchedProcesses launched(2);
    launched.start(1);
    const Peer peer = lead(launched, 1);
    ExchangeRanks ranks;
    ASSERT_TRUE(ranks.open(launched_options({1})).ok());
    ::kill(launched[1].id(), signal);
    EXPECT_TRUE(receive_from(peer, LaunchedProcesses::kForever).ok());
    EXPECT_TRUE(ranks.run(10).ok()) << "it works until process 0 ends";
  }
}

// The request of another process becomes a signal of this one.
TEST(LaunchedGroup, Process0GetsASignal) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  LaunchedProcesses launched(2);
  launched.start(1);
  ASSERT_TRUE(connect_to(launched.job(), 1, now() + LaunchedProcesses::kForever).ok());
  const auto group = LaunchedGroup::lead(launched.job()).value();
  ::kill(launched[1].id(), SIGTERM);
  const timespec limit{60, 0};
  EXPECT_EQ(::sigtimedwait(&stop, nullptr, &limit), SIGTERM);
  ::pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
}

void check_launched_failure(int signal, const std::string& what) {
  LaunchedProcesses launched(3);
  launched.start(1);
  launched.start(2);
  ExchangeRanks ranks;
  ASSERT_TRUE(ranks.open(launched_options({1, 2})).ok());
  ASSERT_TRUE(ranks.run(20).ok());
  Status status;
  std::thread steps([&] { status = ranks.run(1 << 30); });
  ::kill(launched[2].id(), signal);
  steps.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.ToString(),
              HasSubstr(fmt::format("rank 2 (process {}) {}", launched[2].id(), what)));
  EXPECT_FALSE(ranks.health.failure().ok());
  EXPECT_EQ(end_of(launched[2]), "was killed by signal 9 (Killed)");
  EXPECT_EQ(launched[1].ended(Duration()), std::nullopt) << "the others go on";
}

TEST(LaunchedGroup, AKilledProcessIsNamed) { check_launched_failure(SIGKILL, "has ended"); }

TEST(LaunchedGroup, ASuspendedProcessIsNamedAndKilled) {
  check_launched_failure(SIGSTOP, "gave no sign of life for 1 s and was killed");
}

TEST(LaunchedGroup, ASuspendedProcess0IsKilled) {
  LaunchedProcesses launched(2);
  launched.start(1);
  const pid_t leader = ::fork();
  ASSERT_GE(leader, 0);
  if (leader == 0) {
    ExchangeRanks ranks;
    if (!ranks.open(launched_options({1})).ok()) std::_Exit(1);
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ::raise(SIGSTOP);
    }
  }
  // The silence of a leader counts from its first sign of life on: one that is suspended before
  // goes on after 3 s, up to 20 times.
  int status = 0;
  pid_t ended = 0;
  for (int look = 1; ended == 0 && look <= 20 * 60; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ended = ::waitpid(leader, &status, WNOHANG);
    if (ended == 0 && look % 60 == 0) ::kill(leader, SIGCONT);
  }
  if (ended == 0) ::kill(leader, SIGKILL);
  ASSERT_EQ(ended, leader);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST(LaunchedGroup, WrongParticipantsAreRefused) {
  const auto refusal = [](const std::vector<int32_t>& participants) {
    return ExchangeRanks().open(launched_options(participants)).ToString();
  };
  EXPECT_THAT(refusal({1}), HasSubstr("neither mpirun nor srun has started several processes"));
  const LaunchedProcesses launched(3);
  EXPECT_THAT(refusal({0}), HasSubstr("participant_ids: '0': expected are different processes"));
  EXPECT_THAT(refusal({1, 3}), HasSubstr("from 1 to 2"));
  EXPECT_THAT(refusal({1, 1}), HasSubstr("participant_ids: '1,1'"));
  RankProcessOptions options = exchange_options(3);
  options.participants = {1};
  EXPECT_THAT(ExchangeRanks().open(options).ToString(), HasSubstr("1 processes for 2 ranks"));
}

TEST(Rendezvous, MessagesCarryDescriptors) {
  const LaunchedProcesses launched(2);
  const LaunchedJob job = launched.job();
  const comm::Descriptor listener = listen_as(job).value();
  EXPECT_EQ(listen_as(job).status().code(), absl::StatusCode::kAlreadyExists);
  const Peer near = connect_to(job, 0, now()).value();
  const Peer far = accept_from(listener).value();
  EXPECT_EQ(near.process.id(), ::getpid());
  EXPECT_EQ(far.process.id(), ::getpid());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::vector<std::byte> text(7, std::byte{42});
  ASSERT_TRUE(send_to(near, text, std::vector<int>(3, ends[0])).ok());
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  const auto received = receive_from(far, LaunchedProcesses::kForever).value();
  EXPECT_EQ(received.bytes, text);
  ASSERT_EQ(received.descriptors.size(), 3u);
  char got = 0;
  EXPECT_EQ(::read(received.descriptors[2].get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
  for (const int end : ends) ::close(end);
}

TEST(Rendezvous, WrongMessagesAreErrors) {
  const LaunchedProcesses launched(2);
  const comm::Descriptor listener = listen_as(launched.job()).value();
  Peer near = connect_to(launched.job(), 0, now()).value();
  const Peer far = accept_from(listener).value();
  EXPECT_EQ(receive_from(far, Duration()).status().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(send_to(near, std::vector<std::byte>(kMaxPeerBytes + 1)).ok());
  EXPECT_EQ(receive_from(far, Duration()).status().code(), absl::StatusCode::kDataLoss);
  near.socket = comm::Descriptor();
  EXPECT_EQ(receive_from(far, Duration()).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace nereid::runtime
