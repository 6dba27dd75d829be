// nereid options: the reference page of all options.
#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "cli/flags/options_page.h"

namespace nereid::cli {

void add_options_page(CLI::App& app) {
  app.add_subcommand("options", "print every option as Markdown (docs/options.md)")->callback([] {
    fmt::print("{}", options_page());
  });
}

}  // namespace nereid::cli
