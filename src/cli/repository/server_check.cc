// Starts a core that finds no backend (except those inside a model), so that loads end after the
// configurations are read, and takes their errors from its log; see server_check.h.
#include "cli/repository/server_check.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/scratch_dir.h"
#include "triton/core/tritonserver.h"

namespace nereid::cli {
namespace {

constexpr size_t kMaxLogBytes = size_t{64} << 20;

Status core_status(TRITONSERVER_Error* error) {
  if (error == nullptr) return ok();
  const Status status = internal_error("{}", TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return status;
}

template <class T, TRITONSERVER_Error* (*kDelete)(T*)>
struct CoreDelete {
  void operator()(T* object) const { core_status(kDelete(object)).IgnoreError(); }
};
using CheckOptions =
    std::unique_ptr<TRITONSERVER_ServerOptions,
                    CoreDelete<TRITONSERVER_ServerOptions, TRITONSERVER_ServerOptionsDelete>>;
using CheckServer = std::unique_ptr<TRITONSERVER_Server,
                                    CoreDelete<TRITONSERVER_Server, TRITONSERVER_ServerDelete>>;

// `scratch` is empty: the folder for backends and the log.
StatusOr<CheckOptions> check_options(const std::filesystem::path& repository,
                                     const std::string& config_name,
                                     const std::filesystem::path& scratch) {
  TRITONSERVER_ServerOptions* o = nullptr;
  RETURN_IF_ERROR(core_status(TRITONSERVER_ServerOptionsNew(&o)));
  CheckOptions out(o);
  const std::string log = (scratch / "log").string();
  const std::vector<std::function<TRITONSERVER_Error*()>> settings = {
      [&] { return TRITONSERVER_ServerOptionsSetLogFile(o, log.c_str()); },
      [&] { return TRITONSERVER_ServerOptionsSetLogError(o, true); },
      [&] { return TRITONSERVER_ServerOptionsSetModelRepositoryPath(o, repository.c_str()); },
      [&] { return TRITONSERVER_ServerOptionsSetBackendDirectory(o, scratch.c_str()); },
      [&] { return TRITONSERVER_ServerOptionsSetModelConfigName(o, config_name.c_str()); },
      [&] { return TRITONSERVER_ServerOptionsSetExitOnError(o, false); },
      [&] { return TRITONSERVER_ServerOptionsSetMetrics(o, false); },
      [&] { return TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(o, 0); }};
  for (const auto& set : settings) RETURN_IF_ERROR(core_status(set()));
  return out;
}

// Restores the process's log at the end of its scope.
struct OwnLog {
  TRITONSERVER_ServerOptions* options;
  ~OwnLog() { core_status(TRITONSERVER_ServerOptionsSetLogFile(options, "")).IgnoreError(); }
};

// The text of a line "<prefix>] <text>", where text is a JSON string by default.
std::string log_text(const std::string& line) {
  const size_t at = line.find("] ");
  const std::string text = line.substr(at == line.npos ? 0 : at + 2);
  const auto quoted = parse_json(text);
  return quoted.ok() && quoted->is_string() ? std::string(quoted->get_string()) : text;
}

std::map<std::string, std::string> poll_failures(const std::string& log) {
  constexpr std::string_view kBegin = "Poll failed for model directory '";
  std::map<std::string, std::string> out;
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const std::string text = log_text(log.substr(at, end - at));
    at = end + 1;
    const size_t quote = text.starts_with(kBegin) ? text.find("': ", kBegin.size()) : text.npos;
    if (quote == text.npos) continue;
    out[text.substr(kBegin.size(), quote - kBegin.size())] = text.substr(quote + 3);
  }
  return out;
}

}  // namespace

StatusOr<std::map<std::string, std::string>> refused_configurations(
    const std::filesystem::path& repository, const std::string& config_name) {
  ASSIGN_OR_RETURN(const ScratchDir scratch, ScratchDir::create());
  ASSIGN_OR_RETURN(const CheckOptions options,
                   check_options(repository, config_name, scratch.path()));
  const OwnLog own_log{options.get()};
  TRITONSERVER_Server* server = nullptr;
  RETURN_IF_ERROR(core_status(TRITONSERVER_ServerNew(&server, options.get())));
  const CheckServer owner(server);
  ASSIGN_OR_RETURN(const std::string log, read_file(scratch.path() / "log", kMaxLogBytes));
  return poll_failures(log);
}

}  // namespace nereid::cli
