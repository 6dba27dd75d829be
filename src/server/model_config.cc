// config.pbtxt: protobuf text -> normalised message -> plain ModelConfig, and the message as JSON.
#include "server/model_config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "server/config_json.h"
#include "server/ensemble_check.h"
#include "server/model_config.pb.h"

namespace nereid::server {
namespace {

namespace pb = google::protobuf;
constexpr size_t kMaxConfigBytes = 4 << 20;
constexpr int kMaxNesting = 64;
constexpr int kMaxInstances = 1024;
constexpr int kMaxDims = 32;

class FirstError : public pb::io::ErrorCollector {
 public:
  void AddError(int line, pb::io::ColumnNumber column, const std::string& text) override {
    if (text_.empty()) text_ = fmt::format("{}:{}: {}", line + 1, column + 1, text);
  }
  void AddWarning(int, pb::io::ColumnNumber, const std::string&) override {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The message with where each of its top-level fields stood, for errors.
struct Parsed {
  inference::ModelConfig config;
  pb::TextFormat::ParseInfoTree places;
  std::string path;

  // " (<path>:<line>)" of top-level field `name`, or " (<path>)" when it is absent.
  std::string where(const char* name, int index = -1) const {
    const auto* field = inference::ModelConfig::descriptor()->FindFieldByName(name);
    if (field == nullptr) return fmt::format(" ({})", path);
    const auto place = places.GetLocation(field, field->is_repeated() && index < 0 ? 0 : index);
    return place.line < 0 ? fmt::format(" ({})", path)
                          : fmt::format(" ({}:{})", path, place.line + 1);
  }
};

Status parse_text(std::string_view text, Parsed& out) {
  if (text.size() > kMaxConfigBytes) {
    return invalid_argument("{}: larger than {} bytes", out.path, kMaxConfigBytes);
  }
  pb::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&out.places);
  parser.SetRecursionLimit(kMaxNesting);
  pb::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&stream, &out.config)) {
    return invalid_argument("failed to read text proto from {}:{}", out.path,
                            error.text().empty() ? " not a model configuration" : error.text());
  }
  return ok();
}

// Fields that change what a client sees and that this server does not act on yet.
Status refuse_unsupported(const Parsed& p) {
  const auto& c = p.config;
  const auto no = [&](const char* field, std::string_view what) {
    return unsupported("model '{}': {} is not supported{}", c.name(), what, p.where(field));
  };
  if (c.has_sequence_batching()) return no("sequence_batching", "sequence_batching");
  if (c.response_cache().enable()) return no("response_cache", "response_cache");
  if (c.model_warmup_size() > 0) return no("model_warmup", "model_warmup");
  if (c.batch_input_size() > 0) return no("batch_input", "batch_input");
  if (c.batch_output_size() > 0) return no("batch_output", "batch_output");
  if (c.model_repository_agents().agents_size() > 0) {
    return no("model_repository_agents", "model_repository_agents");
  }
  if (c.model_metrics().metric_control_size() > 0) return no("model_metrics", "model_metrics");
  for (int i = 0; i < c.instance_group_size(); ++i) {
    const auto& group = c.instance_group(i);
    if (group.has_rate_limiter()) return no("instance_group", "instance_group.rate_limiter");
    if (group.passive()) return no("instance_group", "instance_group.passive");
    if (group.secondary_devices_size() > 0) {
      return no("instance_group", "instance_group.secondary_devices");
    }
  }
  const auto& batching = c.dynamic_batching();
  if (batching.priority_levels() > 0) {
    return no("dynamic_batching", "dynamic_batching.priority_levels");
  }
  if (batching.preserve_ordering()) {
    return no("dynamic_batching", "dynamic_batching.preserve_ordering");
  }
  const auto& policy = batching.default_queue_policy();
  if (policy.timeout_action() == inference::ModelQueuePolicy::DELAY &&
      policy.default_timeout_microseconds() > 0) {
    return no("dynamic_batching", "default_queue_policy.timeout_action DELAY");
  }
  return ok();
}

// Defaults that the config endpoint shows as if they had been written.
void normalise(inference::ModelConfig& c) {
  if (c.version_policy().policy_choice_case() ==
      inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET) {
    c.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  }
  if (c.has_ensemble_scheduling()) return;
  auto* optimization = c.mutable_optimization();
  if (!optimization->has_input_pinned_memory()) {
    optimization->mutable_input_pinned_memory()->set_enable(true);
  }
  if (!optimization->has_output_pinned_memory()) {
    optimization->mutable_output_pinned_memory()->set_enable(true);
  }
  if (c.has_dynamic_batching() && c.dynamic_batching().preferred_batch_size_size() == 0 &&
      c.max_batch_size() > 0) {
    c.mutable_dynamic_batching()->add_preferred_batch_size(c.max_batch_size());
  }
  if (c.platform() == "ensemble") return;
  if (c.instance_group_size() == 0) c.add_instance_group()->set_name(c.name());
  for (int i = 0; i < c.instance_group_size(); ++i) {
    auto* group = c.mutable_instance_group(i);
    if (group->name().empty()) group->set_name(fmt::format("{}_{}", c.name(), i));
    if (group->count() < 1) group->set_count(1);
    if (group->kind() == inference::ModelInstanceGroup::KIND_AUTO) {
      group->set_kind(inference::ModelInstanceGroup::KIND_CPU);
    }
  }
}

// `kind` is "input" or "output"; Message is ModelInput or ModelOutput.
template <class Message>
StatusOr<TensorSpec> tensor_spec(const Message& m, const char* kind, int index, const Parsed& p) {
  const std::string where = p.where(kind, index);
  if (m.name().empty()) return invalid_argument("model {} must specify 'name'{}", kind, where);
  if (m.data_type() == inference::TYPE_INVALID) {
    return invalid_argument("model {} '{}' must specify 'data_type'{}", kind, m.name(), where);
  }
  if (!inference::DataType_IsValid(m.data_type())) {
    return invalid_argument("model {} '{}': 'data_type' {} does not exist{}", kind, m.name(),
                            static_cast<int>(m.data_type()), where);
  }
  if (m.dims_size() == 0) {
    return invalid_argument("model {} '{}' must specify 'dims'{}", kind, m.name(), where);
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
  for (int64_t d : spec.dims) {
    if (d < 1 && d != -1) {
      return invalid_argument(
          "model {} '{}' dimension must be integer >= 1, or -1 to indicate a variable-size "
          "dimension{}",
          kind, m.name(), where);
    }
  }
  if (m.has_reshape()) {
    spec.reshape.emplace(m.reshape().shape().begin(), m.reshape().shape().end());
    const auto variable = [](const std::vector<int64_t>& dims) {
      return std::count(dims.begin(), dims.end(), -1);
    };
    // Sizes are compared as floating point: products of hostile dims may exceed 64 bits.
    const auto size = [](const std::vector<int64_t>& dims) {
      double n = 1;
      for (int64_t d : dims) n *= d == -1 ? 1.0 : static_cast<double>(d);
      return n;
    };
    if (size(spec.dims) != size(*spec.reshape) || variable(spec.dims) != variable(*spec.reshape)) {
      return invalid_argument("model {} '{}' has different size for dims and reshape for {}{}",
                              kind, m.name(), p.config.name(), where);
    }
  }
  return spec;
}

Status fill_tensors(const Parsed& p, ModelConfig& out) {
  for (int i = 0; i < p.config.input_size(); ++i) {
    ASSIGN_OR_RETURN(auto spec, tensor_spec(p.config.input(i), "input", i, p));
    if (out.input(spec.name) != nullptr) {
      return invalid_argument("model input '{}' appears twice for {}{}", spec.name, out.name,
                              p.where("input", i));
    }
    spec.optional = p.config.input(i).optional();
    out.inputs.push_back(std::move(spec));
  }
  for (int i = 0; i < p.config.output_size(); ++i) {
    ASSIGN_OR_RETURN(auto spec, tensor_spec(p.config.output(i), "output", i, p));
    // The same output written twice is in wide-spread repositories; the first one counts.
    if (out.output(spec.name) == nullptr) out.outputs.push_back(std::move(spec));
  }
  return ok();
}

Status fill_groups(const Parsed& p, ModelConfig& out) {
  for (int i = 0; i < p.config.instance_group_size(); ++i) {
    const auto& g = p.config.instance_group(i);
    const std::string where = p.where("instance_group", i);
    if (g.kind() == inference::ModelInstanceGroup::KIND_GPU) {
      return invalid_argument(
          "instance group {} of model {} has kind KIND_GPU but no GPUs are available{}", g.name(),
          out.name, where);
    }
    if (g.kind() == inference::ModelInstanceGroup::KIND_CPU && g.gpus_size() > 0) {
      return invalid_argument(
          "instance group {} of model {} has kind KIND_CPU but specifies one or more GPUs{}",
          g.name(), out.name, where);
    }
    if (g.count() > kMaxInstances) {
      return invalid_argument("instance group {} of model {}: count {} is more than {}{}", g.name(),
                              out.name, g.count(), kMaxInstances, where);
    }
    const auto kind = g.kind() == inference::ModelInstanceGroup::KIND_MODEL
                          ? TRITONSERVER_INSTANCEGROUPKIND_MODEL
                          : TRITONSERVER_INSTANCEGROUPKIND_CPU;
    out.groups.push_back({g.name(), kind, g.count(), g.host_policy()});
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
  for (const auto& step : c.ensemble_scheduling().step()) {
    out.steps.push_back({step.model_name(),
                         step.model_version() <= 0 ? -1 : step.model_version(),
                         {step.input_map().begin(), step.input_map().end()},
                         {step.output_map().begin(), step.output_map().end()}});
  }
  out.max_inflight_requests = c.ensemble_scheduling().max_inflight_requests();
  return annotate(check_ensemble_graph(out), p.path);
}

Status fill(const Parsed& p, ModelConfig& out) {
  const auto& c = p.config;
  out.name = c.name();
  out.platform = c.platform();
  out.backend = c.backend();
  out.runtime = c.runtime();
  out.decoupled = c.model_transaction_policy().decoupled();
  out.metric_tags = {c.metric_tags().begin(), c.metric_tags().end()};
  if (c.max_batch_size() < 0) {
    return invalid_argument("'max_batch_size' must be non-negative value for {}{}", out.name,
                            p.where("max_batch_size"));
  }
  out.max_batch_size = c.max_batch_size();
  if (!out.platform.empty() && out.platform != "ensemble") {
    return invalid_argument("unexpected platform type '{}' for {}{}", out.platform, out.name,
                            p.where("platform"));
  }
  if (out.backend.empty() && out.platform.empty()) {
    return invalid_argument("model '{}' must specify 'backend'{}", out.name, p.where("backend"));
  }
  if (out.backend.find_first_of("/\\") != std::string::npos ||
      out.runtime.find_first_of("/\\") != std::string::npos) {
    return invalid_argument("'backend' and 'runtime' of {} must be plain names{}", out.name,
                            p.where("backend"));
  }
  const auto& versions = c.version_policy();
  if (versions.has_all()) out.versions.latest = 0;
  if (versions.has_latest()) out.versions.latest = std::max(1u, versions.latest().num_versions());
  if (versions.has_specific()) {
    out.versions.specific = {versions.specific().versions().begin(),
                             versions.specific().versions().end()};
  }
  for (int32_t size : c.dynamic_batching().preferred_batch_size()) {
    if (size <= 0) {
      return invalid_argument("dynamic batching preferred size must be positive for {}{}", out.name,
                              p.where("dynamic_batching"));
    }
    if (size > out.max_batch_size) {
      return invalid_argument("dynamic batching preferred size must be <= max batch size for {}{}",
                              out.name, p.where("dynamic_batching"));
    }
  }
  const auto& policy = c.dynamic_batching().default_queue_policy();
  out.max_queue_size = policy.max_queue_size();
  out.queue_timeout_us = policy.default_timeout_microseconds();
  out.allow_timeout_override = policy.allow_timeout_override();
  if (c.dynamic_batching().max_queue_delay_microseconds() > 0) {
    log_warn(
        "model '{}': every request is executed at once, max_queue_delay_microseconds has no "
        "effect{}",
        out.name, p.where("dynamic_batching"));
  }
  RETURN_IF_ERROR(fill_tensors(p, out));
  RETURN_IF_ERROR(fill_groups(p, out));
  return fill_steps(p, out);
}

const TensorSpec* find(const std::vector<TensorSpec>& specs, std::string_view name) {
  const auto it = std::find_if(specs.begin(), specs.end(),
                               [&](const TensorSpec& spec) { return spec.name == name; });
  return it == specs.end() ? nullptr : &*it;
}

}  // namespace

const TensorSpec* ModelConfig::input(std::string_view tensor) const { return find(inputs, tensor); }

const TensorSpec* ModelConfig::output(std::string_view tensor) const {
  return find(outputs, tensor);
}

StatusOr<ModelConfig> parse_model_config(std::string_view text, const std::string& path,
                                         const std::string& directory_name) {
  Parsed parsed;
  parsed.path = path;
  RETURN_IF_ERROR(parse_text(text, parsed));
  auto& config = parsed.config;
  if (config.name().empty()) config.set_name(directory_name);
  if (config.name() != directory_name) {
    return invalid_argument(
        "unexpected directory name '{}' for model '{}', directory name must equal model name{}",
        directory_name, config.name(), parsed.where("name"));
  }
  RETURN_IF_ERROR(refuse_unsupported(parsed));
  normalise(config);
  ModelConfig out;
  RETURN_IF_ERROR(fill(parsed, out));
  pb::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string printed;
  if (auto status = pb::util::MessageToJsonString(config, &printed, options); !status.ok()) {
    return invalid_argument("{}: {}", path, status.ToString());
  }
  ASSIGN_OR_RETURN(out.json, numbers_in_config_json(printed));
  return out;
}

StatusOr<ModelConfig> read_model_config(const std::filesystem::path& model_dir) {
  const auto path = model_dir / "config.pbtxt";
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxConfigBytes));
  return parse_model_config(text, path.string(), model_dir.filename().string());
}

}  // namespace nereid::server
