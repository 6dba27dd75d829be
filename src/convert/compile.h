// The compiler's front door: a model directory to a plan for one device.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "graph/passes/passes.h"
#include "io/plan.h"
#include "kernels/api/registry.h"
#include "models/family.h"
#include "tensor/device.h"

namespace nereid::convert {

struct CompileOptions {
  kernels::Choices forced;                       // "op:kernel"
  std::vector<std::string> disabled_passes;      // names of graph::passes()
  int32_t max_positions = 0;                     // longest sequence, at most the model's; 0 = that
  std::optional<kernels::WeightFormat> weights;  // of the products; absent: the checkpoint's
  bool adapters = false;                         // products take adapters
};

// What a build is asked to make of the weights of products: "auto": nothing, "bf16", "int8":
// kInt8PerRow, "int4": kInt4Groups, "w8a8": kInt8Both. InvalidArgument for another word.
StatusOr<std::optional<kernels::WeightFormat>> weight_format(std::string_view word);

struct Compiled {
  models::Model model;  // its graph is as the family built it
  graph::Graph graph;   // after all passes
  io::Plan plan;        // weights placed, checksums not yet known
  std::vector<graph::PassReport> passes;
};

// Reads config.json and runs all passes; weights are not touched. Errors as read_model() and
// run_passes().
StatusOr<Compiled> compile_model(const std::filesystem::path& model_dir,
                                 const kernels::Registry& registry, const DeviceInfo& device,
                                 const CompileOptions& options = {});

// The same for a model that has been read; options.max_positions has been applied.
StatusOr<Compiled> compile_model(models::Model model, const kernels::Registry& registry,
                                 const DeviceInfo& device, const CompileOptions& options);

}  // namespace nereid::convert
