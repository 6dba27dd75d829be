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
  int32_t context = 0;                           // longest one that is served; 0: max_positions
  std::optional<kernels::WeightFormat> weights;  // of the products; absent: the checkpoint's
  std::optional<kernels::WeightFormat> head;     // of the head; absent: see PassContext::head
  bool adapters = false;                         // products take adapters
  std::vector<int32_t> hidden_layers;            // see graph::PassContext
};

// Sets what a build is asked to make of the weights of products and of the head's: "auto": nothing,
// "bf16", "int8": kInt8PerRow, "int4": kInt4Groups, "w8a8": kInt8Both, "fp8": kFp8PerRow.
// InvalidArgument for another word.
Status read_weight_formats(std::string_view weights, std::string_view head,
                           CompileOptions& options);

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
