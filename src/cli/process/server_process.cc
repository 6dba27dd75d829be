#include "cli/process/server_process.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <utility>

#include "base/log.h"
#include "cli/process/address_space.h"
#include "cli/process/client_memory.h"
#include "front/bridge/model_info.h"
#include "front/http/listen.h"
#include "front/kserve/extensions.h"
#include "tensor/cpu_probe.h"
#include "triton/core/tritonserver.h"

namespace nereid::cli {
namespace {

// The error as a Status, and deletes it; OK for null.
Status take(TRITONSERVER_Error* error) {
  if (!error) return ok();
  const std::string text = TRITONSERVER_ErrorMessage(error);
  const TRITONSERVER_Error_Code code = TRITONSERVER_ErrorCode(error);
  TRITONSERVER_ErrorDelete(error);
  return code == TRITONSERVER_ERROR_INVALID_ARG ? invalid_argument("{}", text)
                                                : unavailable("{}", text);
}

struct OptionsDelete {
  void operator()(TRITONSERVER_ServerOptions* options) const {
    if (const Status status = take(TRITONSERVER_ServerOptionsDelete(options)); !status.ok())
      log_warn("{}", message(status));
  }
};
using ServerOptions = std::unique_ptr<TRITONSERVER_ServerOptions, OptionsDelete>;

StatusOr<ServerOptions> make_options(const ServerProcessOptions& options) {
  TRITONSERVER_ServerOptions* raw = nullptr;
  RETURN_IF_ERROR(take(TRITONSERVER_ServerOptionsNew(&raw)));
  ServerOptions out(raw);
  RETURN_IF_ERROR(
      take(TRITONSERVER_ServerOptionsSetModelRepositoryPath(raw, options.repository.c_str())));
  RETURN_IF_ERROR(
      take(TRITONSERVER_ServerOptionsSetBackendDirectory(raw, options.backend_dir.c_str())));
  // tritonserver prints the core's tables and lines at a start; nereid serve only
  // at log level debug.
  if (spdlog::get_level() > spdlog::level::debug) {
    RETURN_IF_ERROR(take(TRITONSERVER_ServerOptionsSetLogVerbose(raw, -1)));
  }
  RETURN_IF_ERROR(take(TRITONSERVER_ServerOptionsSetExitTimeout(
      raw, static_cast<unsigned>(options.exit_timeout.count()))));
  return out;
}

// InvalidArgument when two flags have the same port.
Status check_ports_differ(const ServerProcessOptions& options) {
  const std::pair<const char*, int> ports[] = {{"--http-port", options.http.http_port},
                                               {"--metrics-port", options.http.metrics_port},
                                               {"--grpc-port", options.grpc.port}};
  for (const auto& [flag, port] : ports)
    for (const auto& [other, same] : ports)
      if (flag != other && port > 0 && port == same)
        return invalid_argument("{} and {} are both {}; each needs a port of its own", flag, other,
                                port);
  return ok();
}

Status check_ports(const ServerProcessOptions& options) {
  const front::HttpOptions& http = options.http;
  RETURN_IF_ERROR(check_ports_differ(options));
  const std::string& metrics_host = http.metrics_host.empty() ? http.host : http.metrics_host;
  RETURN_IF_ERROR(check_port("--http-port", "--host", http.host, http.http_port));
  RETURN_IF_ERROR(check_port("--metrics-port", "--host", metrics_host, http.metrics_port));
  return check_port("--grpc-port", "--host", options.grpc.host, options.grpc.port);
}

}  // namespace

Status check_port(const char* port_flag, const char* host_flag, const std::string& host, int port) {
  if (port < 0) return ok();
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor socket(io);
  const Status status = front::listen_on(socket, host, port, /*reuse_port=*/false);
  if (status.ok()) return status;
  if (message(status).ends_with("already in use"))
    return unavailable("{} {}: {}; stop what listens there, or give another port", port_flag, port,
                       message(status));
  return annotate(status, fmt::format("{} {}, {} {}", host_flag, host, port_flag, port));
}

StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::start(const ServerProcessOptions& options) {
  RETURN_IF_ERROR(check_ports(options));
  ASSIGN_OR_RETURN(const auto api_keys,
                   make_api_keys(options.api_keys, options.api_key_file, options.admin_keys));
  ASSIGN_OR_RETURN(const ServerOptions core, make_options(options));
  const auto budget = std::make_shared<front::ByteBudget>(options.client_memory_bytes);
  count_client_memory(budget);
  std::unique_ptr<ServerProcess> process(new ServerProcess);
  RETURN_IF_ERROR(take(TRITONSERVER_ServerNew(&process->server_, core.get())));
  front::HttpOptions http = options.http;
  front::GrpcOptions grpc = options.grpc;
  http.extensions = grpc.extensions =
      std::make_shared<front::Extensions>(front::LogStart(), /*allow_code_upload=*/false,
                                          /*has_model_control=*/false);
  http.api_keys = grpc.api_keys = api_keys;
  http.allow_shared_memory = grpc.allow_shared_memory = options.allow_client_shm;
  http.budget = grpc.budget = budget;
  ASSIGN_OR_RETURN(http.tracer, front::Tracer::create(process->server_, {}));
  grpc.tracer = http.tracer;
  if (grpc.port >= 0) {
    ASSIGN_OR_RETURN(process->grpc_, front::GrpcServer::start(process->server_, std::move(grpc)));
    http.grpc_stats = process->grpc_->stats();
  }
  ASSIGN_OR_RETURN(process->http_, front::HttpServer::start(process->server_, std::move(http)));
  const int num_loops = options.http.threads + (options.grpc.port >= 0 ? options.grpc.threads : 0);
  RETURN_IF_ERROR(check_address_space(address_space(), num_loops));
  return process;
}

ServerProcess::~ServerProcess() {
  grpc_.reset();
  http_.reset();
  if (server_)
    if (const Status status = take(TRITONSERVER_ServerDelete(server_)); !status.ok())
      log_error("{}", message(status));
}

int ServerProcess::http_port() const { return http_->http_port(); }
int ServerProcess::metrics_port() const { return http_->metrics_port(); }
int ServerProcess::grpc_port() const { return grpc_ == nullptr ? -1 : grpc_->port(); }

bool ServerProcess::takes_sound(const std::string& model) const {
  const auto config = front::model_config(server_, model);
  const std::string bins = config.ok() ? front::config_parameter(*config, "num_mel_bins") : "";
  return !bins.empty() && bins != "0";
}

void ServerProcess::stop(const StopDeadline& deadline) {
  stop_server(server_, grpc_.get(), {http_.get()}, deadline);
}

StatusOr<std::shared_ptr<front::ApiKeys>> make_api_keys(
    const std::vector<std::string>& keys, const std::string& file,
    const std::vector<std::string>& admin_keys) {
  if (keys.empty() && file.empty() && admin_keys.empty()) return std::shared_ptr<front::ApiKeys>();
  return front::ApiKeys::create(keys, file, admin_keys);
}

int default_event_loops() { return std::clamp(num_usable_cores(), 2, 8); }

std::filesystem::path default_backend_dir() {
  std::error_code error;
  const auto binary = std::filesystem::read_symlink("/proc/self/exe", error);
  return binary.parent_path().parent_path() / "backends";
}

}  // namespace nereid::cli
