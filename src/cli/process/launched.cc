#include "cli/process/launched.h"

#include <cstdlib>

namespace nereid::cli {

StatusOr<std::unique_ptr<runtime::LaunchedGroup>> join_launched_processes() {
  runtime::leave_default_binding();
  ASSIGN_OR_RETURN(const auto job, runtime::launched_job());
  if (!job) return nullptr;
  if (job->rank == 0) return runtime::LaunchedGroup::lead(*job);
  // Threads of ranks that process 0 has not ended end with the process.
  std::_Exit(runtime::serve_launched(*job));
}

}  // namespace nereid::cli
