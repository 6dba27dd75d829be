// Data-flow checks of ensembles.
#include "server/ensemble/ensemble_check.h"

#include <map>
#include <set>

namespace nereid::server {
namespace {

Status check_step(const ModelConfig& e, size_t i) {
  const EnsembleStep& step = e.steps[i];
  const auto missing = [&](const char* what) {
    return invalid_argument("must specify '{}' in step {} of ensemble '{}'", what, i, e.name);
  };
  if (step.model.empty()) return missing("model_name");
  if (step.input_map.empty()) return missing("input_map");
  if (step.output_map.empty()) return missing("output_map");
  return ok();
}

// A tensor as one end declares it.
struct End {
  std::string model;
  TRITONSERVER_DataType datatype;
  std::vector<int64_t> shape;  // -1 in front for a batch dimension
};

// `inside`: the ensemble whose inner tensors are checked.
End end_of(const ModelConfig& config, const TensorSpec& spec, const ModelConfig* inside) {
  // Inside an ensemble an input has the shape that its reshape declares.
  const bool is_inside = config.is_ensemble() && spec.reshape && &config == inside;
  End end{config.name, spec.datatype, is_inside ? *spec.reshape : spec.dims};
  if (config.max_batch_size > 0 && !spec.is_shape_tensor) end.shape.insert(end.shape.begin(), -1);
  return end;
}

// The name in configurations: "TYPE_INT32"; BYTES is TYPE_STRING.
std::string type_name(TRITONSERVER_DataType type) {
  return type == TRITONSERVER_TYPE_BYTES
             ? "TYPE_STRING"
             : fmt::format("TYPE_{}", TRITONSERVER_DataTypeString(type));
}

bool agree(std::vector<int64_t> a, std::vector<int64_t> b) {
  // A batch dimension on one side only: the scheduler adds or removes it.
  if (a.size() == b.size() + 1 && a.front() == -1) a.erase(a.begin());
  if (b.size() == a.size() + 1 && b.front() == -1) b.erase(b.begin());
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && a[i] != -1 && b[i] != -1) return false;
  }
  return true;
}

class TensorTable {
 public:
  explicit TensorTable(const ModelConfig& ensemble) : ensemble_(ensemble) {}

  Status add(const std::string& tensor, End end) {
    const auto [it, is_new] = ends_.try_emplace(tensor, end);
    if (is_new) return ok();
    const End& first = it->second;
    if (first.datatype != end.datatype) {
      return invalid_argument(
          "in ensemble {}, ensemble tensor {}: inconsistent data type: {} is inferred from model "
          "{} while {} is inferred from model {}",
          ensemble_.name, tensor, type_name(first.datatype), first.model, type_name(end.datatype),
          end.model);
    }
    if (!agree(first.shape, end.shape)) {
      return invalid_argument(
          "in ensemble {}, ensemble tensor {}: inconsistent shape: [{}] is inferred from model {} "
          "while [{}] is inferred from model {}",
          ensemble_.name, tensor, fmt::join(first.shape, ","), first.model,
          fmt::join(end.shape, ","), end.model);
    }
    return ok();
  }

 private:
  const ModelConfig& ensemble_;
  std::map<std::string, End> ends_;
};

// Steps whose inputs can all exist (a fixed point): the rest is unconnected or in a cycle. Adds
// their outputs to `available`; `stuck` is a tensor that the rest waits for.
std::vector<bool> steps_that_run(const ModelConfig& e, std::set<std::string>& available,
                                 std::string& stuck) {
  std::vector<bool> done(e.steps.size());
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t i = 0; i < e.steps.size(); ++i) {
      if (done[i]) continue;
      bool ready = true;
      for (const auto& [_, tensor] : e.steps[i].input_map) {
        if (!available.contains(tensor)) {
          ready = false;
          stuck = tensor;
        }
      }
      if (!ready) continue;
      done[i] = progress = true;
      for (const auto& [_, tensor] : e.steps[i].output_map) available.insert(tensor);
    }
  }
  return done;
}

// Each decoupled step starts a stream of its own. All inputs of a step, and all outputs of the
// ensemble, must be of one stream. Requires a graph in which every step can run.
Status check_streams(const ModelConfig& e, const std::vector<const ModelConfig*>& models) {
  std::map<std::string, size_t> stream_of;  // by tensor
  for (const auto& input : e.inputs) stream_of[input.name] = 0;
  const auto mixed = [&](const std::string& model) {
    return invalid_argument(
        "in ensemble {}, step of model '{}' receives inputs originated from different decoupled "
        "models",
        e.name, model);
  };
  size_t num_streams = 0;
  std::vector<bool> done(e.steps.size());
  for (size_t num_done = 0; num_done < e.steps.size();) {
    const size_t before = num_done;
    for (size_t i = 0; i < e.steps.size(); ++i) {
      if (done[i]) continue;
      std::set<size_t> streams;
      bool is_ready = true;
      for (const auto& [_, tensor] : e.steps[i].input_map) {
        const auto it = stream_of.find(tensor);
        is_ready = is_ready && it != stream_of.end();
        if (is_ready) streams.insert(it->second);
      }
      if (!is_ready) continue;
      if (streams.size() > 1) return mixed(e.steps[i].model);
      const size_t stream = models[i]->decoupled ? ++num_streams : *streams.begin();
      for (const auto& [_, tensor] : e.steps[i].output_map) stream_of[tensor] = stream;
      done[i] = true;
      ++num_done;
    }
    if (num_done == before) break;
  }
  std::set<size_t> streams;
  for (const auto& output : e.outputs) streams.insert(stream_of[output.name]);
  return streams.size() > 1 ? mixed(e.name) : ok();
}

// Required inputs of the model that no tensor of the ensemble feeds.
Status check_inputs_are_fed(const ModelConfig& e, const EnsembleStep& step, const ModelConfig& m) {
  for (const auto& input : m.inputs) {
    if (input.optional || step.input_map.contains(input.name)) continue;
    return invalid_argument(
        "in ensemble {}, input {} in model {} is not mapped to any ensemble tensors", e.name,
        input.name, m.name);
  }
  return ok();
}

}  // namespace

Status check_ensemble_graph(const ModelConfig& e) {
  if (e.steps.empty()) return invalid_argument("must specify 'step' for ensemble '{}'", e.name);
  std::set<std::string> written, read, available;
  for (const auto& input : e.inputs) available.insert(input.name);
  for (size_t i = 0; i < e.steps.size(); ++i) {
    RETURN_IF_ERROR(check_step(e, i));
    for (const auto& [_, tensor] : e.steps[i].input_map) read.insert(tensor);
    for (const auto& [_, tensor] : e.steps[i].output_map) {
      if (!written.insert(tensor).second || available.contains(tensor)) {
        return invalid_argument(
            "ensemble tensor '{}' can appear in an output map only once for ensemble '{}' step {}",
            tensor, e.name, i);
      }
    }
  }
  for (const auto& input : e.inputs) {
    if (!read.contains(input.name)) {
      return invalid_argument("ensemble input '{}' for ensemble {}' is not used", input.name,
                              e.name);
    }
  }
  std::string stuck;
  const std::vector<bool> done = steps_that_run(e, available, stuck);
  for (const auto& output : e.outputs) {
    if (available.contains(output.name)) continue;
    if (!written.contains(output.name)) {
      return invalid_argument("ensemble output '{}' for ensemble {}' is not used", output.name,
                              e.name);
    }
    return invalid_argument(
        "output '{}' for ensemble '{}' is not written: at least one of its "
        "depending tensors, '{}', is not connected",
        output.name, e.name, stuck);
  }
  for (const auto& tensor : written) {
    if (!read.contains(tensor) && e.output(tensor) == nullptr) {
      return invalid_argument("ensemble tensor '{}' is unused in ensemble '{}'", tensor, e.name);
    }
  }
  for (size_t i = 0; i < done.size(); ++i) {
    if (!done[i]) {
      return invalid_argument(
          "step {} of ensemble '{}' can never run: ensemble tensor '{}' is not "
          "connected",
          i, e.name, stuck);
    }
  }
  return ok();
}

Status check_ensemble_tensors(const ModelConfig& e, const std::vector<const ModelConfig*>& models) {
  TensorTable table(e);
  for (const auto& input : e.inputs) RETURN_IF_ERROR(table.add(input.name, end_of(e, input, &e)));
  for (const auto& output : e.outputs)
    RETURN_IF_ERROR(table.add(output.name, end_of(e, output, &e)));
  for (size_t i = 0; i < e.steps.size(); ++i) {
    const ModelConfig& m = *models[i];
    if (m.max_batch_size > 0 && e.max_batch_size > m.max_batch_size) {
      return invalid_argument(
          "ensemble {} allows maximum batch size {}, but it contains model {} which only allows "
          "maximum batch size to be {}",
          e.name, e.max_batch_size, m.name, m.max_batch_size);
    }
    for (const auto& [name, tensor] : e.steps[i].input_map) {
      const TensorSpec* spec = m.input(name);
      if (spec == nullptr) {
        return invalid_argument(
            "in ensemble {}, ensemble tensor {} is mapping to non-existing input {} in model {}",
            e.name, tensor, name, m.name);
      }
      RETURN_IF_ERROR(table.add(tensor, end_of(m, *spec, &e)));
    }
    RETURN_IF_ERROR(check_inputs_are_fed(e, e.steps[i], m));
    for (const auto& [name, tensor] : e.steps[i].output_map) {
      const TensorSpec* spec = m.output(name);
      if (spec == nullptr) {
        return invalid_argument(
            "in ensemble {}, ensemble tensor {} is mapped from non-existing output {} in model {}",
            e.name, tensor, name, m.name);
      }
      RETURN_IF_ERROR(table.add(tensor, end_of(m, *spec, &e)));
    }
  }
  return check_streams(e, models);
}

}  // namespace nereid::server
