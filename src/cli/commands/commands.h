// The subcommands: each registers its flags on the application; the chosen one runs and
// returns the exit code.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <span>

#include "cli/tools/tools.h"

namespace nereid::cli {

void add_serve(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_bench_serve(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_perplexity(CLI::App& app, int& exit_code);
void add_options_page(CLI::App& app);
void add_doctor(CLI::App& app, int& exit_code);
void add_version(CLI::App& app);
void add_models(CLI::App& app, int& exit_code);  // pull, list, rm
void add_ps(CLI::App& app, int& exit_code);
void add_chat(CLI::App& app, int& exit_code);
void add_worker(CLI::App& app, int& exit_code);
// man, flags and completions, which list all commands of `app`. `tools`: the commands among them
// that parse their arguments themselves.
void add_shell_pages(CLI::App& app, std::span<const Tool> tools, int& exit_code);

}  // namespace nereid::cli
