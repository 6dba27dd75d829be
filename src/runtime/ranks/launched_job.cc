#include "runtime/ranks/launched_job.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tensor/cpu_probe.h"

namespace nereid::runtime {
namespace {

// Names of variables; null: there is none.
struct Launcher {
  const char* name;
  std::vector<const char*> size;  // the first one that is set
  const char* rank;
  const char* needed;                  // set only in this launcher's processes
  const char* local_size;              // processes on this host
  std::vector<const char*> num_hosts;  // used without local_size
  std::vector<const char*> key;        // together
  bool outlives_processes = true;
};

// Shells inside a Slurm allocation have SLURM_NTASKS too; only srun's processes have a step. Slurm
// starts the daemons of Hydra as tasks: PMI goes first.
const std::vector<Launcher>& launchers() {
  static const auto* const all =
      new std::vector<Launcher>{{.name = "nereid",
                                 .size = {kLaunchedSize},
                                 .rank = kLaunchedRank,
                                 .needed = nullptr,
                                 .local_size = nullptr,
                                 .num_hosts = {},
                                 .key = {kLaunchedKey},
                                 .outlives_processes = false},
                                {.name = "Open MPI",
                                 .size = {"OMPI_COMM_WORLD_SIZE"},
                                 .rank = "OMPI_COMM_WORLD_RANK",
                                 .needed = nullptr,
                                 .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
                                 .num_hosts = {},
                                 .key = {"PMIX_NAMESPACE"}},
                                {.name = "PMI",
                                 .size = {"PMI_SIZE"},
                                 .rank = "PMI_RANK",
                                 .needed = nullptr,
                                 .local_size = "MPI_LOCALNRANKS",
                                 .num_hosts = {"SLURM_STEP_NUM_NODES"},
                                 .key = {}},
                                {.name = "Slurm",
                                 .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
                                 .rank = "SLURM_PROCID",
                                 .needed = "SLURM_STEP_ID",
                                 .local_size = nullptr,
                                 .num_hosts = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
                                 .key = {"SLURM_JOB_ID", "SLURM_STEP_ID"}}};
  return *all;
}

std::optional<int32_t> number_in(std::string_view text) {
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// proc(5): "4711 (name) S PARENT ...", 22 fields with the time of its start.
struct ProcessFacts {
  pid_t parent = 0;
  std::string start_time;
};
ProcessFacts facts_of(pid_t process) {
  const auto stat = read_file(fmt::format("/proc/{}/stat", process), 4096);
  if (!stat.ok()) return {};
  const size_t name_end = stat->rfind(") ");
  if (name_end == std::string::npos) return {};
  std::vector<std::string_view> fields;  // from the third on
  for (std::string_view left = std::string_view(*stat).substr(name_end + 2); !left.empty();) {
    const size_t end = std::min(left.find(' '), left.size());
    fields.push_back(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  constexpr size_t kParent = 1, kStartTime = 19;
  if (fields.size() <= kStartTime) return {};
  return {number_in(fields[kParent]).value_or(0), std::string(fields[kStartTime])};
}

// The nearest ancestor that does not have the variable in its environment; shells between the
// launcher and this process have it.
pid_t find_launcher(std::string_view variable) {
  constexpr size_t kMaxBytes = size_t{4} << 20;
  for (pid_t process = facts_of(::getpid()).parent; process > 1;
       process = facts_of(process).parent) {
    const auto environment = read_file(fmt::format("/proc/{}/environ", process), kMaxBytes);
    if (!environment.ok()) return process;  // of another user
    const std::string name = std::string(variable) + "=";
    if (!environment->starts_with(name) && environment->find('\0' + name) == std::string::npos)
      return process;
  }
  return 0;
}

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::string text(const char* name) const {
    const char* const value = name ? environment_(name) : nullptr;
    return value ? value : "";
  }
  std::optional<int32_t> number(const char* name) const { return number_in(text(name)); }
  // The number of the first name that has one, with the name.
  std::optional<std::pair<const char*, int32_t>> number(
      const std::vector<const char*>& names) const {
    for (const char* const name : names)
      if (const auto value = number(name)) return std::pair(name, *value);
    return std::nullopt;
  }

 private:
  const Environment& environment_;
};

Status check_hosts(const Launcher& launcher, const Variables& variables, int32_t size) {
  const auto refusal = [&](const char* name, int32_t value) {
    return unsupported(
        "{} started {} processes on several hosts ({}={}): the ranks of a model run on one host; "
        "start all on one, as with `mpirun -host localhost` or `srun --nodes=1`",
        launcher.name, size, name, value);
  };
  if (const auto local = variables.number(launcher.local_size))
    return *local < size ? refusal(launcher.local_size, *local) : ok();
  const auto hosts = variables.number(launcher.num_hosts);
  return hosts && hosts->second > 1 ? refusal(hosts->first, hosts->second) : ok();
}

// The job that joined_hosts_json() describes.
StatusOr<LaunchedJob> read_joined_hosts(std::string_view text) {
  ASSIGN_OR_RETURN(const json::value value, parse_json(text, 4));
  if (!value.is_object()) return invalid_argument("{} is no object", kJoinedHosts);
  const json::object& from = value.get_object();
  JoinedHosts hosts;
  const json::value* const shares = from.if_contains("share_memory");
  hosts.share_memory = shares && shares->is_bool() && shares->get_bool();
  for (auto [name, path] :
       {std::pair("token_file", &hosts.token_file), std::pair("tls_cert", &hosts.tls.cert),
        std::pair("tls_key", &hosts.tls.key), std::pair("tls_root", &hosts.tls.root)}) {
    ASSIGN_OR_RETURN(*path, text_field(from, name));
  }
  const json::value* const workers = from.if_contains("workers");
  if (!workers || !workers->is_array())
    return invalid_argument("{} has no list of workers", kJoinedHosts);
  for (const json::value& worker : workers->get_array()) {
    if (!worker.is_string()) return invalid_argument("{}: a worker is no text", kJoinedHosts);
    ASSIGN_OR_RETURN(hosts.workers.emplace_back(),
                     parse_host_address(std::string_view(worker.get_string())));
  }
  LaunchedJob job{.size = static_cast<int32_t>(hosts.workers.size()) + 1,
                  .launcher = "nereid serve --hosts"};
  job.hosts = std::move(hosts);
  return job;
}

}  // namespace

std::string joined_hosts_json(const JoinedHosts& hosts) {
  json::array workers;
  for (const HostAddress& worker : hosts.workers) workers.emplace_back(text_of(worker));
  return json::serialize(json::object{{"workers", std::move(workers)},
                                      {"share_memory", hosts.share_memory},
                                      {"token_file", hosts.token_file.string()},
                                      {"tls_cert", hosts.tls.cert.string()},
                                      {"tls_key", hosts.tls.key.string()},
                                      {"tls_root", hosts.tls.root.string()}});
}

StatusOr<std::optional<LaunchedJob>> read_launched_job(const Environment& environment) {
  const Variables variables(environment);
  if (const std::string joined = variables.text(kJoinedHosts); !joined.empty())
    return read_joined_hosts(joined);
  for (const Launcher& launcher : launchers()) {
    if (launcher.needed && variables.text(launcher.needed).empty()) continue;
    const auto size = variables.number(launcher.size);
    if (!size) continue;
    if (size->second < 2) return std::nullopt;
    LaunchedJob job{.size = size->second, .launcher = launcher.name};
    const auto rank = variables.number(launcher.rank);
    if (!rank || *rank < 0 || *rank >= job.size)
      return invalid_argument("{} is '{}', and {} is {}: expected is a rank from 0 to {}",
                              launcher.rank, variables.text(launcher.rank), size->first, job.size,
                              job.size - 1);
    job.rank = *rank;
    RETURN_IF_ERROR(check_hosts(launcher, variables, job.size));
    const pid_t process = find_launcher(launcher.rank);
    if (launcher.outlives_processes) job.launcher_process = process;
    bool has_key = !launcher.key.empty();
    for (const char* const name : launcher.key) {
      has_key = has_key && !variables.text(name).empty();
      job.key += "." + variables.text(name);
    }
    if (!has_key) job.key = fmt::format("{}.{}", process, facts_of(process).start_time);
    return job;
  }
  return std::nullopt;
}

StatusOr<std::optional<LaunchedJob>> launched_job() {
  return read_launched_job([](const char* name) { return std::getenv(name); });
}

int launched_threads(const LaunchedJob& job) {
  const auto processors = [](pid_t process) {
    cpu_set_t set;
    return ::sched_getaffinity(process, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
  };
  const int cores = num_usable_cores();
  if (job.hosts) return job.hosts->share_memory ? std::max(cores / job.size, 1) : cores;
  const int mine = processors(0);
  const int all =
      job.launcher_process > 0 ? std::max(processors(job.launcher_process), mine) : mine;
  if (mine == 0) return std::max(cores / job.size, 1);
  const int64_t share = int64_t{cores} * all / mine / job.size;
  return static_cast<int>(std::clamp<int64_t>(share, 1, cores));
}

void leave_default_binding() {
  if (!std::getenv("OMPI_MCA_orte_bound_at_launch")) return;
  for (const char* const wish :
       {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_hwloc_base_cpu_set"})
    if (std::getenv(wish)) return;
  cpu_set_t set;
  const pid_t launcher = find_launcher("OMPI_COMM_WORLD_RANK");
  if (launcher > 0 && ::sched_getaffinity(launcher, sizeof(set), &set) == 0)
    ::sched_setaffinity(0, sizeof(set), &set);
}

std::string text_of(const LaunchedJob& job) {
  return fmt::format("process {} of {} ({})", job.rank, job.size, job.launcher);
}

}  // namespace nereid::runtime
