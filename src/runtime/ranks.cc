#include "runtime/ranks.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>

#include "base/gpus.h"
#include "base/log.h"
#include "comm/thread_group.h"
#include "convert/compile.h"
#include "convert/engine_dir.h"
#include "runtime/forced_kernels.h"
#include "runtime/kv_sizing.h"
#include "runtime/model_instance.h"
#include "runtime/ranks/launched_job.h"
#include "tensor/cpu_probe.h"

namespace nereid::runtime {
namespace {

constexpr std::string_view kCudaPrefix = "cuda:";

std::optional<int32_t> read_number(std::string_view text) {
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// Adds the GPUs of "2" or "0-3".
Status add_gpus(std::string_view part, std::string_view list, std::vector<std::string>& devices) {
  const size_t dash = part.find('-');
  const auto first = read_number(part.substr(0, dash));
  const auto last = dash == part.npos ? first : read_number(part.substr(dash + 1));
  if (!first || !last || *last < *first || *last - *first >= io::kMaxRanks)
    return invalid_argument(
        "devices: '{}' in '{}' is no GPU; allowed are cpu, and lists like cuda:0-3, cuda:0,2 or "
        "GPU-UUID,GPU-UUID",
        part, list);
  for (int32_t gpu = *first; gpu <= *last; ++gpu)
    devices.push_back(fmt::format("{}{}", kCudaPrefix, gpu));
  return ok();
}

// The devices for `num_ranks` ranks of a configuration without a list.
StatusOr<std::vector<std::string>> devices_from(std::string_view device, int32_t num_ranks) {
  if (device == "cpu") return std::vector<std::string>(static_cast<size_t>(num_ranks), "cpu");
  const auto first = device.starts_with(kCudaPrefix)
                         ? read_number(device.substr(kCudaPrefix.size()))
                         : std::nullopt;
  if (!first)
    return invalid_argument("device '{}' is not known; allowed: auto, cpu, cuda:N", device);
  std::vector<std::string> devices;
  for (int32_t r = 0; r < num_ranks; ++r)
    devices.push_back(fmt::format("{}{}", kCudaPrefix, *first + r));
  return devices;
}

// The devices of the configuration's list for `num_ranks` ranks; empty: it has none.
StatusOr<std::vector<std::string>> listed_devices(const ExecutorConfig& config, int32_t num_ranks) {
  if (config.devices.empty()) return std::vector<std::string>();
  ASSIGN_OR_RETURN(std::vector<std::string> names, read_devices(config.devices));
  if (names[0] == "cpu") names.resize(static_cast<size_t>(num_ranks), "cpu");
  if (std::ssize(names) < num_ranks)
    return invalid_argument(
        "devices: '{}' has {} devices; tensor_parallel * pipeline_parallel are {} ranks",
        config.devices, names.size(), num_ranks);
  names.resize(static_cast<size_t>(num_ranks));
  return names;
}

// Whether the ranks of all stages' first tensor ranks compile, and have memory for the longest
// sequence. Not OK: why not.
Status fits(const std::filesystem::path& model_dir, const ExecutorConfig& config,
            io::Mapping mapping) {
  ASSIGN_OR_RETURN(const auto devices, open_devices(config, mapping.world()));
  std::vector<io::Plan> plans;
  for (mapping.rank = 0; mapping.rank < mapping.world(); ++mapping.rank) {
    const kernels::OpenedDevice& device = devices[static_cast<size_t>(mapping.rank)];
    if (mapping.tensor_rank() > 0) {  // as its stage's first one
      plans.push_back(plans.back());
      continue;
    }
    ASSIGN_OR_RETURN(convert::BuildOptions build, build_options(model_dir, config, device));
    build.compile.mapping = mapping;
    ASSIGN_OR_RETURN(auto compiled, convert::compile_model(model_dir, device.registry,
                                                           device.device->info(), build.compile));
    plans.push_back(std::move(compiled.plan));
  }
  std::vector<RankPart> parts;
  for (size_t r = 0; r < plans.size(); ++r) parts.push_back({&plans[r], devices[r].device.get()});
  ASSIGN_OR_RETURN(const exec::RunnerLimits limits, size_kv_cache(parts, config));
  const int32_t most = plans[0].model.max_positions;
  const int32_t wanted =
      config.max_sequence_length == 0 ? most : std::min(config.max_sequence_length, most);
  if (limits.max_sequence_length >= wanted) return ok();
  return resource_exhausted("the KV cache holds {} tokens; a sequence may have {}",
                            limits.max_sequence_length, wanted);
}

// The processes of the ranks behind those of process 0: as many ranks for each joined process,
// neighbours in one, since tensor ranks exchange most.
StatusOr<std::vector<int32_t>> spread_ranks(const LaunchedJob& job, const io::Mapping& mapping) {
  if (mapping.world() % job.size != 0)
    return invalid_argument(
        "hosts: {} processes for {} ranks (tensor_parallel {} * pipeline_parallel {}): their "
        "number "
        "must divide that of the ranks, or participant_ids must name the process of each rank",
        job.size, mapping.world(), mapping.tp, mapping.pp);
  const int32_t num_each = mapping.world() / job.size;
  std::vector<int32_t> participants;
  for (int32_t rank = num_each; rank < mapping.world(); ++rank)
    participants.push_back(rank / num_each);
  return participants;
}

Status check_leads(const LaunchedJob& job) {
  if (job.rank == 0) return ok();
  return invalid_argument("{}: process 0 opens the models of all", text_of(job));
}

// The processes that participant_ids names, without process 0. Ids that no job could have are
// refused before the job is looked at.
StatusOr<std::vector<int32_t>> named_participants(const ExecutorConfig& config,
                                                  const io::Mapping& mapping) {
  const std::string& ids = config.participant_ids;
  const bool is_leader = config.process_mode != "orchestrator";
  ASSIGN_OR_RETURN(std::vector<int32_t> participants, read_participants(ids));
  if (mapping.tp != 0 && std::ssize(participants) != mapping.world())
    return invalid_argument(
        "participant_ids: '{}' are {} processes, but the model has {} ranks (tensor_parallel {} * "
        "pipeline_parallel {})",
        ids, participants.size(), mapping.world(), mapping.tp, mapping.pp);
  // In process mode orchestrator without 0, see check_instances().
  const auto others = std::ranges::find_if(participants, [](int32_t p) { return p != 0; });
  if (is_leader && others == participants.begin())
    return invalid_argument(
        "participant_ids: '{}': in process mode leader the first one is 0, the process that serves",
        ids);
  if (is_leader && std::find(others, participants.end(), 0) != participants.end())
    return invalid_argument(
        "participant_ids: '{}': the ranks of process 0 are the first ones; here one comes behind a "
        "rank of another process",
        ids);
  ASSIGN_OR_RETURN(const auto job, launched_job());
  const int32_t last = std::ranges::max(participants);
  if (!job)
    return invalid_argument(
        "participant_ids: '{}': neither mpirun nor srun has started several processes; start at "
        "least {}, as with `mpirun -n {}`",
        ids, last + 1, last + 1);
  RETURN_IF_ERROR(check_leads(*job));
  if (last >= job->size)
    return invalid_argument("participant_ids: '{}' has {}; {} started {} processes, from 0 on", ids,
                            last, job->launcher, job->size);
  participants.erase(participants.begin(), others);
  return participants;
}

}  // namespace

StatusOr<std::vector<std::string>> read_devices(std::string_view list) {
  if (list == "cpu") return std::vector<std::string>{"cpu"};
  std::vector<std::string> devices;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string_view part = list.substr(begin, end - begin);
    begin = end + 1;
    if (is_gpu_uuid(part)) {
      devices.emplace_back(part);
      continue;
    }
    if (devices.empty() && !part.starts_with(kCudaPrefix))
      return invalid_argument(
          "devices: '{}' is neither cpu nor a list like cuda:0-3, cuda:0,2 or GPU-UUID,GPU-UUID",
          list);
    if (part.starts_with(kCudaPrefix)) part.remove_prefix(kCudaPrefix.size());
    RETURN_IF_ERROR(add_gpus(part, list, devices));
  }
  return devices;
}

std::string first_device(const ExecutorConfig& config) {
  if (config.devices.empty()) return config.device;
  const auto devices = read_devices(config.devices.substr(0, config.devices.find(';')));
  return devices.ok() ? devices->front() : config.devices;
}

StatusOr<io::Mapping> read_mapping(const ExecutorConfig& config) {
  io::Mapping mapping;
  mapping.pp = std::max(config.pipeline_parallel, 1);
  mapping.ep = std::max(config.expert_parallel, 1);
  mapping.invariant = config.tp_invariant;
  const std::string& tp = config.tensor_parallel;
  if (tp == "auto") {
    mapping.tp = 0;
    return mapping;
  }
  const auto number = read_number(tp.empty() ? "1" : tp);
  if (!number || *number > io::kMaxRanks)
    return invalid_argument("tensor_parallel: '{}' is neither auto nor a number from 1 to {}", tp,
                            io::kMaxRanks);
  mapping.tp = std::max(*number, 1);
  if (mapping.tp % mapping.ep != 0)
    return invalid_argument("expert_parallel: {} does not divide tensor_parallel {}", mapping.ep,
                            mapping.tp);
  if (mapping.world() > io::kMaxRanks)
    return invalid_argument("tensor_parallel * pipeline_parallel: {} * {} are more than {} ranks",
                            mapping.tp, mapping.pp, io::kMaxRanks);
  return mapping;
}

StatusOr<io::Mapping> mapping_of(const std::filesystem::path& model_dir,
                                 const ExecutorConfig& config) {
  ASSIGN_OR_RETURN(io::Mapping mapping, read_mapping(config));
  ASSIGN_OR_RETURN(const auto job, launched_job());
  if (!job && config.process_mode != "orchestrator" && config.participant_ids.empty())
    return mapping;
  if (mapping.is_single()) {
    ASSIGN_OR_RETURN(const io::Mapping built, convert::built_mapping(model_dir));
    if (int64_t{built.tp} * built.pp > io::kMaxRanks)
      return invalid_argument("{}: built for {} ranks; allowed are up to {}", model_dir.string(),
                              int64_t{built.tp} * built.pp, io::kMaxRanks);
    mapping.tp = built.tp;
    mapping.pp = built.pp;
    mapping.ep = built.ep;
  }
  if (!job || mapping.tp != 0) return mapping;
  const std::string& ids = config.participant_ids;
  if (ids.empty() && config.process_mode == "orchestrator") return mapping;
  ASSIGN_OR_RETURN(const auto own, read_participants(ids.substr(0, ids.find(';'))));
  const int32_t size = own.empty() ? job->size : static_cast<int32_t>(own.size());
  if (size % (mapping.pp * mapping.ep) == 0) mapping.tp = size / mapping.pp;
  return mapping;
}

StatusOr<std::vector<int32_t>> read_participants(std::string_view list) {
  std::vector<int32_t> participants;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const auto number = read_number(list.substr(begin, end - begin));
    if (!number || end + 1 == list.size())
      return invalid_argument(
          "participant_ids: '{}': expected are numbers of launched processes, separated by ','",
          list);
    participants.push_back(*number);
    begin = end + 1;
  }
  return participants;
}

StatusOr<std::vector<int32_t>> launched_participants(const ExecutorConfig& config,
                                                     const io::Mapping& mapping) {
  if (!config.participant_ids.empty()) return named_participants(config, mapping);
  std::vector<int32_t> participants;
  if (config.process_mode == "orchestrator") return participants;
  ASSIGN_OR_RETURN(const auto job, launched_job());
  if (!job) return participants;
  RETURN_IF_ERROR(check_leads(*job));
  if (job->hosts) return spread_ranks(*job, mapping);
  if (mapping.world() != job->size)
    return invalid_argument(
        "{} started {} processes, but the model has {} ranks (tensor_parallel {} * "
        "pipeline_parallel {}): start {} processes, or give the model {} ranks",
        job->launcher, job->size, mapping.world(), mapping.tp, mapping.pp, mapping.world(),
        job->size);
  for (int32_t rank = 1; rank < job->size; ++rank) participants.push_back(rank);
  return participants;
}

StatusOr<std::vector<kernels::OpenedDevice>> open_devices(const ExecutorConfig& config,
                                                          int32_t num_ranks) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, listed_devices(config, num_ranks));
  ASSIGN_OR_RETURN(const auto job, launched_job());
  const bool is_launched = job && config.num_threads == 0 && config.process_mode == "leader";
  // Joined processes have as many ranks each.
  const int32_t num_shares = job && job->hosts ? std::min(job->size, num_ranks) : num_ranks;
  const int32_t threads = is_launched              ? launched_threads(*job) * num_shares
                          : config.num_threads > 0 ? config.num_threads
                                                   : num_usable_cores();
  std::vector<kernels::OpenedDevice> devices;
  std::vector<const Health*> all;
  for (int32_t r = 0; r < num_ranks; ++r) {
    const std::string name = names.empty() ? config.device : names[static_cast<size_t>(r)];
    // The default of one rank stays open to the device.
    const int32_t own = num_ranks == 1
                            ? config.num_threads
                            : std::max(threads * (r + 1) / num_ranks - threads * r / num_ranks, 1);
    auto opened = kernels::open_device(name, {.num_threads = own, .isa = config.isa});
    if (!opened.ok() && num_ranks > 1)
      return annotate(opened.status(), fmt::format("devices: rank {}", r));
    RETURN_IF_ERROR(opened.status());
    if (names.empty()) {
      ASSIGN_OR_RETURN(names, devices_from(opened->device->info().id(), num_ranks));
    }
    devices.push_back(*std::move(opened));
    all.push_back(&devices.back().device->health());
  }
  if (names[0] == "cpu" && threads < num_ranks)
    log_warn("num_threads: {} are fewer than {} ranks; each rank has one", threads, num_ranks);
  // A rank that waits for others is not stuck while these go on.
  for (const auto& opened : devices) {
    std::vector<const Health*> peers = all;
    std::erase(peers, &opened.device->health());
    opened.device->health().set_peers(std::move(peers));
    opened.device->health().set_timeout(std::chrono::seconds(config.device_timeout_secs));
  }
  return devices;
}

StatusOr<int32_t> fewest_tensor_ranks(const std::filesystem::path& model_dir,
                                      const ExecutorConfig& config, const io::Mapping& mapping) {
  std::string first = first_device(config);
  if (first != "cpu" && !first.starts_with(kCudaPrefix)) {
    ASSIGN_OR_RETURN(const auto opened,
                     kernels::open_device(first, {.num_threads = 1, .isa = config.isa}));
    first = opened.device->info().id();
  }
  if (first == "cpu") return mapping.ep;
  const auto num_listed = [&]() -> StatusOr<int32_t> {
    if (!config.devices.empty()) {
      ASSIGN_OR_RETURN(const auto listed, read_devices(config.devices));
      return static_cast<int32_t>(listed.size());
    }
    ASSIGN_OR_RETURN(const int32_t count, kernels::num_gpus());
    return count - read_number(std::string_view(first).substr(kCudaPrefix.size())).value_or(0);
  };
  ASSIGN_OR_RETURN(const int32_t num_devices, num_listed());
  Status last = resource_exhausted("{} GPUs are fewer than {} stages of {} ranks", num_devices,
                                   mapping.pp, mapping.ep);
  for (int32_t tp = mapping.ep; tp * mapping.pp <= std::min(num_devices, io::kMaxRanks); ++tp) {
    if (tp % mapping.ep != 0) continue;
    io::Mapping tried = mapping;
    tried.tp = tp;
    last = fits(model_dir, config, tried);
    if (last.ok()) return tp;
    log_info("tensor_parallel: {} is not enough: {}", tp, message(last));
  }
  return annotate(last, "tensor_parallel: auto");
}

StatusOr<std::vector<exec::RankComms>> join_ranks(
    const ExecutorConfig& config, const io::Mapping& mapping,
    std::span<const kernels::OpenedDevice* const> devices) {
  // A step may take long: a rank that hangs is found by its device's health.
  const comm::GroupOptions options{.time_limit = comm::kMaxTimeLimit,
                                   .deterministic = config.deterministic};
  std::vector<exec::RankComms> comms(devices.size());
  const auto join = [&](int32_t first, int32_t step, int32_t count, auto group) -> Status {
    if (count == 1) return ok();
    std::vector<const kernels::OpenedDevice*> members;
    for (int32_t i = 0; i < count; ++i)
      members.push_back(devices[static_cast<size_t>(first + i * step)]);
    ASSIGN_OR_RETURN(auto joined, kernels::join_devices(members, options));
    for (int32_t i = 0; i < count; ++i)
      comms[static_cast<size_t>(first + i * step)].*group =
          std::move(joined[static_cast<size_t>(i)]);
    return ok();
  };
  for (int32_t stage = 0; stage < mapping.pp; ++stage)
    RETURN_IF_ERROR(join(stage * mapping.tp, 1, mapping.tp, &exec::RankComms::tensor));
  for (int32_t t = 0; t < mapping.tp; ++t)
    RETURN_IF_ERROR(join(t, mapping.tp, mapping.pp, &exec::RankComms::pipeline));
  return comms;
}

}  // namespace nereid::runtime
