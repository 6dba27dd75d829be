// A rank's start, its signs of life, its end with the leader.
#include "runtime/ranks/rank_worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "comm/shared_group.h"
#include "comm/shared_memory.h"
#include "io/engine_format.h"
#include "kernels/open.h"
#include "runtime/ranks/channel.h"

namespace nereid::runtime {
namespace {

class EngineOpener final : public RankOpener {
 public:
  explicit EngineOpener(std::filesystem::path engine_dir) : engine_dir_(std::move(engine_dir)) {}

  StatusOr<Device*> open_device(const std::string& device, const std::string& isa,
                                int num_threads) override {
    ASSIGN_OR_RETURN(opened_,
                     kernels::open_device(device, {.num_threads = num_threads, .isa = isa}));
    return opened_.device.get();
  }
  StatusOr<std::unique_ptr<exec::Runner>> load(const RankLoad& load,
                                               exec::RankComms comms) override {
    // The leader has verified the weights.
    const std::filesystem::path path =
        engine_dir_.empty() ? std::filesystem::path(load.engine)
                            : engine_dir_ / std::filesystem::path(load.engine).filename();
    ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(path, io::Verify::kHeader));
    if (load.checksum != 0) {
      ASSIGN_OR_RETURN(const uint64_t checksum, engine_checksum(path));
      if (checksum != load.checksum)
        return Status(absl::StatusCode::kFailedPrecondition,
                      fmt::format("{}: the engine's hash is {:016x}, the leader's {:016x}: give "
                                  "all hosts the same engine",
                                  path.string(), checksum, load.checksum));
    }
    return exec::make_runner(std::move(file), *opened_.device, opened_.registry, load.limits,
                             load.forced, std::move(comms));
  }

 private:
  const std::filesystem::path engine_dir_;
  kernels::OpenedDevice opened_;
};

// Sends signs of life with the device's progress to the leader, receives that of all ranks.
class Beats {
 public:
  Beats(comm::Descriptor socket, const WorkerStart& start, const LeaderLoss& loss)
      : socket_(std::move(socket)),
        period_(start.beat_ms),
        silence_limit_(start.silence_ms),
        loss_(loss),
        thread_([this] { run(); }) {}
  // Before the device is destroyed: forget_device().
  ~Beats() {
    is_over_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);  // wakes the thread
    thread_.join();
  }

  // Before the device is used.
  void set_device(Device& device) {
    device.health().set_peers({&all_ranks_});
    std::lock_guard lock(mutex_);
    device_ = &device;
  }
  void forget_device() {
    std::lock_guard lock(mutex_);
    device_ = nullptr;
  }

 private:
  // Time in which this process was suspended is no silence of the leader.
  void run() {
    Duration silence{};
    for (Time last = now(); !is_over_;) {
      const bool is_open = beat();
      if (is_over_) return;
      if (!is_open) {
        if (loss_.closed) loss_.closed();
        return;
      }
      const Time at = now();
      silence += std::min<Duration>(at - last, 2 * period_);
      last = at;
      if (std::exchange(has_heard_, false)) {
        silence = {};
        has_begun_ = true;
      }
      if (!has_begun_ || silence < silence_limit_) continue;
      silence = {};
      if (loss_.silent) loss_.silent();
    }
  }

  // One period; false: the leader has closed its end.
  bool beat() {
    const uint64_t progress = own_progress();
    if (::send(socket_.get(), &progress, sizeof(progress), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
        errno != EAGAIN && errno != EINTR)
      return false;
    const Time end = now() + period_;
    do {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now()).count();
      pollfd leader{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&leader, 1, static_cast<int>(std::max<int64_t>(left, 0))) <= 0) return true;
      if (!receive()) return false;
    } while (now() < end);
    return true;
  }

  // Without what comes back from the leader: progress must not feed itself.
  uint64_t own_progress() {
    std::lock_guard lock(mutex_);
    return device_ ? device_->health().progress() - all_ranks_.progress() : uint64_t{0};
  }

  bool receive() {
    uint64_t progress = 0;
    const ssize_t got = ::recv(socket_.get(), &progress, sizeof(progress), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got < 0) return true;
    has_heard_ = true;
    if (std::exchange(seen_, progress) != progress) all_ranks_.made_progress();
    return true;
  }

  const comm::Descriptor socket_;
  const std::chrono::milliseconds period_, silence_limit_;
  const LeaderLoss loss_;
  std::mutex mutex_;
  const Device* device_ = nullptr;  // guarded by mutex_
  Health all_ranks_{[] { return std::string("all ranks"); }};
  uint64_t seen_ = 0;
  bool has_heard_ = false, has_begun_ = false;  // a sign of life since the last look; ever
  std::atomic<bool> is_over_ = false;
  std::thread thread_;  // last: uses the others
};

// Both hold together: the first one also ends a suspended process, the second one holds after a
// leader that ended before.
void end_with(int64_t leader) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != leader) ::_exit(1);
}

// By a signal; not one that is starved, or that a debugger holds.
bool is_suspended(int64_t process) {
  const auto stat = read_file(fmt::format("/proc/{}/stat", process), 4096);
  return stat.ok() && stat->rfind(") T ") != std::string::npos;
}

StatusOr<exec::RankComms> attach(const WorkerStart& start, const WorkerDescriptors& descriptors) {
  exec::RankComms comms;
  if (start.has_tensor) {
    ASSIGN_OR_RETURN(comms.tensor,
                     comm::attach_shared_group(descriptors.tensor, start.tensor_rank));
  }
  if (start.has_pipeline) {
    ASSIGN_OR_RETURN(comms.pipeline, comm::attach_shared_group(descriptors.pipeline, start.stage));
  }
  return comms;
}

Status serve_device(Channel& channel, RankOpener& opener, exec::RankComms comms) {
  const auto message = channel.receive();
  if (!message.ok()) return ok();  // the leader has stopped
  if (message->kind != Kind::kLoad) return data_loss("steps without an engine");
  ASSIGN_OR_RETURN(const RankLoad load, get_load(message->bytes));
  const auto runner = opener.load(load, std::move(comms));
  Writer writer;
  const StatusOr<RankModel> model =
      runner.ok() ? StatusOr<RankModel>(model_of(**runner)) : runner.status();
  put(writer, model);
  if (!channel.send(Kind::kLoaded, writer.bytes()).ok()) return ok();  // the leader has stopped
  if (!runner.ok()) return channel.receive().ok() ? data_loss("work without an engine") : ok();
  return serve_rank(channel, **runner);
}

Status open_and_serve(const WorkerStart& start, Channel& channel, RankOpener& opener,
                      exec::RankComms comms, Beats& beats) {
  const auto device = opener.open_device(start.device, start.isa, start.num_threads);
  StatusOr<DeviceInfo> info = DeviceInfo();
  if (!device.ok()) {
    info = device.status();
  } else {
    (*device)->health().set_timeout(std::chrono::milliseconds(start.device_timeout_ms));
    beats.set_device(**device);
    info = (*device)->info();
    info->free_bytes = (*device)->free_bytes();
  }
  Writer writer;
  put(writer, info);
  if (!channel.send(Kind::kHello, writer.bytes()).ok()) return ok();  // the leader has stopped
  // After an error the leader closes the channel.
  if (!device.ok()) return channel.receive().ok() ? data_loss("work without a device") : ok();
  return serve_device(channel, opener, std::move(comms));
}

}  // namespace

StatusOr<uint64_t> engine_checksum(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  io::EnginePrefix prefix;
  if (file.bytes().size() < sizeof(prefix))
    return data_loss("{}: {} bytes are no engine", path.string(), file.bytes().size());
  std::memcpy(&prefix, file.bytes().data(), sizeof(prefix));
  return prefix.checksum;
}

std::unique_ptr<RankOpener> engine_opener() { return engine_opener_in({}); }

std::unique_ptr<RankOpener> engine_opener_in(const std::filesystem::path& engine_dir) {
  return std::make_unique<EngineOpener>(engine_dir);
}

Status run_rank(const WorkerStart& start, WorkerDescriptors descriptors, const MakeOpener& opener,
                const LeaderLoss& loss) {
  ASSIGN_OR_RETURN(exec::RankComms comms, attach(start, descriptors));
  return run_rank(start, std::move(descriptors.steps), std::move(descriptors.beats),
                  std::move(comms), opener, loss);
}

Status run_rank(const WorkerStart& start, comm::Descriptor steps, comm::Descriptor beats,
                exec::RankComms comms, const MakeOpener& opener, const LeaderLoss& loss) {
  Channel channel(std::move(steps));
  Beats signs(std::move(beats), start, loss);
  const auto opened = opener();
  const Status status = open_and_serve(start, channel, *opened, std::move(comms), signs);
  signs.forget_device();
  return status;
}

std::vector<std::string> worker_arguments(const WorkerStart& start) {
  return {std::to_string(start.rank),
          std::to_string(start.tensor_rank),
          std::to_string(start.stage),
          start.device,
          start.isa,
          std::to_string(start.num_threads),
          std::to_string(start.device_timeout_ms),
          std::to_string(start.beat_ms),
          std::to_string(start.silence_ms),
          std::to_string(start.leader),
          start.has_tensor ? "1" : "0",
          start.has_pipeline ? "1" : "0"};
}

StatusOr<WorkerStart> parse_worker_arguments(std::span<const std::string> arguments) {
  constexpr size_t kNumArguments = 12;
  if (arguments.size() != kNumArguments)
    return invalid_argument("{} is started by nereid itself, with {} arguments; here are {}",
                            kRankWorker, kNumArguments, arguments.size());
  const auto number = [&](size_t i) { return std::strtoll(arguments[i].c_str(), nullptr, 10); };
  return WorkerStart{.rank = static_cast<int32_t>(number(0)),
                     .tensor_rank = static_cast<int32_t>(number(1)),
                     .stage = static_cast<int32_t>(number(2)),
                     .device = arguments[3],
                     .isa = arguments[4],
                     .num_threads = static_cast<int>(number(5)),
                     .device_timeout_ms = number(6),
                     .beat_ms = number(7),
                     .silence_ms = number(8),
                     .leader = number(9),
                     .has_tensor = number(10) != 0,
                     .has_pipeline = number(11) != 0};
}

int rank_worker_main(int argc, char** argv, const MakeOpener& opener) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const auto start = parse_worker_arguments(arguments);
  if (!start.ok()) {
    log_error("{}", message(start.status()));
    return 2;
  }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
  end_with(start->leader);
  const auto inherited = [](int number) { return comm::Descriptor(kFirstDescriptor + number); };
  WorkerDescriptors descriptors{.steps = inherited(0), .beats = inherited(1)};
  if (start->has_tensor) descriptors.tensor = inherited(2);
  if (start->has_pipeline) descriptors.pipeline = inherited(3);
  const LeaderLoss loss{.closed = [] { ::_exit(1); },
                        .silent =
                            [&] {
                              if (::getppid() != start->leader || !is_suspended(start->leader))
                                return;
                              log_error("rank {}: process id {} is suspended, and is killed",
                                        start->rank, start->leader);
                              ::kill(static_cast<pid_t>(start->leader), SIGKILL);
                            }};
  const Status status = run_rank(*start, std::move(descriptors), opener, loss);
  if (!status.ok()) log_error("rank {}: {}", start->rank, status.ToString());
  std::_Exit(status.ok() ? 0 : 1);
}

}  // namespace nereid::runtime
