#include "cli/triton/launch_triton_server.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/random_hex.h"
#include "cli/tools/tools.h"
#include "runtime/ranks/launched_job.h"

namespace nereid::cli {
namespace {

namespace fs = std::filesystem;

Status check_world(const Args& args) {
  const int64_t world_size = args.integer("--world_size");
  if (args.is_on("--no-mpi") && world_size != 1)
    return invalid_argument("world size must be 1 when using no-mpi");
  if (args.is_on("--multi-model") && !args.is_on("--disable-spawn-processes") && world_size != 1)
    return invalid_argument(
        "--world_size {}: must be 1 when using multi-model without disable-spawn-processes",
        world_size);
  return ok();
}

// The number of tasks is the world size; --world_size may say so.
Status check_tasks(const Args& args, const LaunchTask& task) {
  if (args.given("--world_size") && args.integer("--world_size") != task.size)
    return invalid_argument(
        "--world_size {}: {} started {} tasks, each of which is a rank; leave it out, or start {}",
        args.integer("--world_size"), task.launcher, task.size, args.integer("--world_size"));
  if (task.size > 1 && args.is_on("--multi-model") && !args.is_on("--disable-spawn-processes"))
    return invalid_argument(
        "--multi-model: {} started {} tasks, and the server starts its ranks itself; start 1, or "
        "add --disable-spawn-processes",
        task.launcher, task.size);
  return ok();
}

// Several processes of any launcher, and a single task of srun.
StatusOr<std::optional<LaunchTask>> own_task() {
  const auto variable = [](const char* name) { return std::getenv(name); };
  ASSIGN_OR_RETURN(const auto job, runtime::read_launched_job(variable, /*may_span_hosts=*/true));
  if (job) return LaunchTask{job->launcher, job->rank, job->size};
  if (std::getenv("SLURM_STEP_ID") != nullptr) return LaunchTask{"Slurm", 0, 1};
  return std::nullopt;
}

// "24.07" > "24.06"; text that is no version counts as older.
bool is_newer_than_24_06(const char* version) {
  int year = 0, month = 0;
  if (!version || std::sscanf(version, "%d.%d", &year, &month) != 2) return false;
  return year > 24 || (year == 24 && month > 6);
}

size_t count_gpus() {
  size_t count = 0;
  std::error_code error;
  for (fs::directory_iterator it("/proc/driver/nvidia/gpus", error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  return count;
}

// Running processes of that name, as `pgrep -r R` lists them.
std::string running_servers() {
  std::string pids;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string pid = it->path().filename().string();
    if (pid.find_first_not_of("0123456789") != pid.npos) continue;
    const auto stat = read_file(it->path() / "stat", 4096);
    if (!stat.ok()) continue;  // ended meanwhile
    const size_t open = stat->find('('), close = stat->rfind(')');
    if (open == stat->npos || close == stat->npos || close + 2 >= stat->size()) continue;
    const std::string name = stat->substr(open + 1, close - open - 1);
    if (name.find("tritonserver") == name.npos || (*stat)[close + 2] != 'R') continue;
    pids += (pids.empty() ? "" : " ") + pid;
  }
  return pids;
}

Status refuse_second_server(bool force) {
  const std::string pids = running_servers();
  if (pids.empty()) return ok();
  const std::string text = fmt::format(
      "tritonserver process(es) already found with PID(s): {}.\n\tUse `kill {}` to stop them.",
      pids, pids);
  if (!force) return already_exists("{} Or use --force.", text);
  std::fprintf(stderr, "%s\n", text.c_str());
  return ok();
}

// Starts a program and leaves it running. It must not read the terminal of its user.
Status start(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? ok() : not_found("{}: {}", command[0], std::strerror(error));
}

// Does not return but with an error.
Status become(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  return not_found("{}: {}", command[0], std::strerror(errno));
}

Status start(const LaunchPlan& plan) {
  for (const auto& [name, value] : plan.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (plan.stays) return become(plan.commands[0]);
  if (plan.commands.size() > 1) {
    std::fprintf(stderr, "mpirun was not found: %zu processes are started without it\n",
                 plan.commands.size());
    ::setenv(runtime::kLaunchedSize, std::to_string(plan.commands.size()).c_str(), 1);
    ::setenv(runtime::kLaunchedKey, random_hex().c_str(), 1);
  }
  for (size_t rank = 0; rank < plan.commands.size(); ++rank) {
    if (plan.commands.size() > 1) ::setenv(runtime::kLaunchedRank, std::to_string(rank).c_str(), 1);
    RETURN_IF_ERROR(start(plan.commands[rank]));
  }
  return ok();
}

bool has_program(std::string_view name) {
  const char* const path = std::getenv("PATH");
  for (std::string_view left = path ? path : ""; !left.empty();) {
    const size_t end = std::min(left.find(':'), left.size());
    if (::access((fs::path(left.substr(0, end)) / name).c_str(), X_OK) == 0) return true;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return false;
}

Status launch(const Args& args) {
  warn_of_ignored(args);
  std::error_code error;
  const std::string bin = fs::read_symlink("/proc/self/exe", error).parent_path().string();
  ASSIGN_OR_RETURN(const auto task, own_task());
  ASSIGN_OR_RETURN(const LaunchPlan plan,
                   plan_launch(args, {bin, has_program("mpirun"), count_gpus(), task}));
  // Other tasks of this one's job have started their servers.
  if (!task) RETURN_IF_ERROR(refuse_second_server(args.is_on("--force")));
  return start(plan);
}

using enum ArgKind;
using enum config::Use;

constexpr ArgFlag kLaunchFlags[] = {
    {"--world_size", kInteger, kActed, "", "1", "number of ranks, each a process", "", in(1, 1024)},
    {"--tritonserver", kText, kActed, "", "",
     "server executable; default: the one beside this program"},
    {"--grpc_port", kInteger, kActed, "", "8001", "gRPC port", "", in(0, 65535)},
    {"--http_port", kInteger, kActed, "", "8000", "HTTP port", "", in(0, 65535)},
    {"--metrics_port", kInteger, kActed, "", "8002", "port of the metrics page", "", in(0, 65535)},
    {"--force,-f", kFlag, kActed, "", "", "start even when a tritonserver is running"},
    {"--log", kFlag, kActed, "", "", "log verbose messages to --log-file"},
    {"--log-file", kText, kActed, "", "triton_log.txt", "log file of --log"},
    {"--model_repo", kText, kActed, "", "",
     "model repository; default: all_models/gpt beside this program"},
    {"--tensorrt_llm_model_name", kText, kActed, "", "tensorrt_llm",
     "models on all ranks, such as A,B"},
    {"--multi-model", kFlag, kActed, "", "", "run several TensorRT-LLM models in one server"},
    {"--disable-spawn-processes", kFlag, kActed, "", "",
     "with --multi-model: the ranks of the models are the processes above 0"},
    {"--multimodal_gpu0_cuda_mem_pool_bytes", kInteger, kActed, "", "0",
     "bytes of the CUDA memory pool of GPU 0", "", in(0, double(int64_t{1} << 50))},
    {"--oversubscribe", kFlag, kActed, "", "", "option of mpirun: more ranks than cores"},
    {"--no-mpi", kFlag, kActed, "", "", "start one rank without mpirun"},
    {"--trtllm_llmapi_launch", kFlag, kActed, "", "", "start ranks by trtllm-llmapi-launch"},
    {"--exit_timeout", kInteger, kActed, "", "",
     "seconds that running requests may take to finish at a stop", "", in(0, 86400)},
};

}  // namespace

const ArgTable kLaunchTable{"launch_triton_server", kLaunchFlags};

namespace {

// Ports, in the order of the launcher.
std::vector<std::string> port_words(const Args& args) {
  std::vector<std::string> words;
  for (const auto& [option, flag] :
       {std::pair{"--grpc_port", "--grpc-port"}, std::pair{"--http_port", "--http-port"},
        std::pair{"--metrics_port", "--metrics-port"}}) {
    words.push_back(fmt::format("{}={}", flag, args.integer(option)));
  }
  return words;
}

// The server's pools of memory on GPUs, which models of an orchestrator do not use.
std::vector<std::string> orchestrator_words(const Args& args, size_t num_gpus) {
  std::vector<std::string> words;
  if (!args.is_on("--multi-model") || args.is_on("--disable-spawn-processes") ||
      !is_newer_than_24_06(std::getenv("NVIDIA_TRITON_SERVER_VERSION")))
    return words;
  words = {"--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"};
  for (size_t gpu = 0; gpu < num_gpus; ++gpu)
    words.push_back(fmt::format("--cuda-memory-pool-byte-size={}:0", gpu));
  return words;
}

std::vector<std::string> rank_words(const Args& args, const LaunchMachine& machine, int64_t rank) {
  const auto text_or = [&](const char* name, const std::string& otherwise) {
    return args.given(name) ? args.text(name) : otherwise;
  };
  std::vector<std::string> words;
  const auto add = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  if (args.is_on("--trtllm_llmapi_launch")) add({machine.bin + "/trtllm-llmapi-launch"});
  add({text_or("--tritonserver", machine.bin + "/tritonserver"),
       "--model-repository=" + text_or("--model_repo", machine.bin + "/../all_models/gpt")});
  if (args.given("--exit_timeout"))
    add({fmt::format("--exit-timeout-secs={}", args.integer("--exit_timeout"))});
  const std::vector<std::string> ports = port_words(args);
  add(ports);
  if (rank == 0 && args.is_on("--log"))
    add({"--log-verbose=3", "--log-file=" + args.text("--log-file")});
  if (rank > 0) {
    add({"--model-control-mode=explicit"});
    for (const std::string& name : config::split(args.text("--tensorrt_llm_model_name"), ','))
      add({"--load-model=" + name});
  }
  const int64_t pool = args.integer("--multimodal_gpu0_cuda_mem_pool_bytes");
  if (rank == 0 && pool > 0) add({fmt::format("--cuda-memory-pool-byte-size=0:{}", pool)});
  add(orchestrator_words(args, machine.num_gpus));
  add(ports);
  add({"--disable-auto-complete-config",
       fmt::format("--backend-config=python,shm-region-prefix-name=prefix{}_", rank)});
  return words;
}

}  // namespace

StatusOr<LaunchPlan> plan_launch(const Args& args, const LaunchMachine& machine) {
  LaunchPlan plan;
  if (machine.task) {
    RETURN_IF_ERROR(check_tasks(args, *machine.task));
    plan.commands.push_back(rank_words(args, machine, machine.task->rank));
    plan.stays = true;
  } else {
    RETURN_IF_ERROR(check_world(args));
    for (int64_t rank = 0; rank < args.integer("--world_size"); ++rank)
      plan.commands.push_back(rank_words(args, machine, rank));
  }
  if (args.is_on("--multi-model"))
    plan.environment = {{"TRTLLM_ORCHESTRATOR", "1"},
                        {"TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES",
                         args.is_on("--disable-spawn-processes") ? "0" : "1"}};
  if (plan.stays || args.is_on("--no-mpi") || !machine.has_mpirun) return plan;
  std::vector<std::string> command = {"mpirun", "--allow-run-as-root"};
  if (args.is_on("--oversubscribe")) command.emplace_back("--oversubscribe");
  for (const auto& words : plan.commands) {
    command.insert(command.end(), {"-n", "1"});
    command.insert(command.end(), words.begin(), words.end());
    command.emplace_back(":");
  }
  plan.commands = {std::move(command)};
  // Open MPI's timeout: mpirun that is stopped waits so many seconds, sends SIGTERM, waits as long
  // again, and sends SIGKILL. With the 3 s after which a suspended process is found, all is over
  // within 10 s by default.
  constexpr int64_t kUsualTimeout = 3, kMargin = 2;
  const int64_t timeout =
      args.given("--exit_timeout") ? args.integer("--exit_timeout") + kMargin : kUsualTimeout;
  plan.environment["OMPI_MCA_odls_base_sigkill_timeout"] = std::to_string(timeout);
  return plan;
}

int launch_triton_server_main(int argc, char** argv) {
  return run_tool(kLaunchTable, argc, argv, launch);
}

}  // namespace nereid::cli
