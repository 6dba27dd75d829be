// nereid check PATH: prints every problem of a model repository, or of a model.
#include <cstdio>

#include "cli/flags/arguments.h"
#include "cli/process/server_process.h"
#include "cli/repository/repository_check.h"
#include "cli/tools/tools.h"
#include "convert/inspect.h"

namespace nereid::cli {
namespace {

int check_model(const std::filesystem::path& path) {
  const auto faults = convert::model_faults(path);
  if (const auto text = convert::describe_model(path); text.ok()) std::printf("%s", text->c_str());
  for (const auto& fault : faults) std::printf("%s\n", fault.c_str());
  std::printf("1 model, %zu problems\n", faults.size());
  return faults.empty() ? 0 : 1;
}

}  // namespace

int check_main(int argc, char** argv) {
  const std::vector<ArgumentSpec> specs = {
      {"--backend-directory", "", "DIR",
       "where libtriton_NAME.so are; default: backends beside bin"}};
  const auto arguments = parse_arguments(specs, argc, argv);
  const std::string usage = usage_text("nereid check", "REPOSITORY | MODEL", specs);
  if (arguments.ok() && arguments->wants_help) {
    std::printf("%s", usage.c_str());
    return 0;
  }
  if (!arguments.ok() || arguments->words.size() != 1) {
    std::fprintf(stderr, "%snereid check: error: %s\n", usage.c_str(),
                 arguments.ok() ? "one repository or model is needed"
                                : std::string(message(arguments.status())).c_str());
    return 2;
  }
  if (convert::check_is_model(arguments->words[0]).ok()) return check_model(arguments->words[0]);
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
