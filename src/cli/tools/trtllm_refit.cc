// trtllm-refit: new weights for a built engine. trtllm-prune: a checkpoint without its weights, for
// building such engines.
#include "cli/flags/arg_table.h"
#include "cli/tools/tools.h"
#include "convert/measure_kernels.h"
#include "convert/quantize/prune.h"
#include "convert/refit.h"
#include "io/engine_file.h"
#include "kernels/open.h"

namespace nereid::cli {
namespace {

using enum ArgKind;
using enum config::Use;

constexpr ArgFlag kRefitFlags[] = {
    {"--checkpoint_dir", kText, kActed, "", "",
     "checkpoint or Hugging Face directory with all weights"},
    {"--engine_dir", kText, kActed, "", "", "engine directory that trtllm-build made"},
    {"--output_dir", kText, kActed, "", "engine_outputs",
     "folder that the engine is written to; may be --engine_dir"},
    {"--device", kText, kActed, "", "",
     "device, such as cuda:0; default: the first of the engine's kind"},
    {"--log_level", kText, kActed, "", "info", "debug, info, warning, error"},
};

constexpr ArgFlag kPruneFlags[] = {
    {"--checkpoint_dir", kText, kActed, "", "",
     "checkpoint directory that convert_checkpoint made"},
    {"--out_dir", kText, kActed, "", "pruned_checkpoint",
     "folder that the checkpoint is written to"},
    {"--prune_all", kFlag, kActed, "", "", "remove vectors (norms, biases) too"},
    {"--log_level", kText, kActed, "", "info", "debug, info, warning, error"},
};

Status check_given(const Args& args, const char* flag) {
  if (args.given(flag)) return ok();
  return invalid_argument("{}: is missing; give a directory", flag);
}

// Opens the device and kernels that the engine was built for.
StatusOr<kernels::OpenedDevice> open_for(const std::filesystem::path& engine_dir,
                                         const std::string& device) {
  const std::filesystem::path engine = convert::given_engine(engine_dir);
  if (engine.empty())
    return invalid_argument("--engine_dir: {} has no rank0.engine", engine_dir.string());
  ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(engine, io::Verify::kPlan));
  const bool is_cpu = file.plan().device == "cpu";
  const kernels::OpenOptions options{.isa =
                                         is_cpu ? std::string(convert::isa_of(file.plan())) : ""};
  if (!device.empty()) return kernels::open_device(device, options);
  return kernels::open_device(is_cpu ? "cpu" : file.plan().device + ":0", options);
}

Status refit(const Args& args) {
  RETURN_IF_ERROR(check_given(args, "--checkpoint_dir"));
  RETURN_IF_ERROR(check_given(args, "--engine_dir"));
  const convert::RefitOptions options = {.checkpoint_dir = args.text("--checkpoint_dir"),
                                         .engine_dir = args.text("--engine_dir"),
                                         .output_dir = args.text("--output_dir")};
  ASSIGN_OR_RETURN(const kernels::OpenedDevice opened,
                   open_for(options.engine_dir, args.text("--device")));
  convert::BuildReport report;
  RETURN_IF_ERROR(
      convert::refit_engine_dir(options, opened.registry, opened.device->info(), &report));
  fmt::print("{}: {} MiB, weights of {}\n", options.output_dir.string(), report.bytes >> 20,
             options.checkpoint_dir.string());
  return ok();
}

Status prune(const Args& args) {
  RETURN_IF_ERROR(check_given(args, "--checkpoint_dir"));
  const convert::PruneOptions options = {.checkpoint_dir = args.text("--checkpoint_dir"),
                                         .output_dir = args.text("--out_dir"),
                                         .all = args.is_on("--prune_all")};
  ASSIGN_OR_RETURN(const convert::PruneReport report, convert::prune_checkpoint(options));
  fmt::print("{}: {} tensors left out, {} of {} KiB stay\n", options.output_dir.string(),
             report.num_removed, report.bytes_after >> 10, report.bytes_before >> 10);
  return ok();
}

}  // namespace

int trtllm_refit_main(int argc, char** argv) {
  return run_tool({"trtllm-refit", kRefitFlags}, argc, argv, [](const Args& args) {
    return run_timed(args, "Total time of refitting engines", refit);
  });
}

int trtllm_prune_main(int argc, char** argv) {
  return run_tool({"trtllm-prune", kPruneFlags}, argc, argv, [](const Args& args) {
    return run_timed(args, "Total time of pruning checkpoints", prune);
  });
}

}  // namespace nereid::cli
