// Instance groups of the configuration, and the tensors that a backend adds to a batch.
#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "server/config/config_fields.h"

namespace nereid::server {
namespace {

using Group = inference::ModelInstanceGroup;
constexpr size_t kMaxInstances = 1024;

// The kind of a group with KIND_AUTO.
Group::Kind deduced_kind(const Group& group, const UsableGpus& gpus) {
  const bool is_usable =
      !gpus.ids.empty() && std::all_of(group.gpus().begin(), group.gpus().end(),
                                       [&](int32_t id) { return gpus.ids.contains(id); });
  return is_usable ? Group::KIND_GPU : Group::KIND_CPU;
}

Status check_group(const Group& g, const std::string& model, const UsableGpus& gpus,
                   const std::string& where) {
  const auto wrong = [&](const std::string& what) {
    return invalid_argument("instance group {} of model {} {}{}", g.name(), model, what, where);
  };
  if (g.kind() == Group::KIND_CPU && g.gpus_size() > 0) {
    return wrong("has kind KIND_CPU but specifies one or more GPUs");
  }
  if (g.kind() == Group::KIND_GPU && g.gpus_size() == 0) {
    return wrong("has kind KIND_GPU but no GPUs are available");
  }
  for (const int32_t id : g.gpus()) {
    if (g.kind() != Group::KIND_GPU || gpus.ids.contains(id)) continue;
    return wrong(
        fmt::format("specifies invalid or unsupported gpu id {}. GPUs with at least the minimum "
                    "required CUDA compute compatibility of {:.6f} are: {}",
                    id, gpus.min_capability, fmt::join(gpus.ids, ", ")));
  }
  const size_t num_devices = static_cast<size_t>(std::max(1, g.gpus_size()));
  if (static_cast<size_t>(g.count()) > kMaxInstances / num_devices) {
    return wrong(fmt::format("has count {} on {} devices: more than {} instances", g.count(),
                             num_devices, kMaxInstances));
  }
  return ok();
}

TRITONSERVER_InstanceGroupKind kind_of(const Group& g) {
  if (g.kind() == Group::KIND_MODEL) return TRITONSERVER_INSTANCEGROUPKIND_MODEL;
  return g.kind() == Group::KIND_GPU ? TRITONSERVER_INSTANCEGROUPKIND_GPU
                                     : TRITONSERVER_INSTANCEGROUPKIND_CPU;
}

Group::Kind kind_of(const PreferredGroup& preferred) {
  switch (preferred.kind) {
    case TRITONSERVER_INSTANCEGROUPKIND_CPU:
      return Group::KIND_CPU;
    case TRITONSERVER_INSTANCEGROUPKIND_GPU:
      return Group::KIND_GPU;
    case TRITONSERVER_INSTANCEGROUPKIND_MODEL:
      return Group::KIND_MODEL;
    case TRITONSERVER_INSTANCEGROUPKIND_AUTO:
      break;
  }
  return Group::KIND_AUTO;
}

}  // namespace

void normalise_groups(const UsableGpus& gpus, inference::ModelConfig& c) {
  if (c.instance_group_size() == 0) c.add_instance_group()->set_name(c.name());
  for (int i = 0; i < c.instance_group_size(); ++i) {
    Group& group = *c.mutable_instance_group(i);
    if (group.name().empty()) group.set_name(fmt::format("{}_{}", c.name(), i));
    if (group.kind() == Group::KIND_AUTO) group.set_kind(deduced_kind(group, gpus));
    if (group.kind() == Group::KIND_GPU && group.gpus_size() == 0) {
      for (const int32_t id : gpus.ids) group.add_gpus(id);
    }
    const bool is_paired = group.kind() == Group::KIND_CPU &&
                           (c.backend() == "onnxruntime" || c.backend() == "tensorflow");
    if (group.count() < 1) group.set_count(is_paired ? 2 : 1);
  }
}

void add_preferred_group(const std::vector<PreferredGroup>& preferred, const UsableGpus& gpus,
                         inference::ModelConfig& config) {
  config.clear_instance_group();
  Group& group = *config.add_instance_group();
  group.set_name(config.name());
  for (const PreferredGroup& p : preferred) {
    const bool is_gpu = p.kind == TRITONSERVER_INSTANCEGROUPKIND_GPU;
    if (is_gpu && gpus.ids.empty()) continue;
    group.set_kind(kind_of(p));
    group.set_count(p.count);
    for (const int32_t id : p.gpus) {
      const bool is_wanted = is_gpu ? gpus.ids.contains(id) : group.kind() == Group::KIND_AUTO;
      if (is_wanted) group.add_gpus(id);
    }
    return;
  }
}

Status fill_groups(const Parsed& p, ModelConfig& out) {
  bool can_serve = p.config.instance_group_size() == 0;  // true for an ensemble
  for (int i = 0; i < p.config.instance_group_size(); ++i) {
    const Group& g = p.config.instance_group(i);
    RETURN_IF_ERROR(check_group(g, out.name, p.gpus, p.where("instance_group", i)));
    InstanceGroup& group = out.groups.emplace_back();
    group.name = g.name();
    group.kind = kind_of(g);
    group.count = g.count();
    if (g.kind() == Group::KIND_GPU) group.gpus.assign(g.gpus().begin(), g.gpus().end());
    group.host_policy = g.host_policy();
    group.is_passive = g.passive();
    can_serve = can_serve || !group.is_passive;
    group.profiles.assign(g.profile().begin(), g.profile().end());
    for (const auto& device : g.secondary_devices()) {
      group.secondary_devices.push_back(
          {Group::SecondaryDevice::SecondaryDeviceKind_Name(device.kind()), device.device_id()});
    }
    group.limits.priority = std::max(1u, g.rate_limiter().priority());
    for (const auto& r : g.rate_limiter().resources()) {
      group.limits.resources.push_back({r.name(), r.global(), r.count()});
    }
  }
  if (can_serve) return ok();
  return invalid_argument(
      "every instance group of model {} is passive, at least one must be able to execute "
      "requests{}",
      out.name, p.where("instance_group"));
}

Status check_batch_tensors(const Parsed& p, const ModelConfig& out) {
  // `what` is "input" or "output"; source kinds have the same rules in both.
  const auto check_sources = [&](const auto& tensor, const char* what, const std::string& kind,
                                 const std::string& where) {
    if (kind.empty()) {
      return p.wrong(where, "unknown batch {} kind {}", what, static_cast<int>(tensor.kind()));
    }
    if (tensor.source_input_size() != 1) {
      return p.wrong(where, "batch {} kind '{}' expects 1 source input, got {}", what, kind,
                     tensor.source_input_size());
    }
    const auto& source = tensor.source_input(0);
    if (out.input(source) != nullptr) return ok();
    return p.wrong(where, "unknown source input name '{}'", source);
  };
  for (int i = 0; i < p.config.batch_input_size(); ++i) {
    const auto& tensor = p.config.batch_input(i);
    const std::string kind = inference::BatchInput::Kind_Name(tensor.kind());
    const std::string where = p.where("batch_input", i);
    RETURN_IF_ERROR(check_sources(tensor, "input", kind, where));
    if (tensor.data_type() != inference::TYPE_INT32 && tensor.data_type() != inference::TYPE_FP32) {
      return p.wrong(where, "batch input data type must be TYPE_INT32 or TYPE_FP32, not {}",
                     inference::DataType_Name(tensor.data_type()));
    }
  }
  for (int i = 0; i < p.config.batch_output_size(); ++i) {
    const auto& tensor = p.config.batch_output(i);
    const std::string kind = inference::BatchOutput::Kind_Name(tensor.kind());
    const std::string where = p.where("batch_output", i);
    RETURN_IF_ERROR(check_sources(tensor, "output", kind, where));
    std::set<std::string> targets;
    for (const auto& target : tensor.target_name()) {
      if (out.output(target) == nullptr) {
        return p.wrong(where, "unknown target output name '{}'", target);
      }
      if (!targets.insert(target).second) {
        return p.wrong(where, "target output name '{}' can only be specified once", target);
      }
    }
  }
  return ok();
}

}  // namespace nereid::server
