// The subcommands: each registers its flags on the application; the chosen one runs and
// returns the exit code.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace nereid::cli {

void add_serve(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_bench_serve(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_perplexity(CLI::App& app, int& exit_code);
void add_options_page(CLI::App& app);

}  // namespace nereid::cli
