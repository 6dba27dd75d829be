// Error messages for a command line that does not parse.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace nereid::cli {

// Unknown words of the last parse by `app` and its chosen subcommand, one line for each, with
// the nearest flag or subcommand: "unknown flag '--prot'. Did you mean '--port'?". "" when the
// error was another one.
std::string unknown_words_text(const CLI::App& app);

// "environment variable NEREID_MAX_BATCH_SIZE: " where the error of the last parse is in the value
// that this environment variable gives a flag of the chosen subcommand; else "".
std::string variable_of_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace nereid::cli
