#include "cli/process/launched.h"

#include <csignal>
#include <cstdlib>

#include "cli/process/joined.h"
#include "cli/process/process_signals.h"

namespace nereid::cli {
namespace {

StatusOr<std::optional<LaunchedHosts>> own_hosts() {
  return launched_hosts([](const char* name) { return std::getenv(name); });
}

// Process 0 while it waits for the others.
StatusOr<std::unique_ptr<runtime::LaunchedGroup>> lead(const runtime::HostGroupOptions& options) {
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&stops, signal);
  const OnSignal end_while_waiting(stops, end_by);
  return runtime::lead_hosts(options);
}

}  // namespace

StatusOr<std::optional<int>> serve_if_launched_above_0() {
  ASSIGN_OR_RETURN(const auto hosts, own_hosts());
  if (hosts && hosts->rank == 0) return std::nullopt;
  if (hosts) return runtime::serve_joined(hosts->worker);
  ASSIGN_OR_RETURN(const auto job, runtime::launched_job());
  if (!job || job->rank == 0) return std::nullopt;
  return runtime::serve_launched(*job);
}

StatusOr<std::unique_ptr<runtime::LaunchedGroup>> join_launched_processes() {
  runtime::leave_default_binding();
  ASSIGN_OR_RETURN(const auto exit_code, serve_if_launched_above_0());
  // Threads of ranks that process 0 has not ended end with the process.
  if (exit_code) std::_Exit(*exit_code);
  ASSIGN_OR_RETURN(const auto hosts, own_hosts());
  if (hosts) return lead(hosts->leader);
  ASSIGN_OR_RETURN(const auto job, runtime::launched_job());
  if (!job) return nullptr;
  return runtime::LaunchedGroup::lead(*job);
}

}  // namespace nereid::cli
