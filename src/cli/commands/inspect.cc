// nereid inspect: a model's architecture, its compiled plan for this machine, and its memory.
#include "convert/inspect.h"

#include <CLI/Option.hpp>
#include <algorithm>
#include <memory>

#include "base/file.h"
#include "cli/commands/commands.h"
#include "cli/flags/options.h"
#include "kernels/open.h"
#include "runtime/engine_limits.h"
#include "runtime/forced_kernels.h"
#include "runtime/ranks.h"

namespace nereid::cli {
namespace {

struct InspectCommandOptions {
  ModelOptions model;
  std::vector<std::string> disabled_passes;
  std::string graph;  // output file; empty: none
  bool verify = false;
  int32_t rank = 0;
};

Status inspect(InspectCommandOptions& options) {
  RETURN_IF_ERROR(options.model.finish());
  ExecutorConfig& config = options.model.executor;
  RETURN_IF_ERROR(runtime::apply_engine_limits(options.model.model_dir, config).status());
  ASSIGN_OR_RETURN(
      const kernels::OpenedDevice opened,
      kernels::open_device(runtime::first_device(config), {config.num_threads, config.isa}));
  convert::InspectOptions what;
  ASSIGN_OR_RETURN(const auto forced,
                   runtime::forced_kernels_of(config, opened.registry, opened.device->info()));
  what.compile = {forced, options.disabled_passes};
  RETURN_IF_ERROR(convert::read_weight_formats(config.weights, config.head_weights,
                                               config.expert_weights, what.compile));
  ASSIGN_OR_RETURN(what.compile.mapping, runtime::read_mapping(config));
  what.compile.mapping.tp = std::max(what.compile.mapping.tp, what.compile.mapping.ep);  // auto
  what.compile.mapping.rank = options.rank;
  if (options.rank >= what.compile.mapping.world())
    return invalid_argument("--rank: {} is not below the {} ranks of --tp {} and --pp {}",
                            options.rank, what.compile.mapping.world(), what.compile.mapping.tp,
                            what.compile.mapping.pp);
  what.max_num_tokens = config.max_num_tokens;
  what.max_batch_size = config.max_batch_size;
  if (config.kv_cache.max_tokens) what.kv_cache_tokens = *config.kv_cache.max_tokens;
  ASSIGN_OR_RETURN(
      const std::string report,
      convert::inspect(options.model.model_dir, opened.registry, opened.device->info(), what));
  fmt::print("{}", report);
  if (!options.graph.empty()) {
    ASSIGN_OR_RETURN(const std::string drawing,
                     convert::draw_plan(options.model.model_dir, opened.registry,
                                        opened.device->info(), what.compile));
    RETURN_IF_ERROR(write_file_atomic(options.graph, drawing));
    fmt::print("graph: {}\n", options.graph);
  }
  if (options.verify) {
    RETURN_IF_ERROR(convert::verify_model(options.model.model_dir));
    fmt::print("verified: every checksum is right\n");
  }
  return ok();
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "inspect", "print traits, graph, passes, plan, kernel choices and memory of a model");
  auto options = std::make_shared<InspectCommandOptions>();
  options->model.log_level = "warn";
  options->model.declare(*command);
  command->add_option("--disable-pass", options->disabled_passes,
                      "leave out a compiler pass; may be repeated");
  command
      ->add_option("--graph", options->graph,
                   "also draw the plan as SVG into this file, such as plan.svg")
      ->check([](const std::string& file) {
        return file.ends_with(".svg") ? std::string() : "'" + file + "' does not end in .svg";
      });
  command->add_option("--rank", options->rank, "the rank whose part is shown, with --tp and --pp")
      ->check(CLI::Range(0, io::kMaxRanks - 1))
      ->capture_default_str();
  command->add_flag("--verify", options->verify, "also check the checksums of all weights");
  command->callback([options, &exit_code] {
    if (const Status status = inspect(*options); !status.ok()) exit_code = fail(status);
  });
}

}  // namespace nereid::cli
