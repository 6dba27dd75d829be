#include "server/batching/sequence_inputs.h"

#include <algorithm>
#include <limits>
#include <span>

#include "base/file.h"
#include "base/log_limit.h"
#include "server/memory/host_allocator.h"
#include "server/model/model.h"
#include "server/request/response.h"

namespace nereid::server {
namespace {

constexpr size_t kMaxStateFile = size_t{1} << 32;

std::string string_element(std::string_view text) {
  const auto length = static_cast<uint32_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof length).append(text);
}

template <class T>
std::string number_bytes(uint64_t id) {
  const T value = static_cast<T>(id);
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string id_text(const CorrelationId& id) {
  const auto* text = std::get_if<std::string>(&id);
  return text != nullptr ? *text : std::to_string(std::get<uint64_t>(id));
}

std::string id_bytes(TRITONSERVER_DataType datatype, const CorrelationId& id) {
  if (datatype == TRITONSERVER_TYPE_BYTES) return string_element(id_text(id));
  const auto* number = std::get_if<uint64_t>(&id);
  const uint64_t value = number == nullptr ? 0 : *number;
  const bool is_wide = TRITONSERVER_DataTypeByteSize(datatype) == sizeof(uint64_t);
  return is_wide ? number_bytes<uint64_t>(value) : number_bytes<uint32_t>(value);
}

uint64_t largest(TRITONSERVER_DataType datatype) {
  switch (datatype) {
    case TRITONSERVER_TYPE_INT32:
      return std::numeric_limits<int32_t>::max();
    case TRITONSERVER_TYPE_UINT32:
      return std::numeric_limits<uint32_t>::max();
    case TRITONSERVER_TYPE_INT64:
      return std::numeric_limits<int64_t>::max();
    default:
      return std::numeric_limits<uint64_t>::max();
  }
}

void add_input(InferenceRequest& request, const std::string& name, TRITONSERVER_DataType datatype,
               Shape shape, std::shared_ptr<const std::string> data) {
  InputTensor& input = request.core_inputs.emplace_back();
  input.name = name;
  input.datatype = datatype;
  input.shape = shape;
  input.backend_shape = std::move(shape);
  input.buffers = {{data->data(), data->size(), TRITONSERVER_MEMORY_CPU, 0}};
  request.core_memory.push_back(std::move(data));
}

uint64_t elements(std::span<const int64_t> dims) {
  uint64_t n = 1;
  for (int64_t d : dims) n *= static_cast<uint64_t>(d);
  return n;
}

// Size of `n` zeros; a BYTES element is an empty string, 4 bytes.
uint64_t zero_bytes(TRITONSERVER_DataType datatype, uint64_t n) {
  const uint32_t element = TRITONSERVER_DataTypeByteSize(datatype);
  return n * (element == 0 ? sizeof(uint32_t) : element);
}

}  // namespace

Status check_correlation_id(const ModelConfig& config, const CorrelationId& id) {
  for (const auto& control : config.sequences->controls) {
    if (control.kind != SequenceControl::Kind::kId) continue;
    if (control.datatype == TRITONSERVER_TYPE_BYTES) return ok();
    const auto* number = std::get_if<uint64_t>(&id);
    if (number != nullptr && *number <= largest(control.datatype)) return ok();
    return invalid_argument(
        "inference request for sequence {} to model '{}': the correlation ID must be a number in "
        "range [1, {}], because control '{}' has data type {}",
        id_text(id), config.name, largest(control.datatype), control.name,
        TRITONSERVER_DataTypeString(control.datatype));
  }
  return ok();
}

void add_controls(const ModelConfig& config, const ControlValues& values,
                  InferenceRequest& request) {
  using Kind = SequenceControl::Kind;
  for (const auto& control : config.sequences->controls) {
    Shape shape = {1};
    if (config.max_batch_size > 0) shape.insert(shape.begin(), 1);
    std::string bytes;
    if (control.kind == Kind::kId) {
      bytes = id_bytes(control.datatype, values.id);
    } else {
      const bool is_yes = control.kind == Kind::kStart   ? values.start
                          : control.kind == Kind::kReady ? values.ready
                                                         : values.end;
      bytes = is_yes ? control.yes : control.no;
    }
    add_input(request, control.name, control.datatype, std::move(shape),
              std::make_shared<const std::string>(std::move(bytes)));
  }
}

StatusOr<void*> ImplicitState::allocate(uint64_t byte_size) {
  const uint32_t element = TRITONSERVER_DataTypeByteSize(spec->datatype);
  if (element > 0 && byte_size % element != 0) {
    return invalid_argument("state '{}': {} bytes are no multiple of the element's {}",
                            spec->output_name, byte_size, element);
  }
  if (spec->same_buffer && data.use_count() > 0 && data->size() == byte_size) {
    next = data;
    return next->data();
  }
  try {
    next = std::make_shared<std::string>(byte_size, '\0');
  } catch (const std::exception&) {
    return resource_exhausted("out of memory for {} bytes of state '{}'", byte_size,
                              spec->output_name);
  }
  return next->data();
}

Status ImplicitState::update() {
  if (next == nullptr) {
    return invalid_argument("state '{}' was updated before it had a buffer", spec->output_name);
  }
  data = std::move(next);
  shape = next_shape;
  return ok();
}

namespace {

// The error for growable states, in the stock server's words.
Status check_growable(const ModelConfig& config) {
  for (const auto& spec : config.sequences->states) {
    if (!spec.growable) continue;
    if (!spec.same_buffer)
      return invalid_argument(
          "In order to 'use_growable_memory', you must also enable 'use_single_buffer' for state "
          "input name '{}'.",
          spec.input_name);
    return invalid_argument(
        "'use_growable_memory' can only work with KIND_GPU model instances right now. Please "
        "either change the instance type to KIND_GPU or set 'use_growable_memory' to false for "
        "state input '{}'.",
        spec.input_name);
  }
  return ok();
}

}  // namespace

StatusOr<InitialStates> InitialStates::read(const ModelConfig& config,
                                            const std::filesystem::path& dir) {
  InitialStates out;
  const bool is_on_gpu = std::ranges::any_of(config.groups, [](const InstanceGroup& group) {
    return group.kind == TRITONSERVER_INSTANCEGROUPKIND_GPU;
  });
  for (const auto& spec : config.sequences->states) {
    if (spec.growable && is_on_gpu)
      return unsupported(
          "state '{}' of model '{}': 'use_growable_memory' needs states in GPU memory, which this "
          "server does not have; set it to false",
          spec.input_name, config.name);
    const uint64_t expected = zero_bytes(spec.datatype, elements(spec.initial_dims));
    if (spec.initial_file.empty()) {
      out.data.push_back(std::make_shared<std::string>(expected, '\0'));
      continue;
    }
    const auto path = dir / "initial_state" / spec.initial_file;
    ASSIGN_OR_RETURN(std::string bytes, read_file(path, kMaxStateFile));
    if (spec.datatype != TRITONSERVER_TYPE_BYTES && bytes.size() != expected) {
      return invalid_argument(
          "initial_state setting expects '{}' bytes for state '{}' of model '{}', but {} has {}",
          expected, spec.input_name, config.name, path.string(), bytes.size());
    }
    out.data.push_back(std::make_shared<std::string>(std::move(bytes)));
  }
  return out;
}

ImplicitStates::ImplicitStates(const ModelConfig& config, const InitialStates& initial)
    : config_(config), initial_(initial) {
  if (const Status status = check_growable(config); !status.ok()) {
    static LogLimit log;
    log.error("Failed to initialize sequence state: {}", message(status));
    return;
  }
  for (const auto& spec : config.sequences->states) {
    ImplicitState& state = states_.emplace_back();
    state.spec = &spec;
    state.batched = config.max_batch_size > 0;
  }
  reset();
}

void ImplicitStates::reset() {
  for (size_t i = 0; i < states_.size(); ++i) {
    ImplicitState& state = states_[i];
    state.data = initial_.data[i];
    // A sequence that updates its state in place needs its own copy of the initial value.
    if (state.spec->same_buffer) state.data = std::make_shared<std::string>(*state.data);
    state.next = nullptr;
    const auto& dims = state.spec->initial_dims;
    state.shape.assign(dims.begin(), dims.end());
    if (state.batched) state.shape.insert(state.shape.begin(), 1);
  }
}

void ImplicitStates::add_inputs(InferenceRequest& request) const {
  for (const auto& state : states_) {
    add_input(request, state.spec->input_name, state.spec->datatype, state.shape, state.data);
  }
}

StatusOr<ImplicitState*> ImplicitStates::write(std::string_view name,
                                               TRITONSERVER_DataType datatype, Shape shape) {
  const auto it = std::find_if(states_.begin(), states_.end(),
                               [&](const auto& s) { return s.spec->output_name == name; });
  if (it == states_.end()) {
    return invalid_argument("state '{}' is not a valid state name.", name);
  }
  const SequenceState& spec = *it->spec;
  if (datatype != spec.datatype) {
    return invalid_argument("state '{}' of model '{}' has data type {}, got {}", name, config_.name,
                            TRITONSERVER_DataTypeString(spec.datatype),
                            TRITONSERVER_DataTypeString(datatype));
  }
  const size_t skip = it->batched ? 1 : 0;
  bool fits = shape.size() == spec.dims.size() + skip;
  for (size_t i = 0; fits && i < spec.dims.size(); ++i) {
    fits = shape[i + skip] >= 0 && (spec.dims[i] == -1 || spec.dims[i] == shape[i + skip]);
  }
  if (!fits) {
    return invalid_argument("state '{}' of model '{}' has dims [{}]{}, got [{}]", name,
                            config_.name, fmt::join(spec.dims, ","),
                            it->batched ? " behind the batch dimension" : "",
                            fmt::join(shape, ","));
  }
  it->next = nullptr;
  it->next_shape = std::move(shape);
  return &*it;
}

InferenceRequest* make_padding(const std::shared_ptr<Model>& model, const InferenceRequest& like,
                               const InitialStates& initial) {
  auto request = std::make_unique<InferenceRequest>(model);
  const ModelConfig& config = model->config();
  uint64_t size = 0;
  const auto bytes_of = [](const InputTensor& t) {
    return zero_bytes(t.datatype, elements(t.shape));
  };
  for (const auto& input : like.inputs) size = std::max(size, bytes_of(input));
  for (const auto& input : like.core_inputs) size = std::max(size, bytes_of(input));
  const auto zeros = std::make_shared<const std::string>(size, '\0');
  const auto blank = [&](const InputTensor& t) {
    InputTensor copy = t;
    copy.buffers = {{zeros->data(), bytes_of(t), TRITONSERVER_MEMORY_CPU, 0}};
    return copy;
  };
  for (const auto& input : like.inputs) request->inputs.push_back(blank(input));
  add_controls(config, {false, false, false, {}}, *request);
  for (size_t i = config.sequences->controls.size(); i < like.core_inputs.size(); ++i) {
    request->core_inputs.push_back(blank(like.core_inputs[i]));
  }
  request->core_memory.push_back(zeros);
  request->batch_size = like.batch_size;
  if (!config.sequences->states.empty()) {
    request->unowned_states = std::make_shared<ImplicitStates>(config, initial);
  }
  request->is_padding = true;
  request->allocator = host_allocator();
  request->deliver = [](std::unique_ptr<InferenceResponse>, uint32_t) {};
  request->release_fn = [](TRITONSERVER_InferenceRequest* r, const uint32_t, void*) {
    delete of(r);
  };
  request->arm()->counts_as_running = false;
  return request.release();
}

}  // namespace nereid::server
