// nereid worker: ranks for a `nereid serve --hosts N` of another host.
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>

#include <cstdlib>
#include <memory>

#include "base/log.h"
#include "cli/commands/commands.h"
#include "cli/flags/options.h"
#include "cli/process/joined.h"
#include "cli/process/restarts.h"

namespace nereid::cli {
namespace {

constexpr int kMaxThreads = 4096, kMaxTimeout = 86400;

void declare(CLI::App& command, WorkerFlags& flags) {
  JoinFlags& join = flags.join;
  const auto add = [&](const char* name, auto& value, const char* environment, const char* help) {
    return command.add_option(name, value, help)->envname(environment)->capture_default_str();
  };
  add("--join", flags.leader, "NEREID_JOIN",
      "HOST:PORT of the serving process, see its --join-address; default: LWS_LEADER_ADDRESS, and "
      "port 7600");
  add("--token-file", join.token_file, "NEREID_JOIN_TOKEN_FILE",
      "file with the secret text that all processes of the group share")
      ->check(CLI::ExistingFile);
  add("--rank", flags.rank, "NEREID_JOIN_RANK",
      "which process of the group, from 1 on; 0: LWS_WORKER_INDEX, else any")
      ->check(CLI::Range(0, runtime::kMaxHosts - 1));
  add("--address", flags.address, "NEREID_WORKER_ADDRESS",
      "HOST:PORT where this process takes connections of the others; port 0: any free one");
  add("--engine-dir", flags.engine_dir, "NEREID_ENGINE_DIR",
      "folder of this host with the engine files; default: the leader's paths")
      ->check(CLI::ExistingDirectory);
  add("--threads", flags.num_threads, "NEREID_THREADS",
      "compute threads of a rank; 0: one for each core, on the leader's host a share of them")
      ->check(CLI::Range(0, kMaxThreads));
  add("--join-tls-cert", join.tls.cert, "NEREID_JOIN_TLS_CERT",
      "certificate of this process, PEM; with it the connections between the processes are TLS")
      ->check(CLI::ExistingFile);
  add("--join-tls-key", join.tls.key, "NEREID_JOIN_TLS_KEY", "private key of --join-tls-cert, PEM")
      ->check(CLI::ExistingFile);
  add("--join-tls-root", join.tls.root, "NEREID_JOIN_TLS_ROOT",
      "root certificate, PEM, that must have signed the certificates of the other processes")
      ->check(CLI::ExistingFile);
  add("--join-timeout-secs", join.timeout_seconds, "NEREID_JOIN_TIMEOUT_SECS",
      "the start fails if the leader has not answered after so long")
      ->check(CLI::Range(1, kMaxTimeout));
  command
      .add_flag("--restart", flags.restarts,
                "start again after 1, 2, 4 ... 60 s when the process has failed or was killed, the "
                "leader has ended, refused or not answered, and join the next one; without it, end")
      ->envname("NEREID_WORKER_RESTART");
}

}  // namespace

void add_worker(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("worker", "run ranks for a `nereid serve --hosts N` of another host");
  auto flags = std::make_shared<WorkerFlags>();
  declare(*command, *flags);
  command->footer(
      "Without --restart it ends with the serving process. Exit code 0: that one has ended in "
      "order; "
      "1: it refused, has died or does not answer.");
  command->callback([flags, &exit_code] {
    const auto options =
        host_worker_options(*flags, [](const char* name) { return std::getenv(name); });
    if (!options.ok()) {
      exit_code = fail(options.status());
      return;
    }
    const auto run = [&] { return runtime::serve_joined(*options); };
    // Threads of ranks that the leader has not ended end with the process.
    std::_Exit(flags->restarts ? run_with_restarts(run) : run());
  });
}

}  // namespace nereid::cli
