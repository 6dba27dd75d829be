// nereid check REPO: prints every problem of a model repository.
#include <cstdio>

#include "cli/flags/arguments.h"
#include "cli/process/server_process.h"
#include "cli/repository/repository_check.h"
#include "cli/tools/tools.h"

namespace nereid::cli {

int check_main(int argc, char** argv) {
  const std::vector<ArgumentSpec> specs = {
      {"--backend-directory", "", "DIR",
       "where libtriton_NAME.so are; default: backends beside bin"}};
  const auto arguments = parse_arguments(specs, argc, argv);
  const std::string usage = usage_text("nereid check", "REPOSITORY", specs);
  if (arguments.ok() && arguments->wants_help) {
    std::printf("%s", usage.c_str());
    return 0;
  }
  if (!arguments.ok() || arguments->words.size() != 1) {
    std::fprintf(stderr, "%snereid check: error: %s\n", usage.c_str(),
                 arguments.ok() ? "one repository is needed"
                                : std::string(message(arguments.status())).c_str());
    return 2;
  }
  const auto checked = check_repository(
      arguments->words[0], arguments->value("--backend-directory", default_backend_dir().string()));
  if (!checked.ok()) {
    std::fprintf(stderr, "nereid check: %s\n", std::string(message(checked.status())).c_str());
    return 1;
  }
  for (const auto& problem : checked->problems) {
    std::printf("%s\n", problem_text(problem).c_str());
  }
  std::printf("%zu models, %zu problems\n", checked->num_models, checked->problems.size());
  return checked->problems.empty() ? 0 : 1;
}

}  // namespace nereid::cli
