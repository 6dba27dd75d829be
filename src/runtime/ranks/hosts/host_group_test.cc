#include "runtime/ranks/hosts/host_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/scratch_dir.h"
#include "runtime/ranks/hosts/hello_threads.h"
#include "runtime/ranks/hosts/joined_process.h"
#include "runtime/ranks/launched_job.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kToken = "a token of some length";

class HostSocket : public ::testing::Test {
 protected:
  // The results of dial_host() and meet_host() with each other.
  std::pair<Status, Status> meet(const HostSecrets& dials, const HostSecrets& accepts,
                                 json::object hello = {{"kind", "test"}}) {
    const auto listener = listen_at({"127.0.0.1", 0}).value();
    Status accepted;
    std::thread other([&] {
      auto connection = meet_host(accept_socket(listener).value(), accepts);
      accepted = connection.status();
      if (connection.ok()) {
        EXPECT_FALSE(connection->message.contains("token"));
        accepted = send_frame(connection->socket, {{"kind", connection->message["kind"]}});
      }
    });
    const auto dialled = dial_host({"127.0.0.1", local_port(listener)}, dials, std::move(hello),
                                   now() + std::chrono::seconds(60));
    other.join();
    if (dialled.ok()) {
      EXPECT_EQ(text_field(dialled->message, "kind").value(), "test");
    }
    return {dialled.status(), accepted};
  }

  std::filesystem::path write(const std::string& text) const {
    const auto path = scratch_.path() / "token";
    std::ofstream(path) << text;
    return path;
  }

  const ScratchDir scratch_ = ScratchDir::create().value();
};

TEST_F(HostSocket, ProcessesMeetByTokenAndVersion) {
  const HostSecrets right{kToken, {}}, wrong{"another token, longer", {}};
  const auto [dialled, accepted] = meet(right, right);
  EXPECT_TRUE(dialled.ok()) << dialled;
  EXPECT_TRUE(accepted.ok()) << accepted;
  for (const HostSecrets& other : {wrong, HostSecrets{"a token of some lengtH", {}}}) {
    const auto [refused, refusal] = meet(other, right);
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("refused: the token is another one"));
    EXPECT_EQ(refusal.code(), absl::StatusCode::kPermissionDenied);
  }
}

// A connection that writes `bytes` as its hello.
Status refusal_of(const std::string& bytes) {
  const auto listener = listen_at({"127.0.0.1", 0}).value();
  Status status;
  std::thread other([&] {
    status = meet_host(accept_socket(listener).value(), {kToken, {}}).status();
  });
  comm::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  ::shutdown(socket.get(), SHUT_WR);
  other.join();
  return status;
}

TEST_F(HostSocket, OtherBytesAreRefused) {
  const auto frame = [](const std::string& text) {
    return std::string{static_cast<char>(text.size()), '\0', '\0', '\0'} + text;
  };
  EXPECT_THAT(message(refusal_of("GET / HTTP/1.1\r\n\r\n")), HasSubstr("a frame of"));
  EXPECT_THAT(message(refusal_of("")), HasSubstr("closed the connection"));
  EXPECT_THAT(message(refusal_of(frame("[1]"))), HasSubstr("no JSON object"));
  EXPECT_THAT(message(refusal_of(frame("{}"))), HasSubstr("no text 'token'"));
  EXPECT_THAT(message(refusal_of(frame(fmt::format(R"({{"token":"{}","version":"0"}})", kToken)))),
              HasSubstr("version 0 meets version " NEREID_VERSION));
}

TEST_F(HostSocket, SecretsOfFilesAreBounded) {
  EXPECT_EQ(read_host_secrets(write(std::string(kToken) + " \n"), {}).value().token, kToken);
  const auto refusal = [&](const std::string& text, HostTls tls) {
    return read_host_secrets(write(text), std::move(tls)).status().ToString();
  };
  EXPECT_THAT(refusal("short", {}), HasSubstr("a token of 5 bytes; allowed are 16 to 4096"));
  EXPECT_THAT(refusal(kToken, {.cert = "cert.pem", .key = {}, .root = {}}),
              HasSubstr("all three are needed"));
  EXPECT_EQ(read_host_secrets(scratch_.path() / "none", {}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(HostAddresses, AreRead) {
  for (const char* const text : {"host:1", "10.0.0.1:7600", "[fe80::1]:65535"})
    EXPECT_EQ(text_of(parse_host_address(text).value()), text);
  for (const char* const text :
       {"", "host", ":1", "host:", "host:x", "host:65536", "::1:5", "[]:1"})
    EXPECT_FALSE(parse_host_address(text).ok()) << text;
}

TEST(JoinedHostsVariable, NamesAFileThatIsReadBack) {
  const JoinedHosts hosts{.workers = {{"10.0.0.2", 7}, {}, {"::1", 9}},
                          .share_memory = true,
                          .num_here = 2,
                          .token_file = "/token",
                          .tls = {"a", "b", "c"}};
  const std::string json = joined_hosts_json(hosts);
  const ScratchDir scratch = ScratchDir::create().value();
  const std::string path = scratch.path() / "hosts";
  std::ofstream(path) << json;
  const auto read = [](const std::string& value) {
    return read_launched_job([&](const char* name) {
      return std::string_view(name) == kJoinedHosts ? value.c_str() : nullptr;
    });
  };
  const auto job = read(path).value();
  ASSERT_TRUE(job && job->hosts);
  EXPECT_EQ(job->size, 4);
  EXPECT_EQ(job->hosts->workers[1].port, 0) << "has ended";
  EXPECT_EQ(job->rank, 0);
  EXPECT_EQ(joined_hosts_json(*job->hosts), json);
  EXPECT_FALSE(read(path + ".none").ok());
  std::ofstream(path) << "{}";
  EXPECT_FALSE(read(path).ok());
}

TEST(JoinedRanks, AreReadBack) {
  const JoinedRank rank{.start = {.rank = 3, .tensor_rank = 1, .stage = 1, .device = "cpu"},
                        .num_in_process = 2,
                        .tensor_memory = "/proc/1/fd/2",
                        .pipeline_memory = {},
                        .tensor = {},
                        .pipeline = HostRankGroup{.id = "g", .members = {"", "h:1"}}};
  const JoinedRank back = joined_rank_of(to_json(rank)).value();
  EXPECT_EQ(back.start.rank, 3);
  EXPECT_EQ(back.num_in_process, 2);
  EXPECT_EQ(back.tensor_memory, "/proc/1/fd/2");
  EXPECT_FALSE(back.tensor);
  ASSERT_TRUE(back.pipeline);
  EXPECT_THAT(back.pipeline->members, ElementsAre("", "h:1"));
  JoinedRank outside = rank;
  outside.start.stage = 2;
  EXPECT_EQ(joined_rank_of(to_json(outside)).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(joined_rank_of({{"arguments", "x"}}).ok());
}

TEST(LeadHosts, GivesUpWithTheNumberThatIsMissing) {
  const ScratchDir scratch = ScratchDir::create().value();
  std::ofstream(scratch.path() / "token") << kToken;
  const auto led = lead_hosts({.size = 3,
                               .address = {"127.0.0.1", 0},
                               .token_file = scratch.path() / "token",
                               .limit = std::chrono::milliseconds(1)});
  EXPECT_EQ(led.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(message(led.status()), HasSubstr("2 of 3 processes have not joined"));
  EXPECT_THAT(message(lead_hosts({.size = 65}).status()), HasSubstr("hosts: 65 is not in [2, 64]"));
}

// A leader that is waited for on another thread.
class HostLeading : public ::testing::Test {
 protected:
  HostLeading() {
    std::ofstream(scratch_.path() / "token") << kToken;
    address_ = {"127.0.0.1", local_port(listen_at({"127.0.0.1", 0}).value())};
    thread_ = std::thread([this] {
      led_ = lead_hosts({.size = 2,
                         .address = address_,
                         .token_file = scratch_.path() / "token",
                         .limit = std::chrono::seconds(60)});
    });
  }
  ~HostLeading() override {
    if (thread_.joinable()) thread_.join();
    ::unsetenv(kJoinedHosts);
  }

  StatusOr<HostConnection> dial(int64_t port) const {
    return dial_host(address_, {kToken, {}}, {{"kind", "join"}, {"rank", 0}, {"port", port}},
                     now() + std::chrono::seconds(60));
  }
  // Joins as a process that takes ranks at `port`.
  comm::Descriptor join(int64_t port) const {
    auto leader = dial(port);
    EXPECT_TRUE(leader.ok()) << leader.status();
    EXPECT_EQ(number_field(leader->message, "rank").value(), 1);
    EXPECT_TRUE(send_frame(leader->socket, {{"memory", ""}}).ok());
    return std::move(leader->socket);
  }
  // Where the only worker takes ranks, as backends read it; 0: it has ended.
  static uint16_t worker_port() { return launched_job().value()->hosts->workers[0].port; }
  static void wait_for_port(uint16_t port) {
    for (int i = 0; i < 60'000 && worker_port() != port; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(worker_port(), port);
  }

  const ScratchDir scratch_ = ScratchDir::create().value();
  HostAddress address_;
  StatusOr<std::unique_ptr<LaunchedGroup>> led_;
  std::thread thread_;
};

// One at a time they would take 25 minutes.
TEST_F(HostLeading, SilentConnectionsMakeNoOtherWait) {
  const HostSecrets secrets{kToken, {}};
  std::vector<comm::Descriptor> silent;
  for (int i = 0; i < HelloThreads::kMaxWaiting + 50; ++i) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(address_.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    silent.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    while (::connect(silent.back().get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the leader does not listen yet
  }
  const comm::Descriptor worker = join(7);
  thread_.join();
  EXPECT_TRUE(led_.ok()) << led_.status();
}

TEST_F(HostLeading, AnotherProcessTakesThePlaceOfOneThatHasEnded) {
  comm::Descriptor worker = join(7);
  thread_.join();
  ASSERT_TRUE(led_.ok()) << led_.status();
  wait_for_port(7);
  EXPECT_EQ(dial(8).status().code(), absl::StatusCode::kAlreadyExists);
  worker = comm::Descriptor();
  wait_for_port(0);
  worker = join(8);
  wait_for_port(8);
}

}  // namespace
}  // namespace nereid::runtime
