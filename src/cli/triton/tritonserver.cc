// tritonserver: the core and its endpoints with Triton's command line.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/log.h"
#include "cli/process/address_space.h"
#include "cli/process/client_memory.h"
#include "cli/process/launched.h"
#include "cli/process/process_signals.h"
#include "cli/process/server_process.h"
#include "cli/process/stop_server.h"
#include "cli/tools/tools.h"
#include "cli/triton/triton_flags.h"
#include "cli/triton/tritonserver.h"
#include "convert/inspect.h"
#include "front/grpc/server.h"
#include "front/kserve/extensions.h"
#include "front/trace/options.h"
#include "front/trace/tracer.h"
#include "triton/core/tritonserver.h"

namespace nereid::cli {
namespace {

// "<code> - <message>" of an error, which is deleted; "" for null.
std::string text_of(TRITONSERVER_Error* error) {
  if (!error) return "";
  const std::string text =
      fmt::format("{} - {}", TRITONSERVER_ErrorCodeString(error), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return text;
}

struct CoreOptionsDelete {
  void operator()(TRITONSERVER_ServerOptions* options) const {
    static_cast<void>(text_of(TRITONSERVER_ServerOptionsDelete(options)));
  }
};
using CoreOptions = std::unique_ptr<TRITONSERVER_ServerOptions, CoreOptionsDelete>;

// Returns the error's text, or "".
std::string make_core_options(const TritonOptions& options, CoreOptions& out) {
  TRITONSERVER_ServerOptions* core = nullptr;
  if (const auto text = text_of(TRITONSERVER_ServerOptionsNew(&core)); !text.empty()) return text;
  out.reset(core);
  const std::string backends = default_backend_dir().string();
  for (TRITONSERVER_Error* error :
       {TRITONSERVER_ServerOptionsSetLogFormat(core, TRITONSERVER_LOG_DEFAULT),
        TRITONSERVER_ServerOptionsSetStrictModelConfig(core, false),
        TRITONSERVER_ServerOptionsSetBackendDirectory(core, backends.c_str())}) {
    if (const auto text = text_of(error); !text.empty()) return text;
  }
  for (const auto& [flag, set] : options.core) {
    if (const auto text = text_of(set(core)); !text.empty()) {
      return fmt::format("{}: {}", flag, text);
    }
  }
  if (options.cache_name.empty()) return "";
  json::object settings;
  for (const auto& [key, value] : options.cache_settings) settings[key] = value;
  const auto text = text_of(TRITONSERVER_ServerOptionsSetCacheConfig(
      core, options.cache_name.c_str(), json::serialize(settings).c_str()));
  return text.empty() ? "" : "--cache-config: " + text;
}

// In the stock server's words: "Unavailable - Socket '0.0.0.0:8000' already in use".
std::string start_failure(const Status& status) {
  const char* code = absl::IsUnavailable(status)       ? "Unavailable"
                     : absl::IsInvalidArgument(status) ? "Invalid argument"
                                                       : "Internal";
  return fmt::format("{} - {}", code, message(status));
}

// Checked before models are loaded. Processes that share a port (SO_REUSEPORT) do not conflict.
Status check_triton_ports(const TritonOptions& options) {
  const front::HttpOptions& http = options.http;
  const front::GrpcOptions& grpc = options.grpc;
  const PortFlags& flags = options.port_flags;
  if (options.allow_http && !http.reuse_port)
    RETURN_IF_ERROR(check_port(flags.http, flags.http_host, http.host, http.http_port));
  RETURN_IF_ERROR(check_port(flags.kserve, flags.http_host, http.host, options.kserve_http_port));
  if (options.allow_grpc && !grpc.reuse_port)
    RETURN_IF_ERROR(check_port(flags.grpc, flags.grpc_host, grpc.host, grpc.port));
  if (!options.allow_metrics) return ok();
  const std::string& host = http.metrics_host.empty() ? http.host : http.metrics_host;
  return check_port("--metrics-port", "--metrics-address", host, http.metrics_port);
}

// Refuses a model's folder given instead of the folder that contains it.
Status check_repositories(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const auto has = [](const std::filesystem::path& file) {
      std::error_code error;
      return std::filesystem::is_regular_file(file, error);
    };
    const std::filesystem::path folder = path;
    if (has(folder / "config.pbtxt"))
      return invalid_argument(
          "--model-repository: {} is one model of a repository (it has config.pbtxt); give the "
          "folder that it is in",
          path);
    bool has_models = false;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      has_models = has_models || has(entry.path() / "config.pbtxt");
    if (!has_models && convert::check_is_model(folder).ok())
      return invalid_argument(
          "--model-repository: {0} is a model, not a repository of models; serve it with `nereid "
          "serve {0}`, or give a folder with a folder for each model",
          path);
  }
  return ok();
}

// Without keys the rules are the stock server's, where --model-control-mode decides
// whether clients load models; process settings, which it lets every client change, are
// for callers on this machine.
constexpr front::AdminRules kAdminRules = {.models = front::Peers::kAny,
                                           .settings = front::Peers::kLoopback};

// The running server, stopped in order within one time limit.
class TritonProcess {
 public:
  TritonProcess(TRITONSERVER_Server* core, std::shared_ptr<front::ByteBudget> budget)
      : core_(core), budget_(std::move(budget)) {}

  // Opens the ports and logs them; false, logged, when one cannot be opened.
  bool open(const TritonOptions& options, const front::TraceOptions& trace) {
    const auto extensions = std::make_shared<front::Extensions>(
        options.log, options.allow_code_upload, options.control_mode == "explicit");
    auto keys = make_api_keys(options.api_keys, options.api_key_file, options.admin_keys);
    if (!keys.ok()) {
      log_error("{}", message(keys.status()));
      return false;
    }
    api_keys_ = *std::move(keys);
    auto tracer = front::Tracer::create(core_, trace);
    if (!tracer.ok()) {
      log_error("failed to set up tracing: {}", message(tracer.status()));
      return false;
    }
    if (options.allow_grpc && !open_grpc(options, extensions, *tracer)) return false;
    if (options.kserve_http_port >= 0 && !open_kserve(options, extensions, *tracer)) return false;
    if (!options.allow_http && !options.allow_metrics) return true;
    front::HttpOptions http = options.http;
    http.extensions = extensions;
    http.budget = budget_;
    http.api_keys = api_keys_;
    http.admin = kAdminRules;
    if (grpc_) http.grpc_stats = grpc_->stats();
    http.tracer = *std::move(tracer);
    if (!options.allow_http) http.http_port = -1;
    if (!options.allow_metrics) http.metrics_port = -1;
    auto server = front::HttpServer::start(core_, http);
    if (!server.ok()) {
      // The metrics port has a listener of its own.
      const std::string metrics = fmt::format("'{}:{}'", http.metrics_host, http.metrics_port);
      const bool is_metrics = http.metrics_port != http.http_port &&
                              message(server.status()).find(metrics) != std::string_view::npos;
      log_error("failed to start {} service: {}", is_metrics ? "Metrics" : "HTTP",
                start_failure(server.status()));
      return false;
    }
    http_ = *std::move(server);
    if (options.allow_http) {
      log_info("Started HTTPService at {}:{}", http.host, http_->http_port());
    }
    if (options.allow_metrics) {
      log_info("Started Metrics Service at {}:{}", http.metrics_host, http_->metrics_port());
    }
    return true;
  }

  void poll() {
    if (const auto text = text_of(TRITONSERVER_ServerPollModelRepository(core_)); !text.empty()) {
      log_error("failed to poll the model repository: {}", text);
    }
  }

  // Running responses may finish for `budget`; see stop_server.h.
  void stop(std::chrono::seconds budget) {
    const StopDeadline deadline(budget);
    stop_server(core_, grpc_.get(), {http_.get(), kserve_http_.get()}, deadline);
    grpc_.reset();
    http_.reset();
    kserve_http_.reset();
    static_cast<void>(text_of(TRITONSERVER_ServerDelete(core_)));
  }

  int http_port() const { return http_ ? http_->http_port() : -1; }

 private:
  // Opens KServe's port beside the HTTP port, which then has OpenAI's routes.
  bool open_kserve(const TritonOptions& options,
                   const std::shared_ptr<front::Extensions>& extensions,
                   const std::shared_ptr<front::Tracer>& tracer) {
    front::HttpOptions http = options.http;
    http.http_port = options.kserve_http_port;
    http.metrics_port = -1;
    http.allow_kserve = true;
    http.restrictions.clear();
    http.extensions = extensions;
    http.tracer = tracer;
    http.budget = budget_;
    http.api_keys = api_keys_;
    http.admin = kAdminRules;
    auto server = front::HttpServer::start(core_, http);
    if (!server.ok()) {
      log_error("failed to start KServe HTTP service: {}", start_failure(server.status()));
      return false;
    }
    kserve_http_ = *std::move(server);
    log_info("Started KServe at {}:{}", http.host, kserve_http_->http_port());
    return true;
  }

  bool open_grpc(const TritonOptions& options, const std::shared_ptr<front::Extensions>& extensions,
                 const std::shared_ptr<front::Tracer>& tracer) {
    front::GrpcOptions grpc = options.grpc;
    grpc.extensions = extensions;
    grpc.tracer = tracer;
    grpc.budget = budget_;
    grpc.api_keys = api_keys_;
    grpc.admin = kAdminRules;
    auto server = front::GrpcServer::start(core_, grpc);
    if (!server.ok()) {
      log_error("failed to start GRPC service: {}", start_failure(server.status()));
      return false;
    }
    grpc_ = *std::move(server);
    log_info("Started GRPCInferenceService at {}:{}", grpc.host, grpc_->port());
    return true;
  }

  TRITONSERVER_Server* core_;
  const std::shared_ptr<front::ByteBudget> budget_;
  std::shared_ptr<front::ApiKeys> api_keys_;
  std::unique_ptr<front::GrpcServer> grpc_;
  std::unique_ptr<front::HttpServer> http_, kserve_http_;
};

// Waits for SIGINT or SIGTERM, and calls `poll` whenever the interval passes without one.
template <class Poll>
int wait_for_signal(const sigset_t& signals, bool polls, std::chrono::seconds interval, Poll poll) {
  while (true) {
    int received = 0;
    if (polls) {
      const timespec time{static_cast<time_t>(interval.count()), 0};
      received = ::sigtimedwait(&signals, nullptr, &time);
    } else {
      received = ::sigwaitinfo(&signals, nullptr);
    }
    if (received > 0) return received;
    if (polls && errno == EAGAIN) poll();
  }
}

// Prints the error; returns the exit code.
int fail_start(const Status& status) {
  std::fprintf(stderr, "error: %s\n", std::string(message(status)).c_str());
  return 1;
}

}  // namespace

int serve_repository(const TritonOptions& options,
                     const std::function<void(int http_port)>& when_ready) {
  // Before any thread starts, so that all inherit the mask. Signals after the first stay pending.
  const sigset_t signals = block_stop_signals();
  print_stack_on_crash();

  if (const Status status = check_repositories(options.repositories); !status.ok())
    return fail_start(status);
  CoreOptions core_options;
  if (const auto text = make_core_options(options, core_options); !text.empty()) {
    std::fprintf(stderr, "error: %s\n", text.c_str());
    return 1;
  }
  const auto trace = front::parse_trace_config(options.trace);
  if (!trace.ok()) return fail_start(annotate(trace.status(), "--trace-config"));
  const auto launched = join_launched_processes();
  if (!launched.ok()) return fail_start(launched.status());
  if (const Status status = check_triton_ports(options); !status.ok()) return fail_start(status);
  for (const auto& warning : options.warnings) log_warn("{}", warning);
  if (const std::string open = what_is_open(options); !open.empty()) log_warn("{}", open);
  const auto budget = std::make_shared<front::ByteBudget>(options.client_memory_bytes);
  count_client_memory(budget);
  TRITONSERVER_Server* core = nullptr;
  const auto failure = [&] {
    const OnSignal end_on_signal(signals, end_by);
    return text_of(TRITONSERVER_ServerNew(&core, core_options.get()));
  }();
  if (!failure.empty()) {
    std::fprintf(stderr, "error: creating server: %s\n", failure.c_str());
    return 1;
  }
  TritonProcess process(core, budget);
  const int num_loops = (options.allow_http ? options.http.threads : 0) +
                        (options.allow_grpc ? options.grpc.threads : 0);
  bool is_open = process.open(options, *trace);
  if (is_open) {
    if (const Status room = check_address_space(address_space(), num_loops); !room.ok()) {
      fail_start(room);
      is_open = false;
    }
  }
  if (!is_open) {
    process.stop(std::chrono::seconds(options.exit_seconds));
    return 1;
  }
  if (when_ready) when_ready(process.http_port());
  const bool polls = options.control_mode == "poll" && options.poll_seconds > 0;
  const int received = wait_for_signal(signals, polls, std::chrono::seconds(options.poll_seconds),
                                       [&] { process.poll(); });
  if (*launched) (*launched)->is_stopping();
  std::printf("Signal (%d) received.\n", received);
  std::fflush(stdout);
  process.stop(std::chrono::seconds(options.exit_seconds));
  return 0;
}

int tritonserver_main(int argc, char** argv) {
  // Launchers and users look for the process by this name, whatever the file is called.
  ::prctl(PR_SET_NAME, "tritonserver");
  const auto options = parse_triton_flags({argv + std::min(argc, 1), argv + argc});
  const std::string usage = triton_usage(argv[0]);
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n%s: %s\n", usage.c_str(), argv[0],
                 std::string(message(options.status())).c_str());
    return 1;
  }
  if (options->wants_help) {
    std::fprintf(stderr, "%s", usage.c_str());
    return 1;
  }
  return serve_repository(*options);
}

}  // namespace nereid::cli
