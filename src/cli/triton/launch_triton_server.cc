#include "cli/triton/launch_triton_server.h"

#include <spawn.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "cli/tools/tools.h"

namespace nereid::cli {
namespace {

namespace fs = std::filesystem;

StatusOr<int64_t> integer(const ParsedArguments& arguments, const char* name, const char* otherwise,
                          int64_t low, int64_t high) {
  const std::string text = arguments.value(name, otherwise);
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    return invalid_argument("argument {}: '{}' is not an integer from {} to {}", name, text, low,
                            high);
  }
  return value;
}

Status check_ranks(const ParsedArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t world_size, integer(arguments, "--world_size", "1", 1, 1 << 20));
  const bool multi_model = arguments.has("--multi-model");
  const bool no_spawn = arguments.has("--disable-spawn-processes");
  if (arguments.has("--no-mpi") && world_size != 1) {
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

// "24.07" > "24.06"; what is no version counts as older.
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

// Processes of that name that are running at this moment, as `pgrep -r R` lists them.
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

// Starts it and leaves it running.
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

Status launch(const ParsedArguments& arguments) {
  if (!arguments.words.empty()) {
    return invalid_argument("unrecognized arguments: {}", arguments.words[0]);
  }
  std::error_code error;
  const std::string bin = fs::read_symlink("/proc/self/exe", error).parent_path().string();
  ASSIGN_OR_RETURN(const LaunchPlan plan, plan_launch(arguments, bin));
  RETURN_IF_ERROR(refuse_second_server(arguments.has("--force")));
  return start(plan);
}

}  // namespace

std::vector<ArgumentSpec> launch_options() {
  return {
      {"--world_size", "", "N", "number of ranks; only 1 works yet"},
      {"--tritonserver", "", "PATH", "server executable; default: the one beside this program"},
      {"--grpc_port", "", "PORT", "default 8001"},
      {"--http_port", "", "PORT", "default 8000"},
      {"--metrics_port", "", "PORT", "default 8002"},
      {"--force", "-f", "", "start even when a tritonserver is running"},
      {"--log", "", "", "log verbosely, to the file of --log-file"},
      {"--log-file", "", "FILE", "default triton_log.txt"},
      {"--model_repo", "", "DIR", "model repository; default: all_models/gpt beside this program"},
      {"--tensorrt_llm_model_name", "", "A,B", "models that ranks above 0 load"},
      {"--multi-model", "", "", "several TensorRT-LLM models in one server"},
      {"--disable-spawn-processes", "", "", "with --multi-model: ranks come from mpirun"},
      {"--multimodal_gpu0_cuda_mem_pool_bytes", "", "N", "CUDA memory pool of GPU 0"},
      {"--oversubscribe", "", "", "of mpirun; no effect on one rank"},
      {"--no-mpi", "", "", "without mpirun, which one rank never needs"},
      {"--trtllm_llmapi_launch", "", "", "not supported"},
      {"--exit_timeout", "", "SECS", "how long running requests may take at the end"},
  };
}

StatusOr<LaunchPlan> plan_launch(const ParsedArguments& arguments, const std::string& bin) {
  RETURN_IF_ERROR(check_ranks(arguments));
  if (arguments.has("--trtllm_llmapi_launch")) {
    return unsupported("--trtllm_llmapi_launch: the Python LLM API is not part of this server");
  }
  LaunchPlan plan;
  auto& command = plan.command;
  command = {arguments.value("--tritonserver", bin + "/tritonserver"),
             "--model-repository=" + arguments.value("--model_repo", bin + "/../all_models/gpt")};
  struct Port {
    const char *option, *flag, *otherwise;
  };
  for (const Port& port :
       {Port{"--grpc_port", "--grpc-port", "8001"}, Port{"--http_port", "--http-port", "8000"},
        Port{"--metrics_port", "--metrics-port", "8002"}}) {
    ASSIGN_OR_RETURN(const int64_t number,
                     integer(arguments, port.option, port.otherwise, 0, 65535));
    command.push_back(fmt::format("{}={}", port.flag, number));
  }
  if (arguments.has("--log")) {
    command.push_back("--log-verbose=3");
    command.push_back("--log-file=" + arguments.value("--log-file", "triton_log.txt"));
  }
  ASSIGN_OR_RETURN(const int64_t pool, integer(arguments, "--multimodal_gpu0_cuda_mem_pool_bytes",
                                               "0", 0, int64_t{1} << 50));
  if (pool > 0) command.push_back(fmt::format("--cuda-memory-pool-byte-size=0:{}", pool));
  if (arguments.has("--multi-model")) {
    plan.environment = {{"TRTLLM_ORCHESTRATOR", "1"}, {"TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES", "1"}};
    if (is_newer_than_24_06(std::getenv("NVIDIA_TRITON_SERVER_VERSION"))) {
      command.insert(command.end(),
                     {"--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"});
      for (size_t gpu = 0, count = count_gpus(); gpu < count; ++gpu) {
        command.push_back(fmt::format("--cuda-memory-pool-byte-size={}:0", gpu));
      }
    }
  }
  if (arguments.has("--exit_timeout")) {
    ASSIGN_OR_RETURN(const int64_t seconds, integer(arguments, "--exit_timeout", "", 0, 86400));
    command.push_back(fmt::format("--exit-timeout-secs={}", seconds));
  }
  command.insert(command.end(), {"--disable-auto-complete-config",
                                 "--backend-config=python,shm-region-prefix-name=prefix0_"});
  return plan;
}

int launch_triton_server_main(int argc, char** argv) {
  const auto specs = launch_options();
  const auto arguments = parse_arguments(specs, argc, argv);
  const std::string usage = usage_text("launch_triton_server", "", specs);
  if (!arguments.ok()) {
    std::fprintf(stderr, "%slaunch_triton_server: error: %s\n", usage.c_str(),
                 std::string(message(arguments.status())).c_str());
    return 2;
  }
  if (arguments->wants_help) {
    std::printf("%s", usage.c_str());
    return 0;
  }
  if (const Status status = launch(*arguments); !status.ok()) {
    std::fprintf(stderr, "launch_triton_server: %s\n", std::string(message(status)).c_str());
    return 1;
  }
  return 0;
}

}  // namespace nereid::cli
