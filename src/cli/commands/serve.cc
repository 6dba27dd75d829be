// nereid serve: endpoints for a model folder.
#include "cli/commands/serve.h"

#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <CLI/Error.hpp>
#include <CLI/Option.hpp>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/scratch_dir.h"
#include "cli/commands/commands.h"
#include "cli/commands/serve_model.h"
#include "cli/commands/serve_options.h"
#include "cli/flags/access_flags.h"
#include "cli/process/launched.h"
#include "cli/process/process_signals.h"
#include "cli/process/running.h"
#include "cli/process/server_process.h"
#include "cli/repository/repository.h"
#include "runtime/engine_limits.h"

namespace nereid::cli {
namespace {

// "http://localhost:8000"
std::string url_of(const ServeOptions& options, int port) {
  const std::string& host = options.process.http.host;
  return fmt::format("{}://{}:{}", options.process.http.tls.enabled ? "https" : "http",
                     host == "0.0.0.0" ? "localhost" : host, port);
}

void print_addresses(const ServeOptions& options, const ServerProcess& process, bool has_text,
                     double seconds) {
  const std::string http = url_of(options, process.http_port());
  log_info("ready in {:.2f} s", seconds);
  if (options.ui) log_info("web page    {}/", http);
  if (has_text) {
    log_info("OpenAI      {}/v1  (model '{}')", http, options.model_name);
  }
  log_info("KServe v2   {}/v2  (models {})", http,
           has_text ? "ensemble, tensorrt_llm_bls, tensorrt_llm" : kTokenModel);
  if (process.grpc_port() >= 0) {
    log_info("gRPC        {}:{}", options.process.grpc.host, process.grpc_port());
  }
  if (process.metrics_port() >= 0) {
    log_info("metrics     {}/metrics", url_of(options, process.metrics_port()));
  }
  if (!has_text) {
    log_info(
        "try:  curl {}/v2/models/{}/generate -d '{{\"input_ids\": [1, 2, 3], "
        "\"input_lengths\": 3, \"request_output_len\": 8}}'",
        http, kTokenModel);
    return;
  }
  if (process.takes_sound(std::string(kTokenModel))) {
    log_info("try:  curl {}/v1/audio/transcriptions -F model={} -F file=@recording.wav", http,
             options.model_name);
    return;
  }
  log_info(
      "try:  curl {}/v1/chat/completions -H 'Content-Type: application/json' -d "
      "'{{\"model\": \"{}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'",
      http, options.model_name);
}

// The access flags, for HTTP, metrics and gRPC alike.
Status set_access(const AccessFlags& flags, ServerProcessOptions& process) {
  for (const std::string& group : flags.http_groups) {
    RETURN_IF_ERROR(restrict_http(process.http, group));
  }
  for (const std::string& group : flags.grpc_groups) {
    RETURN_IF_ERROR(restrict_grpc(process.grpc, group));
  }
  for (const std::string& origin : flags.origins) {
    RETURN_IF_ERROR(add_cors_origin(process.http, origin));
  }
  for (const std::string& host : flags.hosts) {
    RETURN_IF_ERROR(add_allowed_host(process.http, host));
  }
  front::TlsOptions tls = flags.tls;
  tls.enabled = !(tls.server_cert + tls.server_key + tls.root_cert).empty();
  tls.is_mutual = !tls.root_cert.empty();
  tls.flags = "tls";
  process.http.tls = process.grpc.tls = tls;
  process.http.metrics_use_tls = tls.enabled;
  return ok();
}

}  // namespace

StatusOr<bool> fill_repository(ServeOptions& options, const std::filesystem::path& repository) {
  if (options.model_name.empty())
    options.model_name =
        options.model.hub_id.empty()
            ? std::filesystem::weakly_canonical(options.model.model_dir).filename().string()
            : options.model.hub_id;
  // Beside the model's versions, in a folder that is not searched for models.
  ASSIGN_OR_RETURN(const std::filesystem::path tokenizer,
                   find_tokenizer(options, repository / kTokenModel / "tokenizer"));
  const bool has_text = !tokenizer.empty();
  RETURN_IF_ERROR(
      runtime::apply_engine_limits(options.model.model_dir, options.model.executor).status());
  ASSIGN_OR_RETURN(const TemplateValues values, template_values(options, tokenizer));
  RETURN_IF_ERROR(write_repository(repository, values, has_text));

  options.process.repository = repository;
  options.process.exit_timeout = std::chrono::seconds(options.exit_timeout_seconds);
  options.process.http.openai.model_name = options.model_name;
  options.process.http.openai.shows_base_url = true;
  options.process.http.openai.web_page = options.ui;
  options.process.http.infers_decoupled = options.process.grpc.infers_decoupled = true;
  options.process.grpc.host = options.process.http.host;
  return has_text;
}

namespace {

Status serve(ServeOptions& options) {
  const Time start = now();
  const std::string source = options.model.model_dir.string();
  RETURN_IF_ERROR(options.model.finish());
  RETURN_IF_ERROR(set_access(options.access, options.process));
  // Before any thread starts, so that all inherit the mask and only this one takes the signals.
  const sigset_t signals = block_stop_signals();
  print_stack_on_crash();
  ASSIGN_OR_RETURN(auto launched, join_launched_processes());
  if (launched && options.hosts.hosts > 1)
    return invalid_argument("--hosts: mpirun or srun has started several processes already");
  const auto environment = [](const char* name) { return std::getenv(name); };
  std::optional<runtime::HostGroupOptions> hosts;
  if (!launched) {
    ASSIGN_OR_RETURN(hosts, host_group_options(options.hosts, environment));
  }
  if (hosts) {
    if (options.model.executor.process_mode == "orchestrator")
      return unsupported("--hosts: process_mode orchestrator runs ranks on one host; use leader");
    const OnSignal end_while_waiting(signals, end_by);
    ASSIGN_OR_RETURN(launched, runtime::lead_hosts(*hosts));
  }

  ASSIGN_OR_RETURN(const ScratchDir repository, ScratchDir::create());
  const auto remove_repository = [&repository] {
    std::error_code error;
    std::filesystem::remove_all(repository.path(), error);
  };
  std::optional<OnSignal> end_on_signal(std::in_place, signals, [&](int signal) {
    remove_repository();
    end_by(signal);
  });
  ASSIGN_OR_RETURN(const bool has_text, fill_repository(options, repository.path()));
  ASSIGN_OR_RETURN(auto process, ServerProcess::start(options.process));
  end_on_signal.reset();
  print_addresses(options, *process, has_text, seconds(now() - start));
  if (!options.port_file.empty())
    RETURN_IF_ERROR(write_file_atomic(
        options.port_file, fmt::format("http={}\nmetrics={}\ngrpc={}\n", process->http_port(),
                                       process->metrics_port(), process->grpc_port())));
  std::optional<RunningNote> note;
  note.emplace(running_dir(), RunningServer{.url = url_of(options, process->http_port()),
                                            .model = options.model_name,
                                            .source = source});
  if (options.when_ready) options.when_ready(url_of(options, process->http_port()));

  int received = 0;
  sigwait(&signals, &received);
  if (launched) launched->is_stopping();
  note.reset();
  log_info("signal {}: finishing running requests (at most {} s)", received,
           options.exit_timeout_seconds);
  StopDeadline deadline(options.process.exit_timeout, remove_repository);
  // A second signal ends running requests at once.
  const OnSignal hurry(signals, [&deadline](int) { deadline.hurry(); });
  process->stop(deadline);
  process.reset();  // within the deadline, too
  log_info("stopped");
  return ok();
}

void declare_serve(CLI::App& app, int& exit_code,
                   std::function<void(const std::string& url)> when_ready) {
  CLI::App* command =
      app.add_subcommand("serve", "serve a model over HTTP: Triton and OpenAI endpoints");
  auto options = std::make_shared<ServeOptions>();
  options->when_ready = std::move(when_ready);
  declare_serve_flags(*command, *options);
  command->get_option("model")->required(false)->envname("NEREID_MODEL");  // may be in the file
  command
      ->add_option("--config", options->config_file,
                   "file in TOML with a line FLAG = VALUE for each flag, and model = \"DIR\"; "
                   "default: nereid/nereid.toml in $XDG_CONFIG_HOME (~/.config), else in /etc")
      ->envname("NEREID_CONFIG");
  command->add_flag("--no-config", options->no_config, "read no file of options");
  command->callback([options, command, &exit_code] {
    std::filesystem::path file = options->config_file;
    if (options->no_config)
      file.clear();
    else if (file.empty())
      file = default_config_file();
    Status status = options->model.read_config(*command, file);
    if (status.ok() && options->model.model_dir.empty()) throw CLI::RequiredError("model");
    if (status.ok()) status = serve(*options);
    if (!status.ok()) exit_code = fail(status);
  });
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) { declare_serve(app, exit_code, {}); }

int serve_main(const std::vector<std::string>& words,
               const std::function<void(const std::string& url)>& when_ready) {
  CLI::App app{"", "nereid"};
  int exit_code = 0;
  declare_serve(app, exit_code, when_ready);
  // CLI11 takes arguments in reverse order.
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  reversed.emplace_back("--no-config");
  reversed.emplace_back("serve");
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return exit_code;
}

}  // namespace nereid::cli
