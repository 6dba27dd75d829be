#include "cli/triton/launch_triton_server.h"

#include <spawn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "cli/tools/tools.h"

namespace nereid::cli {
namespace {

namespace fs = std::filesystem;

StatusOr<int64_t> integer(const Args& args, const char* name, int64_t low, int64_t high) {
  const int64_t value = args.integer(name);
  if (value >= low && value <= high) return value;
  return invalid_argument("argument {}: '{}' is not an integer from {} to {}", name, value, low,
                          high);
}

Status check_ranks(const Args& args) {
  ASSIGN_OR_RETURN(const int64_t world_size, integer(args, "--world_size", 1, 1 << 20));
  const bool multi_model = args.is_on("--multi-model");
  const bool no_spawn = args.is_on("--disable-spawn-processes");
  if (args.is_on("--no-mpi") && world_size != 1) {
    return invalid_argument("world size must be 1 when using no-mpi");
  }
  if (multi_model && !no_spawn && world_size != 1) {
    return invalid_argument(
        "--world_size {}: must be 1 when using multi-model without disable-spawn-processes",
        world_size);
  }
  if (world_size != 1) {
    return unsupported(
        "--world_size {}: one model over several ranks is not supported yet; allowed is 1",
        world_size);
  }
  if (multi_model && no_spawn) {
    return unsupported(
        "--disable-spawn-processes: workers on other ranks are not supported yet; without it, "
        "--multi-model runs every model of the repository in one process");
  }
  return ok();
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

// Starts the server and leaves it running.
Status start(const LaunchPlan& plan) {
  for (const auto& [name, value] : plan.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (const auto& word : plan.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (const int error = ::posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ)) {
    return not_found("{}: {}", plan.command[0], std::strerror(error));
  }
  return ok();
}

Status launch(const Args& args) {
  warn_of_ignored(args);
  std::error_code error;
  const std::string bin = fs::read_symlink("/proc/self/exe", error).parent_path().string();
  ASSIGN_OR_RETURN(const LaunchPlan plan, plan_launch(args, bin));
  RETURN_IF_ERROR(refuse_second_server(args.is_on("--force")));
  return start(plan);
}

using enum ArgKind;
using enum ArgUse;

constexpr ArgFlag kLaunchFlags[] = {
    {"--world_size", kInteger, kActed, "", "1", "number of ranks; only 1 is supported"},
    {"--tritonserver", kText, kActed, "", "",
     "server executable; default: the one beside this program"},
    {"--grpc_port", kInteger, kActed, "", "8001", "gRPC port"},
    {"--http_port", kInteger, kActed, "", "8000", "HTTP port"},
    {"--metrics_port", kInteger, kActed, "", "8002", "port of the metrics page"},
    {"--force -f", kFlag, kActed, "", "", "start even when a tritonserver is running"},
    {"--log", kFlag, kActed, "", "", "log verbose messages to --log-file"},
    {"--log-file", kText, kActed, "", "triton_log.txt", "log file of --log"},
    {"--model_repo", kText, kActed, "", "",
     "model repository; default: all_models/gpt beside this program"},
    {"--tensorrt_llm_model_name", kText, kIgnored, "", "",
     "models that ranks above 0 load, such as A,B; there is one rank"},
    {"--multi-model", kFlag, kActed, "", "", "run several TensorRT-LLM models in one server"},
    {"--disable-spawn-processes", kFlag, kActed, "", "",
     "with --multi-model: mpirun starts the ranks"},
    {"--multimodal_gpu0_cuda_mem_pool_bytes", kInteger, kActed, "", "0",
     "bytes of the CUDA memory pool of GPU 0"},
    {"--oversubscribe", kFlag, kIgnored, "", "", "option of mpirun"},
    {"--no-mpi", kFlag, kActed, "", "", "start without mpirun, as always for one rank"},
    {"--trtllm_llmapi_launch", kFlag, kOnly, "", "", "serve by the Python LLM API"},
    {"--exit_timeout", kInteger, kActed, "", "",
     "seconds that running requests may take to finish at a stop"},
};

}  // namespace

const ArgTable kLaunchTable{"launch_triton_server", kLaunchFlags};

StatusOr<LaunchPlan> plan_launch(const Args& args, const std::string& bin) {
  RETURN_IF_ERROR(check_ranks(args));
  LaunchPlan plan;
  auto& command = plan.command;
  const auto text_or = [&](const char* name, const std::string& otherwise) {
    return args.given(name) ? args.text(name) : otherwise;
  };
  command = {text_or("--tritonserver", bin + "/tritonserver"),
             "--model-repository=" + text_or("--model_repo", bin + "/../all_models/gpt")};
  for (const auto& [option, flag] :
       {std::pair{"--grpc_port", "--grpc-port"}, std::pair{"--http_port", "--http-port"},
        std::pair{"--metrics_port", "--metrics-port"}}) {
    ASSIGN_OR_RETURN(const int64_t number, integer(args, option, 0, 65535));
    command.push_back(fmt::format("{}={}", flag, number));
  }
  if (args.is_on("--log")) {
    command.push_back("--log-verbose=3");
    command.push_back("--log-file=" + args.text("--log-file"));
  }
  ASSIGN_OR_RETURN(const int64_t pool,
                   integer(args, "--multimodal_gpu0_cuda_mem_pool_bytes", 0, int64_t{1} << 50));
  if (pool > 0) command.push_back(fmt::format("--cuda-memory-pool-byte-size=0:{}", pool));
  if (args.is_on("--multi-model")) {
    plan.environment = {{"TRTLLM_ORCHESTRATOR", "1"}, {"TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES", "1"}};
    if (is_newer_than_24_06(std::getenv("NVIDIA_TRITON_SERVER_VERSION"))) {
      command.insert(command.end(),
                     {"--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"});
      for (size_t gpu = 0, count = count_gpus(); gpu < count; ++gpu) {
        command.push_back(fmt::format("--cuda-memory-pool-byte-size={}:0", gpu));
      }
    }
  }
  if (args.given("--exit_timeout")) {
    ASSIGN_OR_RETURN(const int64_t seconds, integer(args, "--exit_timeout", 0, 86400));
    command.push_back(fmt::format("--exit-timeout-secs={}", seconds));
  }
  command.insert(command.end(), {"--disable-auto-complete-config",
                                 "--backend-config=python,shm-region-prefix-name=prefix0_"});
  return plan;
}

int launch_triton_server_main(int argc, char** argv) {
  return run_tool(kLaunchTable, argc, argv, launch);
}

}  // namespace nereid::cli
