// Reports about models and engines for `nereid inspect`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "convert/compile.h"
#include "io/plan.h"
#include "kernels/api/registry.h"
#include "nereid/stats.h"
#include "tensor/device.h"

namespace nereid::convert {

struct InspectOptions {
  CompileOptions compile;
  // Limits of the memory table.
  int64_t max_num_tokens = 1024;  // per step
  int64_t max_batch_size = 64;    // sequences per step
  int64_t kv_cache_tokens = 8192;
};

// Model directory: traits, graph, passes with times, plan, kernel choices, memory table; nothing is
// built or cached, weights are not read. Engine file or directory: no traits, graph, passes.
StatusOr<std::string> inspect(const std::filesystem::path& path, const kernels::Registry& registry,
                              const DeviceInfo& device, const InspectOptions& options = {});

// NotFound with the reason if `path` is no checkpoint folder, engine or GGUF file. Reads no file.
Status check_is_model(const std::filesystem::path& path);

// The plan of inspect() as SVG; see graph_svg.h.
StatusOr<std::string> draw_plan(const std::filesystem::path& path,
                                const kernels::Registry& registry, const DeviceInfo& device,
                                const CompileOptions& options = {});

// Plan and kernel choices of each plan as inspect() shows them, and the graph of the first.
PlanReport plan_report(const std::vector<io::Plan>& plans);

// Some lines: kind of model at `path`, reasons, files. Errors: read_model(), EngineFile::open().
StatusOr<std::string> describe_model(const std::filesystem::path& path);

// Full verification. Model directory: config; presence, shape and type of every tensor. Engine:
// header and all weights. Errors have file and part.
Status verify_model(const std::filesystem::path& path);

// Faults that prevent serving `path`, one text each: verify_model()'s, tokenizer, chat template.
std::vector<std::string> model_faults(const std::filesystem::path& path);

}  // namespace nereid::convert
