// trtllm-llmapi-launch: the prefix of commands that mpirun or srun starts on all ranks.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/log.h"
#include "cli/flags/arg_table.h"
#include "cli/process/launched.h"
#include "cli/tools/tools.h"

namespace nereid::cli {

int llmapi_launch_main(int argc, char** argv) {
  // Process 0 becomes the command, such as trtllm-serve; the others run ranks of its models.
  constexpr ArgTable kTable{"trtllm-llmapi-launch", {}, "COMMAND [ARGUMENTS]"};
  const std::string_view first = argc < 2 ? "" : argv[1];
  const bool wants_help = first == "-h" || first == "--help";
  if (first.empty() || first.starts_with('-')) {
    std::fputs(help_text(kTable).c_str(), wants_help ? stdout : stderr);
    return wants_help ? 0 : 2;
  }
  runtime::leave_default_binding();
  const auto exit_code = serve_if_launched_above_0();
  if (!exit_code.ok()) {
    log_error("{}", message(exit_code.status()));
    return 1;
  }
  if (*exit_code) std::_Exit(**exit_code);
  // Programs beside this one count before others of the same name.
  std::error_code error;
  const auto beside =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / argv[1];
  if (std::string(argv[1]).find('/') == std::string::npos && ::access(beside.c_str(), X_OK) == 0)
    ::execv(beside.c_str(), argv + 1);
  ::execvp(argv[1], argv + 1);
  log_error("{}: {}", argv[1], std::strerror(errno));
  return 127;
}

}  // namespace nereid::cli
