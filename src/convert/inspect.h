// Printable reports about models and engines: what `nereid inspect` shows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "convert/compile.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::convert {

struct InspectOptions {
  CompileOptions compile;
  // Sizes that the memory table is for.
  int64_t max_num_tokens = 1024;  // per step
  int64_t max_batch_size = 64;    // sequences per step
  int64_t kv_cache_tokens = 8192;
};

// Model directory: traits, graph as built, passes with their times, plan, kernel choices, memory
// table; nothing is built or cached and weights are not read. Engine file (or a directory with
// one): the same without traits, graph and passes.
StatusOr<std::string> inspect(const std::filesystem::path& path, const kernels::Registry& registry,
                              const DeviceInfo& device, const InspectOptions& options = {});

// NotFound, saying what a model is and what is there instead, when `path` is neither a checkpoint's
// folder, an engine nor a GGUF file. Reads no file.
Status check_is_model(const std::filesystem::path& path);

// The plan that inspect() prints as an SVG document; see graph_svg.h.
StatusOr<std::string> draw_plan(const std::filesystem::path& path,
                                const kernels::Registry& registry, const DeviceInfo& device,
                                const CompileOptions& options = {});

// What kind of model `path` is and why, and which of its files are read: some lines. Errors as
// read_model() and EngineFile::open().
StatusOr<std::string> describe_model(const std::filesystem::path& path);

// Checks everything there is to check. Model directory: config, the presence, shape and type of
// every tensor. Engine: header and all weights. OK, or an error naming the file and the part.
Status verify_model(const std::filesystem::path& path);

// Everything that would keep `path` from being served, as far as its files tell: weights (see
// verify_model()), tokenizer, chat template. One text for each fault.
std::vector<std::string> model_faults(const std::filesystem::path& path);

}  // namespace nereid::convert
