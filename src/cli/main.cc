// nereid: one program, a subcommand per task.
#include <sys/resource.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "base/log.h"
#include "base/progress.h"
#include "cli/commands/commands.h"
#include "cli/flags/parse_error.h"
#include "cli/tools/tools.h"

namespace {

using nereid::cli::Tool;

// "/x/fill_template.py" -> "fill_template"
std::string_view base_name(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  if (path.ends_with(".py")) path.remove_suffix(3);
  return path;
}

const Tool* find_tool(std::string_view name) {
  name = base_name(name);
  for (const Tool& tool : nereid::cli::all_tools())
    if (name == tool.name) return &tool;
  return nullptr;
}

// Whether `nereid serve` has --model-repository and serves a Triton repository.
bool serves_repository(int argc, char** argv) {
  return argc > 2 && std::string_view(argv[1]) == "serve" &&
         std::any_of(argv + 2, argv + argc, [](std::string_view word) {
           return word.starts_with("--model-repository") || word.starts_with("--model-store");
         });
}

// Runs the command named in `argv`. Throws when memory or threads are exhausted.
int run(int argc, char** argv) {
  if (const Tool* tool = find_tool(argv[0])) return tool->run(argc, argv);
  if (serves_repository(argc, argv)) return nereid::cli::tritonserver_main(argc - 1, argv + 1);
  if (argc > 1) {
    if (const Tool* tool = find_tool(argv[1])) return tool->run(argc - 1, argv + 1);
  }
  CLI::App app{
      "nereid serves large language models on CPUs and NVIDIA GPUs.\n"
      "First steps:  nereid serve models/quickstart\n"
      "              nereid serve hf://ORG/NAME\n"
      "              nereid generate models/quickstart -p \"What is machine learning?\"",
      "nereid"};
  app.set_version_flag("--version", "nereid " NEREID_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  nereid::cli::add_serve(app, exit_code);
  nereid::cli::add_generate(app, exit_code);
  nereid::cli::add_bench(app, exit_code);
  nereid::cli::add_bench_serve(app, exit_code);
  nereid::cli::add_inspect(app, exit_code);
  nereid::cli::add_perplexity(app, exit_code);
  nereid::cli::add_options_page(app);
  nereid::cli::add_doctor(app, exit_code);
  nereid::cli::add_version(app);
  nereid::cli::add_models(app, exit_code);
  nereid::cli::add_ps(app, exit_code);
  nereid::cli::add_chat(app, exit_code);
  nereid::cli::add_worker(app, exit_code);
  for (const Tool& tool : nereid::cli::all_tools())
    if (tool.help) app.add_subcommand(tool.name, tool.help);
  nereid::cli::add_shell_pages(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::string text = nereid::cli::unknown_words_text(app);
    if (text.empty())
      if (text = nereid::cli::variable_of_error(app, error); !text.empty())
        text += error.what() + std::string("\n");
    if (text.empty()) return app.exit(error);
    std::fprintf(stderr, "nereid: %sRun with --help for more information.\n", text.c_str());
    return error.get_exit_code();
  }
  return exit_code;
}

// A resource limit of this process, in units of `unit`.
std::string limit_text(decltype(RLIMIT_AS) resource, rlim_t unit) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur / unit);
}

}  // namespace

int main(int argc, char** argv) {
  nereid::init_logging();
  nereid::allow_progress_bars();
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    nereid::log_error("out of memory; address space in MiB (ulimit -v): {}",
                      limit_text(RLIMIT_AS, 1 << 20));
  } catch (const std::system_error& error) {
    nereid::log_error("{}; address space in MiB (ulimit -v): {}, threads (ulimit -u): {}",
                      error.what(), limit_text(RLIMIT_AS, 1 << 20), limit_text(RLIMIT_NPROC, 1));
  } catch (const std::exception& error) {
    nereid::log_error("{}", error.what());
  }
  return 1;
}
