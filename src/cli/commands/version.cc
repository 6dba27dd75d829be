// nereid version: version, build and features.
#include <fmt/format.h>

#include <memory>

#include "cli/commands/commands.h"
#include "convert/pretty_json.h"
#include "kernels/open.h"
#include "tensor/cpu_probe.h"

namespace nereid::cli {
namespace {

json::object version_json() {
  json::array isas;
  for (const Isa isa : usable_isas()) isas.emplace_back(name_of(isa));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr bool kIsSanitized = true;
#else
  constexpr bool kIsSanitized = false;
#endif
  return {{"version", NEREID_VERSION},
          {"build", {{"compiler", __VERSION__}, {"sanitized", kIsSanitized}}},
          {"features",
           {{"protocols", {"http", "grpc", "openai", "kserve", "tls"}},
            {"usable_isas", isas},
            {"cuda_library", kernels::num_gpus().ok()}}}};
}

}  // namespace

void add_version(CLI::App& app) {
  const auto as_json = std::make_shared<bool>(false);
  CLI::App* const command = app.add_subcommand("version", "print version, build and features");
  command->add_flag("--json", *as_json, "as a JSON object");
  command->callback([as_json] {
    if (*as_json)
      fmt::print("{}\n", convert::pretty_json(version_json()));
    else
      fmt::print("nereid {}\n", NEREID_VERSION);
  });
}

}  // namespace nereid::cli
