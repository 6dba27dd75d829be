// nereid check PATH: prints every fault of a model repository, or of a model.
#include <cstdio>

#include "cli/flags/arg_table.h"
#include "cli/flags/missing_path.h"
#include "cli/process/server_process.h"
#include "cli/repository/process_layout.h"
#include "cli/repository/repository_check.h"
#include "cli/tools/tools.h"
#include "config/engine_options.h"
#include "convert/inspect.h"
#include "runtime/ranks/launched_job.h"

namespace nereid::cli {
namespace {

// Prints the model's faults; true without any.
bool check_model(const std::filesystem::path& path) {
  auto faults = convert::model_faults(path);
  if (const auto text = convert::describe_model(path); text.ok()) std::printf("%s", text->c_str());
  if (faults.empty()) {
    const ProcessLayout layout = process_layout(path, config::served_defaults());
    if (!layout.text.empty()) std::printf("%s\n%s\n", layout.text.c_str(), machine_line().c_str());
    if (!layout.fault.ok()) faults.emplace_back(message(layout.fault));
  }
  for (const auto& fault : faults) std::printf("%s\n", fault.c_str());
  std::printf("1 model, %zu problems\n", faults.size());
  return faults.empty();
}

}  // namespace

int check_main(int argc, char** argv) {
  constexpr ArgFlag kFlags[] = {
      {"--backend-directory", ArgKind::kText, config::Use::kActed, "", "",
       "folder of the backends libtriton_NAME.so; default: backends beside bin"}};
  bool has_problems = false;
  const int code =
      run_tool({"nereid check", kFlags, "PATH"}, argc, argv, [&](const Args& args) -> Status {
        ASSIGN_OR_RETURN(const auto job, runtime::launched_job());
        if (job && job->rank > 0) return ok();  // process 0 reports
        runtime::leave_default_binding();       // as a start does
        if (convert::check_is_model(args.words()[0]).ok()) {
          has_problems = !check_model(args.words()[0]);
          return ok();
        }
        RETURN_IF_ERROR(check_exists("PATH", args.words()[0]));
        const std::string& backends = args.text("--backend-directory");
        ASSIGN_OR_RETURN(
            const RepositoryCheck checked,
            check_repository(args.words()[0],
                             backends.empty() ? default_backend_dir().string() : backends));
        for (const auto& layout : checked.layouts) std::printf("%s\n", layout.c_str());
        if (!checked.layouts.empty()) std::printf("%s\n", machine_line().c_str());
        for (const auto& problem : checked.problems) {
          std::printf("%s\n", problem_text(problem).c_str());
        }
        std::printf("%zu models, %zu problems\n", checked.num_models, checked.problems.size());
        has_problems = !checked.problems.empty();
        return ok();
      });
  return has_problems ? 1 : code;
}

}  // namespace nereid::cli
