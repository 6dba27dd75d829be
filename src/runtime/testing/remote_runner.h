// Test only: a runner whose steps are executed by another process, from their messages alone.
#pragma once

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "exec/runner.h"
#include "nereid/config.h"
#include "runtime/testing/step_wire.h"

namespace nereid::runtime {

class RemoteRunner : public exec::Runner {
 public:
  // `local`: a runner of the same engine with the same properties. Four steps are in flight with
  // overlap. Needs the program step_executor in the same directory.
  RemoteRunner(const exec::Runner& local, const std::filesystem::path& engine,
               const ExecutorConfig& config)
      : limits_(deep(local.limits())),
        groups_(local.groups().begin(), local.groups().end()),
        vocab_size_(local.vocab_size()),
        embedding_width_(local.embedding_width()),
        hidden_size_(local.hidden_size()),
        num_states_(local.num_states()),
        weighs_drafts_(local.weighs_drafts()) {
    static_assert(std::is_trivially_copyable_v<exec::RunnerLimits>);
    std::string hex;
    for (const std::byte b : std::as_bytes(std::span(&limits_, 1)))
      hex += fmt::format("{:02x}", static_cast<unsigned>(b));
    int ends[2];
    NEREID_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    socket_ = ends[0];
    const std::string program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "step_executor";
    std::string arguments[] = {program, engine.string(), hex, config.device,
                               std::to_string(config.num_threads)};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    const int error =
        ::posix_spawn(&process_, program.c_str(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (error != 0) process_ = -1;
    EXPECT_EQ(error, 0) << program << ": " << std::strerror(error);
  }

  ~RemoteRunner() override {
    ::shutdown(socket_, SHUT_RDWR);
    sender_.request_stop();
    sender_.join();
    ::close(socket_);
    int status = -1;
    if (process_ > 0) ::waitpid(process_, &status, 0);
    EXPECT_EQ(status, 0) << "how step_executor ended";
    EXPECT_GT(num_steps_, 0);
  }

  StatusOr<exec::Ticket> launch(std::span<const std::byte> message) override {
    send(message);
    ++num_steps_;
    return exec::Ticket(std::make_unique<Sent>(), 0);
  }

  void draw(exec::Ticket&, std::span<const std::byte> masks) override { send(masks); }

  // Tickets are waited for in order, as by the engine.
  StatusOr<exec::StepResult> wait(exec::Ticket&) override {
    RETURN_IF_ERROR(receive());
    RETURN_IF_ERROR(result_.status);
    return exec::StepResult(result_.rows);
  }

  // Waits only with no step in flight, as the engine does.
  std::optional<Status> onboarded(bool may_wait) override {
    if (onboarded_.empty() && may_wait) {
      send(kWaitForOnboards);
      if (Status status = receive(); !status.ok()) return status;
    }
    if (onboarded_.empty()) return std::nullopt;
    const Status first = onboarded_.front();
    onboarded_.pop_front();
    return first;
  }

  const exec::RunnerLimits& limits() const override { return limits_; }
  std::span<const exec::CacheGroup> groups() const override { return groups_; }
  int32_t vocab_size() const override { return vocab_size_; }
  int32_t embedding_width() const override { return embedding_width_; }
  int32_t hidden_size() const override { return hidden_size_; }
  int32_t num_states() const override { return num_states_; }
  bool weighs_drafts() const override { return weighs_drafts_; }

 private:
  // A thread of its own sends: if the caller blocked here while the other process blocked on a
  // result, neither would continue.
  void send(std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    unsent_.emplace_back(bytes.begin(), bytes.end());
    changed_.notify_one();
  }
  void send_all(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return !unsent_.empty(); })) {
      const std::vector<std::byte> bytes = std::move(unsent_.front());
      unsent_.pop_front();
      lock.unlock();
      const Status sent = send_bytes(socket_, bytes);
      lock.lock();
      if (!sent.ok()) return;  // receive() fails too
    }
  }
  Status receive() {
    ASSIGN_OR_RETURN(const auto bytes, receive_bytes(socket_));
    result_ = ResultReader(bytes).read();
    onboarded_.insert(onboarded_.end(), result_.onboarded.begin(), result_.onboarded.end());
    return ok();
  }
  static exec::RunnerLimits deep(exec::RunnerLimits limits) {
    if (limits.depth > 1) limits.depth = 4;
    return limits;
  }
  struct Sent : Event {
    Status wait() override { return ok(); }
    bool done() override { return true; }
  };

  const exec::RunnerLimits limits_;
  const std::vector<exec::CacheGroup> groups_;
  const int32_t vocab_size_, embedding_width_, hidden_size_, num_states_;
  const bool weighs_drafts_;
  int socket_ = -1;
  pid_t process_ = -1;
  int64_t num_steps_ = 0;
  OwnedResult result_;
  std::deque<Status> onboarded_;  // not yet taken by the caller

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::vector<std::byte>> unsent_;
  std::jthread sender_{
      [this](const std::stop_token& stop) { send_all(stop); }};  // last member: uses the others
};

}  // namespace nereid::runtime
