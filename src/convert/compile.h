// Compiler entry point: from a model directory to a plan for one device.
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
  kernels::KernelChoices forced;                 // "op:kernel"
  std::vector<std::string> disabled_passes;      // names of graph::passes()
  int32_t max_positions = 0;                     // longest sequence; 0 = the model's maximum
  int32_t context = 0;                           // longest served sequence; 0: max_positions
  std::optional<kernels::WeightFormat> weights;  // format of products; absent: the checkpoint's
  std::optional<kernels::WeightFormat> head;     // of the head; absent: see PassContext::head
  std::optional<kernels::WeightFormat> experts;  // of experts; absent: that of products
  bool adapters = false;                         // products support adapters
  std::vector<int32_t> hidden_layers;            // see graph::PassContext
  io::Mapping mapping;                           // whose rank to compile
  models::Half half = models::Half::kDecoder;    // of a model with an encoder
  bool takes_pictures = true;                    // false: as if the model took none
};

// Parses weight formats of products, head and experts: "auto": unchanged, "bf16", "int8":
// kInt8PerRow, "int4": kInt4Groups, "w8a8": kInt8Both, "fp8": kFp8PerRow; of experts also "mxfp4":
// kMxfp4. InvalidArgument: another value.
Status read_weight_formats(std::string_view weights, std::string_view head,
                           std::string_view experts, CompileOptions& options);

struct Compiled {
  models::Model model;  // graph as built by the family
  graph::Graph graph;   // after all passes
  io::Plan plan;        // weights have places, but no checksums
  std::vector<graph::PassReport> passes;
};

// Reads config.json and runs all passes; reads no weights. Errors as read_model() and run_passes().
StatusOr<Compiled> compile_model(const std::filesystem::path& model_dir,
                                 const kernels::Registry& registry, const DeviceInfo& device,
                                 const CompileOptions& options = {});

// Compiles a model already read with options.max_positions applied.
StatusOr<Compiled> compile_model(models::Model model, const kernels::Registry& registry,
                                 const DeviceInfo& device, const CompileOptions& options);

}  // namespace nereid::convert
