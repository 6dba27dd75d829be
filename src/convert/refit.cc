#include "convert/refit.h"

#include <algorithm>
#include <chrono>
#include <variant>

#include "base/file.h"
#include "base/log.h"
#include "convert/draft_folder.h"
#include "convert/engine_key.h"
#include "convert/pretty_json.h"
#include "convert/trtllm_checkpoint.h"
#include "io/engine_file.h"
#include "models/config.h"
#include "models/formats/trtllm.h"

namespace nereid::convert {
namespace {

std::string shape_of(const io::PlanWeight& weight) {
  return fmt::format("'{}' [{}, {}] of {}", weight.name, weight.n, weight.k,
                     kernels::text_of(weight.format));
}

bool has_same_place(const io::Plane& a, const io::Plane& b) {
  return a.shape.bytes == b.shape.bytes && a.offset == b.offset;
}

bool is_same(const io::PlanWeight& a, const io::PlanWeight& b) {
  return a.name == b.name && a.format == b.format && a.n == b.n && a.k == b.k &&
         a.layout == b.layout && a.experts == b.experts &&
         std::ranges::equal(a.planes, b.planes, has_same_place);
}

Status check_same_weights(const io::Plan& plan, const io::Plan& other,
                          const std::filesystem::path& checkpoint_dir) {
  if (plan.weights.size() != other.weights.size())
    return invalid_argument("{}: makes {} weights, the engine has {}", checkpoint_dir.string(),
                            other.weights.size(), plan.weights.size());
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    if (!is_same(plan.weights[i], other.weights[i]))
      return invalid_argument(
          "{}: makes weight {} where the engine has {}{}", checkpoint_dir.string(),
          shape_of(other.weights[i]), shape_of(plan.weights[i]),
          plan.weights[i].layout == other.weights[i].layout ? "" : ", packed for other kernels");
  }
  return ok();
}

// The weight formats requested by the build, as far as the plan shows them.
void read_asked_formats(const io::Plan& plan, CompileOptions& options) {
  const io::PlanWeight* const head = head_of(plan);
  if (head) options.head = head->format;
  for (const kernels::WeightFormat& format :
       {kernels::kInt8PerRow, kernels::kInt8Both, kernels::kInt4Groups, kernels::kFp8PerRow})
    if (std::ranges::any_of(plan.weights, [&](const io::PlanWeight& w) {
          return &w != head && w.format == format;
        })) {
      options.weights = format;
      return;
    }
}

// Ranks of an engine directory's config.json. InvalidArgument: the checkpoint's differ.
StatusOr<models::Ranks> matching_ranks(const json::object& config, const RefitOptions& options,
                                       const models::Model& checkpoint) {
  models::Ranks ranks;
  const json::value* pretrained = config.if_contains("pretrained_config");
  if (!pretrained || !pretrained->is_object()) return ranks;
  ASSIGN_OR_RETURN(ranks, models::read_ranks(pretrained->get_object(),
                                             (options.engine_dir / "config.json").string()));
  if (ranks.num_files() > 1 && (checkpoint.in_engines || !(ranks == checkpoint.ranks)))
    return invalid_argument(
        "checkpoint_dir: {} has other ranks than the engine; `nereid convert --tp_size {} "
        "--pp_size "
        "{}` makes one that is",
        options.checkpoint_dir.string(), ranks.tp, ranks.pp);
  return ranks;
}

// config.json of a refitted engine, which has weights.
Status write_config(const RefitOptions& options, json::object config) {
  if (json::value* build = config.if_contains("build_config"); build && build->is_object())
    build->get_object()["use_strip_plan"] = false;
  if (json::value* model = config.if_contains("pretrained_config"); model && model->is_object())
    model->get_object().erase("is_pruned");
  return write_file_atomic(options.output_dir / "config.json", pretty_json(config));
}

}  // namespace

const io::PlanWeight* head_of(const io::Plan& plan) {
  const io::PlanWeight* head = nullptr;
  for (const io::Call& call : plan.calls)
    if (const auto* linear = std::get_if<kernels::ids::Linear>(&call.op))
      head = &plan.weights[static_cast<size_t>(linear->weight)];
  return head;
}

StatusOr<Compiled> match_weights(const io::Plan& plan, const std::filesystem::path& checkpoint_dir,
                                 const kernels::Registry& registry, const DeviceInfo& device,
                                 const io::Mapping& mapping) {
  CompileOptions options;
  options.max_positions = plan.model.max_positions;
  ASSIGN_OR_RETURN(Compiled compiled, compile_model(checkpoint_dir, registry, device, options));
  if (!check_same_weights(plan, compiled.plan, checkpoint_dir).ok()) {
    read_asked_formats(plan, options);
    ASSIGN_OR_RETURN(compiled, compile_model(checkpoint_dir, registry, device, options));
    RETURN_IF_ERROR(check_same_weights(plan, compiled.plan, checkpoint_dir));
  }
  if (!mapping.is_single() || mapping.invariant) {
    options.mapping = mapping;
    options.adapters = !plan.modules.empty();
    return compile_model(checkpoint_dir, registry, device, options);
  }
  compiled.plan = plan;
  for (io::PlanWeight& weight : compiled.plan.weights)
    for (io::Plane& plane : weight.planes) plane.checksum = 0;
  return compiled;
}

Status refit_engine_dir(const RefitOptions& options, const kernels::Registry& registry,
                        const DeviceInfo& device, BuildReport* report) {
  const auto start = std::chrono::steady_clock::now();
  BuildReport unused;
  BuildReport& out = report ? *report : unused;
  out = {};
  const std::filesystem::path given = given_engine(options.engine_dir);
  if (given.empty() || given == options.engine_dir)
    return invalid_argument("engine_dir: {} has no rank0.engine", options.engine_dir.string());
  ASSIGN_OR_RETURN(const json::object config,
                   models::read_object(options.engine_dir / "config.json"));
  std::optional<Compiled> compiled;
  {
    ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(given, io::Verify::kPlan));
    if (file.plan().device != name_of(device.kind))
      return invalid_argument("{}: built for device {}, not for {}", given.string(),
                              file.plan().device, name_of(device.kind));
    ASSIGN_OR_RETURN(compiled,
                     match_weights(file.plan(), options.checkpoint_dir, registry, device));
  }
  ASSIGN_OR_RETURN(const models::Ranks ranks, matching_ranks(config, options, compiled->model));
  ASSIGN_OR_RETURN(const io::Checkpoint checkpoint,
                   models::open_checkpoint(compiled->model, options.checkpoint_dir));
  std::error_code error;
  std::filesystem::create_directories(options.output_dir, error);
  if (error) return unavailable("{}: {}", options.output_dir.string(), error.message());
  const bool in_place = std::filesystem::equivalent(options.engine_dir, options.output_dir, error);
  if (!in_place) RETURN_IF_ERROR(copy_tokenizer(options.engine_dir, options.output_dir));
  out.key = engine_key(*compiled, &checkpoint);
  out.path = options.output_dir / "rank0.engine";
  RETURN_IF_ERROR(ranks.num_files() > 1
                      ? write_rank_engines(options.output_dir, out.key, *compiled, checkpoint, 1)
                      : write_engine(out.path, out.key, *compiled, &checkpoint));
  if (const auto heads = options.engine_dir / kDraftFolder;
      std::filesystem::is_directory(heads, error)) {
    RETURN_IF_ERROR(copy_draft_folder(heads, options.output_dir));
    RETURN_IF_ERROR(
        build_eagle_engine(options.output_dir, options.checkpoint_dir, registry, device));
  }
  RETURN_IF_ERROR(write_config(options, config));
  out.built = true;
  out.bytes = std::filesystem::file_size(out.path, error);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return ok();
}

}  // namespace nereid::convert
