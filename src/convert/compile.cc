#include "convert/compile.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "graph/lower.h"

namespace nereid::convert {

namespace {

StatusOr<std::optional<kernels::WeightFormat>> weight_format(std::string_view name,
                                                             std::string_view word) {
  if (word == "auto") return std::optional<kernels::WeightFormat>();
  if (word == "bf16") return std::optional(kernels::WeightFormat{});
  if (word == "int8") return std::optional(kernels::kInt8PerRow);
  if (word == "int4") return std::optional(kernels::kInt4Groups);
  if (word == "w8a8") return std::optional(kernels::kInt8Both);
  if (word == "fp8") return std::optional(kernels::kFp8PerRow);
  const bool is_of_experts = name == "expert_weights";
  if (word == "mxfp4" && is_of_experts) return std::optional(kernels::kMxfp4);
  return invalid_argument("{}: '{}' is not one of auto, bf16, int8, int4, w8a8, fp8{}", name,
                          word.substr(0, 40), is_of_experts ? ", mxfp4" : "");
}

// Reads the stored formats of a quantised model; skipped without weights.
Status find_stored_formats(const std::filesystem::path& dir, const CompileOptions& options,
                           models::Model& model) {
  const bool may_have = model.layout == models::Layout::kGguf || !model.quantization.empty();
  if (!may_have || options.weights) return ok();
  const StatusOr<io::Checkpoint> checkpoint = models::open_checkpoint(model, dir);
  if (absl::IsNotFound(checkpoint.status())) return ok();
  RETURN_IF_ERROR(checkpoint.status());
  models::use_stored_formats(model.graph, *checkpoint);
  return ok();
}

}  // namespace

Status read_weight_formats(std::string_view weights, std::string_view head,
                           std::string_view experts, CompileOptions& options) {
  ASSIGN_OR_RETURN(options.weights, weight_format("weights", weights));
  ASSIGN_OR_RETURN(options.head, weight_format("head_weights", head));
  ASSIGN_OR_RETURN(options.experts, weight_format("expert_weights", experts));
  return ok();
}

StatusOr<Compiled> compile_model(const std::filesystem::path& model_dir,
                                 const kernels::Registry& registry, const DeviceInfo& device,
                                 const CompileOptions& options) {
  ASSIGN_OR_RETURN(models::Model model, models::read_model(model_dir, options.half));
  io::ModelFacts& facts = model.graph.model;
  // Kernels of GPUs do not read BatchView::last.
  const bool lacks_last = device.kind == DeviceKind::kCuda && facts.pictures.attends_ahead();
  if (facts.pictures.patch_width > 0 && (!options.takes_pictures || lacks_last)) {
    if (facts.pictures.whole_prompts)
      return unsupported(
          "{}: the tokens of a {}'s prompt attend to one another; this is for CPUs, one stage, "
          "ranks that are threads and no draft model, and not for engine folders",
          model_dir.string(), facts.architecture);
    log_info("{} is served without pictures", model_dir.string());
    if (facts.pictures.in_cross) RETURN_IF_ERROR(models::leave_text_part(model));
    facts.pictures = {}, facts.encoder_positions = 0;
  }
  int32_t& max_positions = facts.max_positions;
  if (options.max_positions > 0) max_positions = std::min(max_positions, options.max_positions);
  const int32_t context = options.context > 0 ? options.context : max_positions;
  model.graph.model.ropes = models::rope_tables(model.traits, std::min(context, max_positions));
  RETURN_IF_ERROR(find_stored_formats(model_dir, options, model));
  ASSIGN_OR_RETURN(Compiled out, compile_model(std::move(model), registry, device, options));
  const bool has_encoder =
      out.plan.model.encoder_positions > 0 && out.plan.model.pictures.patch_width == 0;
  if (!options.adapters || !has_encoder) return out;
  // The adapters of both halves are the decoder's.
  CompileOptions other = options;
  other.half = models::Half::kEncoder;
  other.head = {};
  ASSIGN_OR_RETURN(const Compiled encoder, compile_model(model_dir, registry, device, other));
  out.plan.modules.insert(out.plan.modules.end(), encoder.plan.modules.begin(),
                          encoder.plan.modules.end());
  return out;
}

StatusOr<Compiled> compile_model(models::Model model, const kernels::Registry& registry,
                                 const DeviceInfo& device, const CompileOptions& options) {
  Compiled out;
  out.model = std::move(model);
  out.graph = out.model.graph;
  if (options.weights == kernels::kInt4Groups && out.model.quantization.empty())
    log_info(
        "weights are rounded to int4 without calibration; `nereid quantize` makes int4 weights "
        "of higher quality");
  const graph::PassContext context{.registry = &registry,
                                   .device = device,
                                   .forced = options.forced,
                                   .weights = options.weights,
                                   .head = options.head,
                                   .experts = options.experts,
                                   .adapters = options.adapters,
                                   .hidden_layers = options.hidden_layers,
                                   .mapping = options.mapping};
  RETURN_IF_ERROR(graph::run_passes(out.graph, context, options.disabled_passes, &out.passes));
  ASSIGN_OR_RETURN(out.plan, graph::lower(out.graph, device));
  return out;
}

}  // namespace nereid::convert
