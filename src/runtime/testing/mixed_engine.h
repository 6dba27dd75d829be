// Test only: the shipped model with per-layer attention windows.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "convert/engine_cache.h"
#include "io/engine_file.h"
#include "io/engine_writer.h"
#include "kernels/open.h"
#include "nereid/config.h"
#include "runtime/model_instance.h"

namespace nereid::runtime {

// Writes an engine of `model` to config.cache_dir; layer i has windows[i % size] (0 = full).
inline StatusOr<std::filesystem::path> mixed_engine(const std::filesystem::path& model,
                                                    const ExecutorConfig& config,
                                                    const std::vector<int32_t>& windows) {
  ASSIGN_OR_RETURN(const auto opened, kernels::open_device(config.device, {.num_threads = 1}));
  ASSIGN_OR_RETURN(const auto build, build_options(model, config, opened));
  ASSIGN_OR_RETURN(const auto whole,
                   convert::ensure_engine(model, opened.registry, opened.device->info(), build));
  ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(whole));
  io::Plan plan = file.plan();
  std::string name = "windows";
  for (const int32_t window : windows) name += "_" + std::to_string(window);
  for (io::Call& call : plan.calls)
    if (auto* const attention = std::get_if<kernels::ids::Attention>(&call.op))
      attention->window = windows[static_cast<size_t>(attention->cache) % windows.size()];
  const auto path = config.cache_dir / (name + ".engine");
  ASSIGN_OR_RETURN(io::EngineWriter writer, io::EngineWriter::create(path, plan, "test"));
  for (const io::PlanWeight& weight : file.plan().weights)
    for (const io::Plane& plane : weight.planes) RETURN_IF_ERROR(writer.append(file.bytes(plane)));
  RETURN_IF_ERROR(writer.finish());
  return path;
}

}  // namespace nereid::runtime
