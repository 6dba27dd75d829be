// The leader's side of worker processes: start, signs of life, failure, end.
#include "runtime/ranks/rank_processes.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "comm/shared_group.h"
#include "io/plan.h"
#include "runtime/ranks/channel.h"
#include "runtime/ranks/child_process.h"
#include "runtime/ranks/hosts/host_ranks.h"
#include "runtime/ranks/launched_job.h"
#include "runtime/ranks/launched_process.h"
#include "runtime/ranks/rank_wire.h"
#include "runtime/ranks/rank_worker.h"
#include "runtime/ranks/remote_runner.h"
#include "runtime/ranks/wake.h"

namespace nereid::runtime {
namespace {

// From an end of a channel to the end of the process; and, at the end, from the closed channel.
constexpr auto kExitLimit = std::chrono::seconds(5);
// Limit of a launched process, which has ranks of other models, too.
constexpr Duration kRankExitLimit = std::chrono::seconds(60);
constexpr int kLooks = 12;  // at silent processes, within the limit of silence
constexpr int kStart = 10;  // limits of silence until the first sign of life: programs are loaded

// A device of another process.
class RemoteDevice final : public Device {
 public:
  // Once; other threads may call info() meanwhile.
  void set(DeviceInfo info) {
    known_ = std::make_unique<const DeviceInfo>(std::move(info));
    info_ = known_.get();
  }

  const DeviceInfo& info() const override { return *info_; }
  size_t free_bytes() const override { return info().free_bytes; }
  StatusOr<Buffer> allocate(size_t) override { return refusal(); }
  StatusOr<Buffer> allocate_host(size_t) override { return refusal(); }
  StatusOr<Buffer> upload(const void*, size_t) override { return refusal(); }
  StatusOr<std::unique_ptr<Stream>> create_stream() override { return refusal(); }

 private:
  static Status refusal() { return unsupported("the device belongs to another process"); }

  const DeviceInfo unknown_;
  std::unique_ptr<const DeviceInfo> known_;
  std::atomic<const DeviceInfo*> info_ = &unknown_;
};

// Both ends of a socket between two processes.
struct SocketPair {
  comm::Descriptor ours, theirs;

  static StatusOr<SocketPair> create() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return unavailable("a pair of sockets: {}", std::strerror(errno));
    SocketPair pair{comm::Descriptor(ends[0]), comm::Descriptor(ends[1])};
    constexpr int kBytes = 4 << 20;  // less if the system allows less
    for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kBytes, sizeof(kBytes));
    return pair;
  }
};

class Group;

// The leader's state of a worker process.
class Worker final : public WorkerLink {
 public:
  Worker(Group& group, int32_t rank, comm::Descriptor steps, comm::Descriptor beats,
         std::unique_ptr<WorkerProcess> process)
      : group_(group),
        rank_(rank),
        channel_(std::move(steps)),
        beats_(std::move(beats)),
        process_(std::move(process)) {}

  Channel& channel() override { return channel_; }
  Status failure() const override;
  Status explain(const Status& error) override;
  void fail(const Status& error) override;
  void abort(const Status& reason) override;

  int32_t rank() const { return rank_; }
  RemoteDevice& device() { return device_; }
  pid_t id() const { return process_->id(); }

  // For the group's thread.
  WorkerProcess& process() const { return *process_; }
  int beats() const { return beats_.get(); }
  uint64_t progress() const { return progress_; }  // as of the last sign of life
  bool is_watched = true;                          // not yet ended
  bool has_begun = false;                          // has given a sign of life
  Duration silence{};

  // Reads signs of life; false: the process has closed its end.
  bool take_beats() {
    uint64_t progress[64];
    const ssize_t got = ::recv(beats_.get(), progress, sizeof(progress), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got < static_cast<ssize_t>(sizeof(uint64_t))) return true;
    silence = {};
    has_begun = true;
    // Beats are sent whole.
    const uint64_t newest = progress[got / sizeof(uint64_t) - 1];
    if (std::exchange(progress_, newest) != newest) device_.health().made_progress();
    return true;
  }

 private:
  Group& group_;
  const int32_t rank_;
  RemoteDevice device_;
  Channel channel_;
  const comm::Descriptor beats_;
  const std::unique_ptr<WorkerProcess> process_;
  uint64_t progress_ = 0;
};

class Group final : public RankProcesses, public std::enable_shared_from_this<Group> {
 public:
  Group(RankProcessOptions options, Health* health)
      : options_(std::move(options)), health_(health) {}

  ~Group() override {
    stopping_ = true;
    wake_.notify();
    if (thread_.joinable()) thread_.join();
  }

  Status open() {
    RETURN_IF_ERROR(check());
    RETURN_IF_ERROR(find_job());
    RETURN_IF_ERROR(create_segments());
    RETURN_IF_ERROR(wake_.open());
    std::promise<Status> started;
    thread_ = std::thread([this, &started] {
      Status status = start_all();
      const bool is_ok = status.ok();
      started.set_value(std::move(status));
      if (is_ok) watch();
      end_all();
    });
    RETURN_IF_ERROR(started.get_future().get());
    for (const auto& worker : workers_) {
      const auto message = receive(*worker, Kind::kHello);
      RETURN_IF_ERROR(of_rank(*worker, message.status()));
      auto info = get_device(message->bytes);
      RETURN_IF_ERROR(of_rank(*worker, info.status()));
      worker->device().set(*std::move(info));
    }
    return ok();
  }

  Device& device(int32_t rank) override { return worker_of(rank).device(); }
  int64_t process(int32_t rank) const override { return worker_of(rank).id(); }

  StatusOr<exec::RankComms> comms(int32_t rank) override {
    if (has_host_groups()) return hosts_->take_comms(rank);
    exec::RankComms comms;
    const int32_t stage = rank / options_.tp, tensor_rank = rank % options_.tp;
    if (options_.tp > 1) {
      ASSIGN_OR_RETURN(comms.tensor,
                       comm::attach_shared_group(tensor_[static_cast<size_t>(stage)], tensor_rank));
    }
    if (options_.pp > 1) {
      ASSIGN_OR_RETURN(comms.pipeline, comm::attach_shared_group(
                                           pipeline_[static_cast<size_t>(tensor_rank)], stage));
    }
    return comms;
  }

  Status begin_load(std::span<const std::filesystem::path> engines,
                    const exec::RunnerLimits& limits,
                    const kernels::KernelChoices& forced) override {
    if (engines.size() != static_cast<size_t>(world()))
      return invalid_argument("{} engines for {} ranks", engines.size(), world());
    for (const auto& worker : workers_) {
      Writer writer;
      const std::filesystem::path& engine = engines[static_cast<size_t>(worker->rank())];
      uint64_t checksum = 0;
      if (hosts_) {
        ASSIGN_OR_RETURN(checksum, engine_checksum(engine));
      }
      put(writer, {.engine = path_elsewhere(engine),
                   .checksum = checksum,
                   .limits = limits,
                   .forced = forced});
      const Status sent = worker->channel().send(Kind::kLoad, writer.bytes());
      if (!sent.ok()) return of_rank(*worker, worker->explain(sent));
    }
    return ok();
  }

  StatusOr<std::vector<std::unique_ptr<exec::Runner>>> finish_load() override {
    std::vector<std::unique_ptr<exec::Runner>> runners;
    for (const auto& worker : workers_) {
      const auto message = receive(*worker, Kind::kLoaded);
      RETURN_IF_ERROR(of_rank(*worker, message.status()));
      auto model = get_model(message->bytes);
      RETURN_IF_ERROR(of_rank(*worker, model.status()));
      runners.push_back(std::make_unique<RemoteRunner>(
          std::shared_ptr<WorkerLink>(shared_from_this(), worker.get()), *std::move(model)));
    }
    return runners;
  }

  Status failure() const {
    std::lock_guard lock(mutex_);
    return failure_.ok() ? ok() : Status(failure_.code(), failure_.message());
  }

  // The thread sees a process end at once; what else breaks a channel is the failure itself.
  Status explain(Worker& worker, const Status& error) {
    std::unique_lock lock(mutex_);
    failed_.wait_for(lock, options_.silence_limit, [&] { return !failure_.ok(); });
    lock.unlock();
    if (failure().ok()) fail(worker, message(error));
    return failure();
  }

  // The first failure counts. Any thread.
  void fail(Worker& worker, std::string_view what) {
    const Status reason = unavailable("rank {} (process {}) {}", worker.rank(), worker.id(), what);
    {
      std::lock_guard one(fail_mutex_);
      // Health fails before failure(): a caller that sees one sees both.
      worker.device().health().fail(reason);
      if (failure().ok()) {
        abort(reason);
        if (health_) health_->fail(reason);
        std::lock_guard lock(mutex_);
        failure_ = reason;
      }
    }
    failed_.notify_all();
    worker.channel().close();
  }

  void abort(const Status& reason) const {
    if (hosts_) hosts_->abort(reason);
    for (const auto* const segments : {&tensor_, &pipeline_})
      for (const comm::Descriptor& segment : *segments)
        if (const Status status = comm::abort_shared_group(segment, reason); !status.ok())
          log_error("{}", message(status));
  }

 private:
  int32_t world() const { return options_.tp * options_.pp; }

  Worker& worker_of(int32_t rank) const {
    NEREID_CHECK(rank >= options_.first && rank < world());
    return *workers_[static_cast<size_t>(rank - options_.first)];
  }

  static Status of_rank(const Worker& worker, const Status& status) {
    return status.ok() ? status : annotate(status, fmt::format("rank {}", worker.rank()));
  }

  bool has_host_groups() const { return hosts_ && hosts_->has_groups(); }

  StatusOr<Message> receive(Worker& worker, Kind kind) {
    const auto message = worker.channel().receive();
    if (!message.ok()) return worker.explain(message.status());
    if (message->kind == kind) return message;
    return data_loss("a message of kind {} instead of {}", static_cast<uint32_t>(message->kind),
                     static_cast<uint32_t>(kind));
  }

  // An engine in this process's memory, as other processes find it.
  static std::string path_elsewhere(const std::filesystem::path& path) {
    constexpr std::string_view kSelf = "/proc/self/";
    const std::string text = path.string();
    if (!text.starts_with(kSelf)) return text;
    return fmt::format("/proc/{}/{}", ::getpid(), text.substr(kSelf.size()));
  }

  Status check() const {
    if (options_.tp < 1 || options_.pp < 1 || int64_t{options_.tp} * options_.pp > io::kMaxRanks)
      return invalid_argument("tp {} * pp {}: not in [1, {}] ranks", options_.tp, options_.pp,
                              io::kMaxRanks);
    if (options_.first < 0 || options_.first > world())
      return invalid_argument("first: {} is not in [0, {}]", options_.first, world());
    if (options_.devices.size() != static_cast<size_t>(world()))
      return invalid_argument("devices: {} for {} ranks", options_.devices.size(), world());
    if (!options_.num_threads.empty() && options_.num_threads.size() != options_.devices.size())
      return invalid_argument("num_threads: {} numbers for {} ranks", options_.num_threads.size(),
                              world());
    if (options_.silence_limit <= Duration())
      return invalid_argument("silence_limit: {} s is not positive",
                              seconds(options_.silence_limit));
    return ok();
  }

  Status find_job() {
    if (options_.participants.empty()) return ok();
    const auto text = fmt::format("{}", fmt::join(options_.participants, ","));
    if (std::ssize(options_.participants) != world() - options_.first)
      return invalid_argument("participant_ids: '{}' are {} processes for {} ranks", text,
                              options_.participants.size(), world() - options_.first);
    ASSIGN_OR_RETURN(job_, launched_job());
    if (!job_)
      return invalid_argument(
          "participant_ids: '{}': neither mpirun nor srun has started several processes", text);
    std::set<int32_t> seen;
    for (const int32_t participant : options_.participants) {
      const bool is_new = seen.insert(participant).second || job_->hosts;
      if (participant < 1 || participant >= job_->size || !is_new)
        return invalid_argument(
            "participant_ids: '{}': expected are different processes from 1 to {}; process 0 "
            "serves",
            text, job_->size - 1);
    }
    if (!job_->hosts) return ok();
    if (options_.first < 1)
      return unsupported(
          "process_mode: orchestrator is not for processes of several hosts; allowed is leader");
    HostRanks::Layout layout{.tp = options_.tp, .pp = options_.pp, .processes = {}};
    layout.processes.assign(static_cast<size_t>(options_.first), 0);
    layout.processes.insert(layout.processes.end(), options_.participants.begin(),
                            options_.participants.end());
    ASSIGN_OR_RETURN(hosts_, HostRanks::create(*job_, std::move(layout), options_.exchange_limit));
    return ok();
  }

  Status create_segments() {
    if (has_host_groups()) return ok();
    for (int32_t stage = 0; stage < options_.pp && options_.tp > 1; ++stage) {
      ASSIGN_OR_RETURN(tensor_.emplace_back(),
                       comm::create_shared_group(options_.tp, options_.exchange_limit));
    }
    for (int32_t rank = 0; rank < options_.tp && options_.pp > 1; ++rank) {
      ASSIGN_OR_RETURN(pipeline_.emplace_back(),
                       comm::create_shared_group(options_.pp, options_.exchange_limit));
    }
    return ok();
  }

  // On the group's thread: the system ends a worker when the thread ends that started it.
  Status start_all() {
    meet_ = now() + options_.meet_limit;
    for (int32_t rank = options_.first; rank < world(); ++rank) RETURN_IF_ERROR(start(rank));
    return has_host_groups() ? hosts_->connect(meet_) : ok();
  }

  WorkerStart start_of(int32_t rank) const {
    const auto milliseconds = [](Duration d) {
      return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
    };
    return {.rank = rank,
            .tensor_rank = rank % options_.tp,
            .stage = rank / options_.tp,
            .device = options_.devices[static_cast<size_t>(rank)],
            .isa = options_.isa,
            .num_threads =
                options_.num_threads.empty() ? 0 : options_.num_threads[static_cast<size_t>(rank)],
            .device_timeout_ms = milliseconds(options_.device_timeout),
            .beat_ms = std::max<int64_t>(1, milliseconds(options_.silence_limit / kLooks)),
            .silence_ms = std::max<int64_t>(1, milliseconds(options_.silence_limit)),
            .leader = ::getpid(),
            .has_tensor = options_.tp > 1,
            .has_pipeline = options_.pp > 1};
  }

  Status start(int32_t rank) {
    const WorkerStart start = start_of(rank);
    if (hosts_) return start_joined(start);
    ASSIGN_OR_RETURN(SocketPair steps, SocketPair::create());
    ASSIGN_OR_RETURN(SocketPair beats, SocketPair::create());
    WorkerDescriptors theirs{.steps = std::move(steps.theirs), .beats = std::move(beats.theirs)};
    if (start.has_tensor) {
      ASSIGN_OR_RETURN(theirs.tensor, copy_of(tensor_[static_cast<size_t>(start.stage)]));
    }
    if (start.has_pipeline) {
      ASSIGN_OR_RETURN(theirs.pipeline, copy_of(pipeline_[static_cast<size_t>(start.tensor_rank)]));
    }
    std::unique_ptr<WorkerProcess> process;
    if (job_) {
      const int32_t participant = options_.participants[static_cast<size_t>(rank - options_.first)];
      ASSIGN_OR_RETURN(
          process, LaunchedProcess::start(*job_, participant, meet_, start, theirs, beats.ours));
    } else {
      ASSIGN_OR_RETURN(process, start_child(start, theirs));
    }
    add(rank, std::move(steps.ours), std::move(beats.ours), std::move(process));
    return ok();
  }

  Status start_joined(const WorkerStart& start) {
    const auto segment = [](bool has, const std::vector<comm::Descriptor>& all, int32_t at) {
      return has && !all.empty() ? &all[static_cast<size_t>(at)] : nullptr;
    };
    auto started = hosts_->start(start, segment(start.has_tensor, tensor_, start.stage),
                                 segment(start.has_pipeline, pipeline_, start.tensor_rank), meet_);
    if (!started.ok()) return annotate(started.status(), fmt::format("rank {}", start.rank));
    add(start.rank, std::move(started->steps), std::move(started->beats),
        std::move(started->process));
    return ok();
  }

  void add(int32_t rank, comm::Descriptor steps, comm::Descriptor beats,
           std::unique_ptr<WorkerProcess> process) {
    log_debug("rank {} is process {}", rank, process->id());
    workers_.push_back(std::make_unique<Worker>(*this, rank, std::move(steps), std::move(beats),
                                                std::move(process)));
  }

  static StatusOr<comm::Descriptor> copy_of(const comm::Descriptor& descriptor) {
    comm::Descriptor copy(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) return unavailable("a descriptor: {}", std::strerror(errno));
    return copy;
  }

  StatusOr<std::unique_ptr<WorkerProcess>> start_child(const WorkerStart& start,
                                                       const WorkerDescriptors& theirs) const {
    std::vector<std::string> arguments = worker_arguments(start);
    arguments.insert(arguments.begin(), kRankWorker);
    std::filesystem::path program = options_.program;
    if (program.empty()) {
      ASSIGN_OR_RETURN(program, nereid_program());
    }
    const int descriptors[kNumDescriptors] = {theirs.steps.get(), theirs.beats.get(),
                                              theirs.tensor.get(), theirs.pipeline.get()};
    ASSIGN_OR_RETURN(ChildProcess process,
                     ChildProcess::start(program, arguments, kFirstDescriptor, descriptors));
    return std::make_unique<ChildProcess>(std::move(process));
  }

  // Watches the processes until the end of the group.
  void watch() {
    const Duration slice = options_.silence_limit / kLooks;
    Time last = now();
    while (!stopping_) {
      std::vector<pollfd> sockets = {wake_.entry()};
      for (const auto& worker : workers_)
        sockets.push_back(
            {.fd = worker->is_watched ? worker->beats() : -1, .events = POLLIN, .revents = 0});
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(slice).count();
      ::poll(sockets.data(), sockets.size(), static_cast<int>(std::max<int64_t>(ms, 1)));
      if (stopping_) return;
      tell_progress();
      // A suspended leader finds a long time behind it.
      const Time at = now();
      const Duration passed = std::min(at - last, slice);
      last = at;
      for (size_t i = 0; i < workers_.size(); ++i) {
        Worker& worker = *workers_[i];
        if (!worker.is_watched) continue;
        worker.silence += passed;
        if (sockets[i + 1].revents != 0 && !worker.take_beats()) has_ended(worker);
        if (worker.is_watched && worker.silence >= limit_of(worker)) hangs(worker);
      }
    }
  }

  // A device that waits for other ranks does not hang while these go on.
  void tell_progress() const {
    uint64_t progress = 0;
    for (const auto& worker : workers_) progress += worker->progress();
    for (const Health* const health : options_.local) progress += health->progress();
    for (const auto& worker : workers_) {
      if (worker->is_watched)
        ::send(worker->beats(), &progress, sizeof(progress), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }

  void has_ended(Worker& worker) {
    worker.is_watched = false;
    const auto how = await_end(worker, now() + kExitLimit);
    if (!how) worker.process().kill();
    fail(worker, how.value_or("has closed its sockets and was killed"));
    log_error("{}", message(failure()));
  }

  void hangs(Worker& worker) {
    worker.is_watched = false;
    worker.process().kill();
    fail(worker, fmt::format("gave no sign of life for {:.3g} s and was killed",
                             seconds(limit_of(worker))));
    log_error("{}", message(failure()));
  }

  // WorkerProcess::ended() with signs of life for the processes that go on.
  std::optional<std::string> await_end(const Worker& worker, Time end) const {
    const Duration slice = options_.silence_limit / kLooks;
    while (true) {
      const Duration left = std::max(Duration(), end - now());
      const auto how = worker.process().ended(std::min(left, slice));
      if (how || left <= slice) return how;
      tell_progress();
    }
  }

  Duration limit_of(const Worker& worker) const {
    return options_.silence_limit * (worker.has_begun ? 1 : kStart);
  }

  // Processes end by themselves when their channel is closed, launched ones their rank; those that
  // do not are killed.
  void end_all() {
    for (const auto& worker : workers_) {
      worker->channel().close();
      // No beats are sent from now on.
      if (job_) ::shutdown(worker->beats(), SHUT_WR);
    }
    const Time start = now();
    const Duration limit = job_ ? kRankExitLimit : Duration(kExitLimit);
    for (const auto& worker : workers_) {
      const bool was_watched = worker->is_watched;
      const auto how = await_end(*worker, start + limit);
      if (!how) {
        worker->process().kill();
        worker->process().ended(std::chrono::hours(1));
        log_warn("rank {} (process {}) did not end and was killed", worker->rank(), worker->id());
      } else if (was_watched && !worker->process().ended_well()) {
        log_warn("rank {} (process {}) {}", worker->rank(), worker->id(), *how);
      }
    }
  }

  const RankProcessOptions options_;
  Health* const health_;
  std::optional<LaunchedJob> job_;                   // with participants
  std::optional<HostRanks> hosts_;                   // of joined processes
  Time meet_;                                        // until then launched processes are waited for
  std::vector<comm::Descriptor> tensor_, pipeline_;  // [pp], [tp]; none for one rank
  std::vector<std::unique_ptr<Worker>> workers_;     // by rank, from options_.first on
  Wake wake_;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::condition_variable failed_;
  std::mutex fail_mutex_;  // one failure at a time
  Status failure_;         // guarded by mutex_
  std::thread thread_;
};

Status Worker::failure() const { return group_.failure(); }
Status Worker::explain(const Status& error) { return group_.explain(*this, error); }
void Worker::fail(const Status& error) { group_.fail(*this, message(error)); }
void Worker::abort(const Status& reason) { group_.abort(reason); }

}  // namespace

StatusOr<std::filesystem::path> nereid_program() {
  constexpr const char* kName = "nereid";
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (self.filename() == kName) return self;
  Dl_info library = {};
  std::filesystem::path beside_library;
  if (::dladdr(reinterpret_cast<const void*>(&nereid_program), &library) != 0)
    beside_library = std::filesystem::path(library.dli_fname).parent_path();
  for (const auto& folder : {self.parent_path(), beside_library, beside_library / "../bin"})
    if (const auto program = folder / kName; ::access(program.c_str(), X_OK) == 0) return program;
  return not_found("the program {}, for ranks in processes: it is neither in {} nor in {}", kName,
                   self.parent_path().string(), beside_library.string());
}

StatusOr<std::shared_ptr<RankProcesses>> RankProcesses::start(const RankProcessOptions& options,
                                                              Health* health) {
  auto group = std::make_shared<Group>(options, health);
  RETURN_IF_ERROR(group->open());
  return group;
}

}  // namespace nereid::runtime
