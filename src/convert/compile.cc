#include "convert/compile.h"

#include <algorithm>
#include <utility>

#include "graph/lower.h"

namespace nereid::convert {

StatusOr<std::optional<kernels::WeightFormat>> weight_format(std::string_view word) {
  if (word == "auto") return std::optional<kernels::WeightFormat>();
  if (word == "int8") return std::optional(kernels::kInt8PerRow);
  if (word == "int4") return std::optional(kernels::kInt4Groups);
  if (word == "fp8") return std::optional(kernels::kFp8PerRow);
  return invalid_argument("weights: '{}' is not one of auto, int8, int4, fp8", word.substr(0, 40));
}

StatusOr<Compiled> compile_model(const std::filesystem::path& model_dir,
                                 const kernels::Registry& registry, const DeviceInfo& device,
                                 const CompileOptions& options) {
  Compiled out;
  ASSIGN_OR_RETURN(out.model, models::read_model(model_dir));
  int32_t& max_positions = out.model.graph.model.max_positions;
  if (options.max_positions > 0) max_positions = std::min(max_positions, options.max_positions);
  out.graph = out.model.graph;
  const graph::PassContext context{&registry, device, options.forced, options.weights};
  RETURN_IF_ERROR(graph::run_passes(out.graph, context, options.disabled_passes, &out.passes));
  ASSIGN_OR_RETURN(out.plan, graph::lower(out.graph, device));
  return out;
}

}  // namespace nereid::convert
