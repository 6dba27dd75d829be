// nereid: one program, a subcommand per task.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <exception>

#include "base/log.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  nereid::init_logging();
  CLI::App app{
      "nereid serves large language models on CPUs and NVIDIA GPUs.\n"
      "First steps:  nereid serve models/quickstart\n"
      "              nereid generate models/quickstart -p \"What is machine learning?\"",
      "nereid"};
  app.set_version_flag("--version", "nereid " NEREID_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  nereid::cli::add_serve(app, exit_code);
  nereid::cli::add_generate(app, exit_code);
  nereid::cli::add_bench(app, exit_code);
  nereid::cli::add_inspect(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    nereid::log_error("{}", error.what());
    return 1;
  }
  return exit_code;
}
