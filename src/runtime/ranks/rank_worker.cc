// A worker's start, its signs of life, its end with the leader.
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
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "comm/shared_group.h"
#include "comm/shared_memory.h"
#include "kernels/open.h"
#include "runtime/ranks/channel.h"

namespace nereid::runtime {
namespace {

class EngineOpener final : public RankOpener {
 public:
  StatusOr<Device*> open_device(const std::string& device, const std::string& isa,
                                int num_threads) override {
    ASSIGN_OR_RETURN(opened_,
                     kernels::open_device(device, {.num_threads = num_threads, .isa = isa}));
    return opened_.device.get();
  }
  StatusOr<std::unique_ptr<exec::Runner>> load(const RankLoad& load,
                                               exec::RankComms comms) override {
    // The leader has verified the weights.
    ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(load.engine, io::Verify::kHeader));
    return exec::make_runner(std::move(file), *opened_.device, opened_.registry, load.limits,
                             load.forced, std::move(comms));
  }

 private:
  kernels::OpenedDevice opened_;
};

// Sends signs of life with the device's progress to the leader, receives that of all ranks; ends
// the process with the leader.
class Beats {
 public:
  explicit Beats(int64_t period_ms) {
    std::thread([this, period_ms] {
      while (true) beat(static_cast<int>(period_ms));
    }).detach();
  }
  // Before the device is used.
  void set_device(Device& device) {
    device.health().set_peers({&all_ranks_});
    device_ = &device;
  }

 private:
  void beat(int period_ms) {
    const Device* const device = device_;
    // Without what comes back from the leader: progress must not feed itself.
    const uint64_t progress =
        device ? device->health().progress() - all_ranks_.progress() : uint64_t{0};
    if (::send(kBeats, &progress, sizeof(progress), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
        errno != EAGAIN && errno != EINTR)
      ::_exit(1);
    const Time end = now() + std::chrono::milliseconds(period_ms);
    do {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now()).count();
      pollfd leader{.fd = kBeats, .events = POLLIN, .revents = 0};
      if (::poll(&leader, 1, static_cast<int>(std::max<int64_t>(left, 0))) <= 0) return;
      receive();
    } while (now() < end);
  }

  void receive() {
    uint64_t progress = 0;
    const ssize_t got = ::recv(kBeats, &progress, sizeof(progress), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) ::_exit(1);
    if (got > 0 && std::exchange(seen_, progress) != progress) all_ranks_.made_progress();
  }

  std::atomic<const Device*> device_ = nullptr;
  Health all_ranks_{[] { return std::string("all ranks"); }};
  uint64_t seen_ = 0;
};

// Both hold together: the first one also ends a suspended process, the second one holds after a
// leader that ended before.
void end_with(int64_t leader) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != leader) ::_exit(1);
}

StatusOr<exec::RankComms> attach(const WorkerStart& start) {
  exec::RankComms comms;
  if (start.has_tensor) {
    ASSIGN_OR_RETURN(comms.tensor,
                     comm::attach_shared_group(comm::Descriptor(kTensor), start.tensor_rank));
  }
  if (start.has_pipeline) {
    ASSIGN_OR_RETURN(comms.pipeline,
                     comm::attach_shared_group(comm::Descriptor(kPipeline), start.stage));
  }
  return comms;
}

Status run(const WorkerStart& start, RankOpener& opener) {
  Channel channel{comm::Descriptor(kSteps)};
  ASSIGN_OR_RETURN(exec::RankComms comms, attach(start));
  auto& beats = *new Beats(start.beat_ms);  // its thread ends with the process
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
  RETURN_IF_ERROR(channel.send(Kind::kHello, writer.bytes()));
  // After an error the leader closes the channel.
  if (!device.ok()) return channel.receive().ok() ? data_loss("work without a device") : ok();

  const auto message = channel.receive();
  if (!message.ok()) return ok();  // the leader has stopped
  if (message->kind != Kind::kLoad) return data_loss("steps without an engine");
  ASSIGN_OR_RETURN(const RankLoad load, get_load(message->bytes));
  const auto runner = opener.load(load, std::move(comms));
  writer.clear();
  const StatusOr<RankModel> model =
      runner.ok() ? StatusOr<RankModel>(model_of(**runner)) : runner.status();
  put(writer, model);
  RETURN_IF_ERROR(channel.send(Kind::kLoaded, writer.bytes()));
  if (!runner.ok()) return channel.receive().ok() ? data_loss("work without an engine") : ok();
  return serve_rank(channel, **runner);
}

}  // namespace

std::unique_ptr<RankOpener> engine_opener() { return std::make_unique<EngineOpener>(); }

std::vector<std::string> worker_arguments(const WorkerStart& start) {
  return {std::to_string(start.rank),
          std::to_string(start.tensor_rank),
          std::to_string(start.stage),
          start.device,
          start.isa,
          std::to_string(start.num_threads),
          std::to_string(start.device_timeout_ms),
          std::to_string(start.beat_ms),
          std::to_string(start.leader),
          start.has_tensor ? "1" : "0",
          start.has_pipeline ? "1" : "0"};
}

StatusOr<WorkerStart> parse_worker_arguments(int argc, char** argv) {
  constexpr int kNumArguments = 11;
  if (argc != kNumArguments)
    return invalid_argument("{} is started by nereid itself, with {} arguments; here are {}",
                            kRankWorker, kNumArguments, argc);
  const auto number = [&](int i) { return std::strtoll(argv[i], nullptr, 10); };
  return WorkerStart{.rank = static_cast<int32_t>(number(0)),
                     .tensor_rank = static_cast<int32_t>(number(1)),
                     .stage = static_cast<int32_t>(number(2)),
                     .device = argv[3],
                     .isa = argv[4],
                     .num_threads = static_cast<int>(number(5)),
                     .device_timeout_ms = number(6),
                     .beat_ms = number(7),
                     .leader = number(8),
                     .has_tensor = number(9) != 0,
                     .has_pipeline = number(10) != 0};
}

int rank_worker_main(int argc, char** argv,
                     const std::function<std::unique_ptr<RankOpener>()>& opener) {
  const auto start = parse_worker_arguments(argc - 1, argv + 1);
  if (!start.ok()) {
    log_error("{}", message(start.status()));
    return 2;
  }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
  end_with(start->leader);
  const auto opened = opener();
  const Status status = run(*start, *opened);
  if (!status.ok()) log_error("rank {}: {}", start->rank, status.ToString());
  std::_Exit(status.ok() ? 0 : 1);
}

}  // namespace nereid::runtime
