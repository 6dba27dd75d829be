// ModelConfig message to plain, validated data.
#include "server/config/config_fields.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/log.h"
#include "server/ensemble/ensemble_check.h"

namespace nereid::server {
namespace {

constexpr int kMaxDims = 32;
constexpr uint32_t kMaxWarmupBatch = 1 << 16;

// Sizes of the runs of fixed dimensions between variable ones, which a reshape must keep. Floating
// point: products of hostile dims may exceed 64 bits.
std::vector<double> part_sizes(const std::vector<int64_t>& dims) {
  std::vector<double> sizes = {1};
  for (const int64_t d : dims) {
    if (d == -1) {
      sizes.push_back(1);
    } else {
      sizes.back() *= static_cast<double>(d);
    }
  }
  return sizes;
}

bool is_dimension(int64_t d) { return d >= 1 || d == -1; }

// The error in a tensor's reshape, "" if none; its dims are valid.
std::string reshape_problem(const TensorSpec& spec, bool has_batches) {
  const std::vector<int64_t>& to = *spec.reshape;
  if (to.empty() && !has_batches) {
    return "cannot have empty reshape for non-batching model as scalar tensors are not supported";
  }
  if (!std::all_of(to.begin(), to.end(), is_dimension)) {
    return "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension";
  }
  const auto from_sizes = part_sizes(spec.dims), to_sizes = part_sizes(to);
  if (from_sizes.size() > 1 && to_sizes.size() > 1 && from_sizes.size() != to_sizes.size()) {
    return "has different number of variable-size dimensions for dims and reshape";
  }
  return from_sizes == to_sizes ? "" : "has different size for dims and reshape";
}

// `kind` is "input" or "output"; Message is ModelInput or ModelOutput.
template <class Message>
StatusOr<TensorSpec> tensor_spec(const Message& m, const char* kind, int index, const Parsed& p) {
  const std::string where = p.where(kind, index);
  if (m.name().empty()) return p.wrong(where, "model {} must specify 'name'", kind);
  if (m.data_type() == inference::TYPE_INVALID) {
    return p.wrong(where, "model {} '{}' must specify 'data_type'", kind, m.name());
  }
  if (!inference::DataType_IsValid(m.data_type())) {
    return invalid_argument("model {} '{}': 'data_type' {} does not exist{}", kind, m.name(),
                            static_cast<int>(m.data_type()), where);
  }
  if (m.dims_size() == 0) {
    return p.wrong(where, "model {} '{}' must specify 'dims'", kind, m.name());
  }
  if (m.dims_size() > kMaxDims) {
    return invalid_argument("model {} '{}' has {} dims, at most {}{}", kind, m.name(),
                            m.dims_size(), kMaxDims, where);
  }
  TensorSpec spec;
  spec.name = m.name();
  spec.datatype = static_cast<TRITONSERVER_DataType>(m.data_type());
  spec.dims.assign(m.dims().begin(), m.dims().end());
  spec.is_shape_tensor = m.is_shape_tensor();
  if (!std::all_of(spec.dims.begin(), spec.dims.end(), is_dimension)) {
    return p.wrong(
        where,
        "model {} '{}' dimension must be integer >= 1, or -1 to indicate a variable-size dimension",
        kind, m.name());
  }
  if (m.has_reshape()) {
    spec.reshape.emplace(m.reshape().shape().begin(), m.reshape().shape().end());
    const std::string problem = reshape_problem(spec, p.config.max_batch_size() > 0);
    if (!problem.empty()) {
      return p.wrong(where, "model {} '{}' {}", kind, m.name(), problem);
    }
  }
  return spec;
}

Status fill_tensors(const Parsed& p, ModelConfig& out) {
  for (int i = 0; i < p.config.input_size(); ++i) {
    ASSIGN_OR_RETURN(auto spec, tensor_spec(p.config.input(i), "input", i, p));
    if (out.input(spec.name) != nullptr) {
      return p.wrong(p.where("input", i), "model input '{}' appears twice", spec.name);
    }
    spec.optional = p.config.input(i).optional();
    spec.allow_ragged = p.config.input(i).allow_ragged_batch();
    out.inputs.push_back(std::move(spec));
  }
  for (int i = 0; i < p.config.output_size(); ++i) {
    ASSIGN_OR_RETURN(auto spec, tensor_spec(p.config.output(i), "output", i, p));
    spec.label_file = p.config.output(i).label_filename();
    // Duplicate outputs occur in widely used repositories; the first one counts.
    if (out.output(spec.name) == nullptr) out.outputs.push_back(std::move(spec));
  }
  return ok();
}

Status fill_steps(const Parsed& p, ModelConfig& out) {
  const auto& c = p.config;
  const bool ensemble = c.platform() == "ensemble";
  if (ensemble && !c.backend().empty()) {
    return invalid_argument(
        "Ensemble model '{}' must have platform type 'ensemble' and empty backend type{}", out.name,
        p.where("backend"));
  }
  if (ensemble && !c.has_ensemble_scheduling()) {
    return invalid_argument(
        "ensemble scheduling must be set for ensemble {} whose platform is "
        "ensemble{}",
        out.name, p.where("platform"));
  }
  if (!ensemble && c.has_ensemble_scheduling()) {
    return invalid_argument(
        "ensemble scheduling cannot be set for model '{}' whose platform is "
        "not ensemble{}",
        out.name, p.where("ensemble_scheduling"));
  }
  if (!ensemble) return ok();
  if (c.instance_group_size() > 0) {
    return invalid_argument("instance group should not be specified for ensemble '{}'{}", out.name,
                            p.where("instance_group"));
  }
  if (c.has_optimization()) {
    return invalid_argument("optimization should not be specified for ensemble '{}'{}", out.name,
                            p.where("optimization"));
  }
  for (const auto& step : c.ensemble_scheduling().step()) {
    if (!step.model_namespace().empty()) {
      log_warn(
          "ensemble '{}': model_namespace '{}' of step '{}' has no effect: a step takes the model "
          "of "
          "its own repository, else the only one of that name",
          out.name, step.model_namespace(), step.model_name());
    }
    out.steps.push_back({step.model_name(),
                         step.model_version() <= 0 ? -1 : step.model_version(),
                         {step.input_map().begin(), step.input_map().end()},
                         {step.output_map().begin(), step.output_map().end()}});
  }
  out.max_inflight_requests = c.ensemble_scheduling().max_inflight_requests();
  return annotate(check_ensemble_graph(out), p.path);
}

QueuePolicy queue_policy(const inference::ModelQueuePolicy& m) {
  return {m.timeout_action() == inference::ModelQueuePolicy::DELAY,
          m.default_timeout_microseconds(), m.allow_timeout_override(), m.max_queue_size()};
}

Status fill_batching(const Parsed& p, ModelConfig& out) {
  if (!p.config.has_dynamic_batching()) return ok();
  const auto& m = p.config.dynamic_batching();
  const std::string where = p.where("dynamic_batching");
  DynamicBatching& b = out.batching.emplace();
  b.preferred_sizes.assign(m.preferred_batch_size().begin(), m.preferred_batch_size().end());
  for (int32_t size : b.preferred_sizes) {
    if (size <= 0) {
      return p.wrong(where, "dynamic batching preferred size must be positive");
    }
    if (size > out.max_batch_size) {
      return p.wrong(where, "dynamic batching preferred size must be <= max batch size");
    }
  }
  b.max_delay_us = m.max_queue_delay_microseconds();
  b.preserve_ordering = m.preserve_ordering();
  b.priority_levels = m.priority_levels();
  b.default_priority = m.default_priority_level();
  b.queue = queue_policy(m.default_queue_policy());
  if (b.priority_levels > 0 &&
      (b.default_priority == 0 || b.default_priority > b.priority_levels)) {
    return p.wrong(where, "default priority level must be in range [1, {}]", b.priority_levels);
  }
  if (b.preserve_ordering && b.priority_levels > 1) {
    return p.wrong(where, "Only one priority level is allowed when 'preserve_ordering' is true");
  }
  if (b.priority_levels == 0 && m.priority_queue_policy_size() > 0) {
    log_warn("{}: priority_queue_policy has no effect without priority_levels{}", out.name, where);
  }
  for (const auto& [level, policy] : m.priority_queue_policy()) {
    if (b.priority_levels == 0) break;  // ignored, as in the stock server
    if (level == 0 || level > b.priority_levels) {
      return p.wrong(where, "priority queue policy must have priority level in range [1, {}]",
                     b.priority_levels);
    }
    b.level_queues[level] = queue_policy(policy);
  }
  const auto delays = [](const auto& row) { return row.second.delay_on_timeout; };
  if (b.preserve_ordering && (b.queue.delay_on_timeout ||
                              std::any_of(b.level_queues.begin(), b.level_queues.end(), delays))) {
    return p.wrong(
        where,
        "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true");
  }
  return ok();
}

Status fill_warmup(const Parsed& p, ModelConfig& out) {
  for (int i = 0; i < p.config.model_warmup_size(); ++i) {
    const auto& m = p.config.model_warmup(i);
    WarmupSample& sample = out.warmup.emplace_back();
    sample.name = m.name();
    sample.batch_size = std::max(1u, m.batch_size());
    sample.count = std::max(1u, m.count());
    if (sample.batch_size > kMaxWarmupBatch) {
      return invalid_argument("warm-up sample '{}' of {}: batch_size {} is more than {}{}",
                              m.name(), out.name, m.batch_size(), kMaxWarmupBatch,
                              p.where("model_warmup", i));
    }
    for (const auto& [name, input] : m.inputs()) {
      WarmupInput& to = sample.inputs.emplace_back();
      to.name = name;
      to.datatype = static_cast<TRITONSERVER_DataType>(input.data_type());
      to.dims.assign(input.dims().begin(), input.dims().end());
      if (input.random_data()) to.data = WarmupInput::Data::kRandom;
      if (!input.input_data_file().empty()) {
        to.data = WarmupInput::Data::kFile;
        to.file = input.input_data_file();
      }
      if (to.file.find("..") != std::string::npos || to.file.starts_with('/')) {
        return invalid_argument("warm-up sample '{}' of {}: '{}' is not a file below warmup/{}",
                                m.name(), out.name, to.file, p.where("model_warmup", i));
      }
    }
  }
  return ok();
}

Status fill_cache(const Parsed& p, ModelConfig& out) {
  out.response_cache = p.config.response_cache().enable();
  if (!out.response_cache) return ok();
  const char* what = out.decoupled                      ? "'decoupled' transaction policy"
                     : p.config.has_sequence_batching() ? "sequence batching scheduler"
                                                        : nullptr;
  if (what == nullptr) return ok();
  return invalid_argument(
      "Response Cache does not currently support model {} with {}. Please disable the response "
      "cache.{}",
      out.name, what, p.where("response_cache"));
}

Status fill_metrics(const Parsed& p, ModelConfig& out) {
  constexpr std::string_view kFamily = "nv_inference_first_response_histogram_ms";
  for (const auto& control : p.config.model_metrics().metric_control()) {
    const std::string& family = control.metric_identifier().family();
    if (family != kFamily) {
      return invalid_argument(
          "model_metrics of {}: metric family '{}' cannot be configured; only '{}' can{}", out.name,
          family, kFamily, p.where("model_metrics"));
    }
    const auto& buckets = control.histogram_options().buckets();
    if (buckets.empty()) continue;
    for (int i = 0; i < buckets.size(); ++i) {
      if (!std::isfinite(buckets[i]) || (i > 0 && buckets[i] <= buckets[i - 1])) {
        return invalid_argument(
            "model_metrics of {}: buckets of '{}' must be finite and ascending, not {} after {}{}",
            out.name, family, buckets[i], i > 0 ? buckets[i - 1] : 0, p.where("model_metrics"));
      }
    }
    out.first_response_buckets.assign(buckets.begin(), buckets.end());
  }
  return ok();
}

Status check_backend(const Parsed& p, const ModelConfig& out) {
  static const std::set<std::string> kPlatforms = {"",
                                                   "ensemble",
                                                   "onnxruntime_onnx",
                                                   "pytorch_libtorch",
                                                   "tensorrt_plan",
                                                   "tensorflow_graphdef",
                                                   "tensorflow_savedmodel"};
  if (!kPlatforms.contains(out.platform)) {
    return p.wrong(p.where("platform"), "unexpected platform type '{}'", out.platform);
  }
  if (out.backend.empty() && out.platform != "ensemble" && !p.config.has_ensemble_scheduling()) {
    return invalid_argument(
        "Invalid model name: Could not determine backend for model '{}' with no backend in model "
        "configuration. Expected model name of the form 'model.<backend_name>'.{}",
        out.name, p.where("backend"));
  }
  if (out.backend.starts_with("${")) {
    return invalid_argument(
        "'backend' of {} is the unfilled placeholder {}, expected a name such as tensorrtllm{}",
        out.name, out.backend, p.where("backend"));
  }
  for (const auto& [field, library] :
       {std::pair("backend", &out.backend), std::pair("runtime", &out.runtime)}) {
    if (library->find_first_of("/\\") == std::string::npos) continue;
    return invalid_argument(
        "backend library name '{}' escapes backend directory: '{}' of {} must be a plain name{}",
        *library, field, out.name, p.where(field));
  }
  return ok();
}

}  // namespace

Status fill_config(const Parsed& p, ModelConfig& out) {
  const auto& c = p.config;
  out.name = c.name();
  out.platform = c.platform();
  out.backend = c.backend();
  out.runtime = c.runtime();
  if (const auto it = c.parameters().find("TRITON_BATCH_STRATEGY_PATH");
      it != c.parameters().end()) {
    out.batch_strategy = it->second.string_value();
  }
  out.decoupled = c.model_transaction_policy().decoupled();
  out.metric_tags = {c.metric_tags().begin(), c.metric_tags().end()};
  if (c.max_batch_size() < 0) {
    return p.wrong(p.where("max_batch_size"), "'max_batch_size' must be non-negative value");
  }
  out.max_batch_size = c.max_batch_size();
  RETURN_IF_ERROR(check_backend(p, out));
  const auto& versions = c.version_policy();
  if (versions.has_all()) out.versions.latest = 0;
  if (versions.has_latest()) out.versions.latest = std::max(1u, versions.latest().num_versions());
  if (versions.has_specific()) {
    out.versions.is_specific = true;
    out.versions.specific = {versions.specific().versions().begin(),
                             versions.specific().versions().end()};
  }
  if (out.platform == "ensemble" && !c.model_warmup().empty()) {
    return invalid_argument("model_warmup can not be specified for ensemble '{}'{}", out.name,
                            p.where("model_warmup"));
  }
  RETURN_IF_ERROR(fill_batching(p, out));
  RETURN_IF_ERROR(fill_sequences(p, out));
  RETURN_IF_ERROR(fill_cache(p, out));
  RETURN_IF_ERROR(fill_warmup(p, out));
  RETURN_IF_ERROR(fill_metrics(p, out));
  out.tensor_problem = fill_tensors(p, out);
  if (out.tensor_problem.ok()) out.tensor_problem = check_batch_tensors(p, out);
  if (c.platform() == "ensemble") {
    if (c.has_ensemble_scheduling()) RETURN_IF_ERROR(out.tensor_problem);
  } else {
    out.group_problem = fill_groups(p, out);
  }
  return fill_steps(p, out);
}

std::string Parsed::where(const char* name, int index) const {
  if (path.empty()) return "";
  const auto* field = inference::ModelConfig::descriptor()->FindFieldByName(name);
  if (field == nullptr) return fmt::format(" ({})", path);
  const auto place = places.GetLocation(field, field->is_repeated() && index < 0 ? 0 : index);
  return place.line < 0 ? fmt::format(" ({})", path)
                        : fmt::format(" ({}:{})", path, place.line + 1);
}

}  // namespace nereid::server
