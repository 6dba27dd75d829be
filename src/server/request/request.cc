// Requests: contexts, release, and validation against the model.
#include "server/request/request.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "server/batching/sequence_batcher.h"
#include "server/model/backend_call.h"
#include "server/model/model.h"
#include "server/request/response.h"

namespace nereid::server {

size_t InputTensor::byte_size() const {
  size_t total = 0;
  for (const auto& buffer : buffers) total += buffer.byte_size;
  return total;
}

const InputBuffers& InputTensor::buffers_for(std::string_view host_policy) const {
  for (const auto& [name, own] : policy_buffers) {
    if (name == host_policy) return own;
  }
  return buffers;
}

InferenceRequest::InferenceRequest(std::shared_ptr<Model> m)
    : model(std::move(m)), cancel_(std::make_shared<CancelState>()) {
  set_priority(0);
}

void InferenceRequest::set_priority(uint64_t wanted) {
  const ModelConfig& config = model->config();
  const uint64_t num_levels = config.batching ? config.batching->priority_levels : 0;
  const uint64_t usual = config.batching ? config.batching->default_priority : 0;
  const bool is_level = wanted >= 1 && wanted <= num_levels;
  priority = is_level || config.is_ensemble() ? wanted : usual;
}

std::shared_ptr<CancelState> InferenceRequest::cancel_state() const {
  std::lock_guard lock(cancel_mutex_);
  return cancel_;
}

std::string InferenceRequest::log_id() const {
  return fmt::format("[request id: {}] ", id.empty() ? "<id_unknown>" : id);
}

InputTensor* InferenceRequest::input(std::string_view name) {
  for (auto* list : {&inputs, &core_inputs}) {
    const auto it = std::find_if(list->begin(), list->end(),
                                 [&](const InputTensor& t) { return t.name == name; });
    if (it != list->end()) return &*it;
  }
  return nullptr;
}

std::shared_ptr<ResponseContext> InferenceRequest::arm() {
  {
    std::lock_guard lock(cancel_mutex_);
    if (std::exchange(used_, true)) cancel_ = std::make_shared<CancelState>();
    context_ = std::make_shared<ResponseContext>(cancel_);
  }
  const auto& c = context_;
  c->model = model;
  c->id = id;
  c->allocator = allocator;
  c->allocator_userp = allocator_userp;
  c->trace = trace;
  if (deliver) {
    c->deliver = deliver;
  } else {
    c->deliver = [fn = response_fn, userp = response_userp](auto response, uint32_t flags) {
      fn(reinterpret_cast<TRITONSERVER_InferenceResponse*>(response.release()), flags, userp);
    };
  }
  c->armed = true;
  owner_.store(Owner::kCore, std::memory_order_release);
  start_ns = now_ns();
  c->start_ns = start_ns;
  return c;
}

void InferenceRequest::report(TRITONSERVER_InferenceTraceActivity activity, uint64_t ns) const {
  if (trace != nullptr) trace->get()->report(activity, ns == 0 ? now_ns() : ns);
}

void InferenceRequest::report_queued() const {
  if (trace == nullptr) return;
  report(TRITONSERVER_TRACE_QUEUE_START);
  for (const auto& input : inputs) {
    trace->get()->report_input(TRITONSERVER_TRACE_TENSOR_QUEUE_INPUT, input);
  }
}

Status InferenceRequest::reschedule() {
  if (turn == nullptr || !model->config().sequences->iterative) {
    return invalid_argument(
        "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not "
        "configured to handle such a flag");
  }
  if (context_->is_final()) {
    return invalid_argument("{}a request cannot be rescheduled after its final response", log_id());
  }
  core_inputs.clear();
  core_memory.clear();
  const auto ended = std::move(turn);
  if (Status status = ended->batcher->reschedule(*ended, this); !status.ok()) {
    turn = ended;
    model->statistics().failure(FailureReason::kOther, start_ns);
    context_->fail(status);
    release(TRITONSERVER_REQUEST_RELEASE_ALL);
  }
  return ok();
}

void InferenceRequest::release(uint32_t release_flags) {
  ReleasedHere::note(this);
  core_inputs.clear();
  core_memory.clear();
  if (turn != nullptr) {
    const auto ended = std::move(turn);
    ended->batcher->released(*ended, this);
  }
  report(TRITONSERVER_TRACE_REQUEST_END);
  // Moved out first but destroyed last: as the only owner it sends a missing FINAL,
  // after the release.
  const auto keep = std::move(context_);
  trace.reset();
  const auto fn = release_fn;
  void* const userp = release_userp;
  Owner owner = Owner::kCore;
  owner_.compare_exchange_strong(owner, Owner::kClient, std::memory_order_acq_rel);
  fn(reinterpret_cast<TRITONSERVER_InferenceRequest*>(this), release_flags, userp);
  if (owner == Owner::kCoreAlone) delete this;
  if (keep != nullptr) keep->released();
}

bool InferenceRequest::delete_later() {
  Owner owner = Owner::kCore;
  return owner_.compare_exchange_strong(owner, Owner::kCoreAlone, std::memory_order_acq_rel) ||
         owner == Owner::kCoreAlone;
}

namespace {

std::string join_names(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& name : names) out += fmt::format("{}'{}'", out.empty() ? "" : ",", name);
  return out;
}

Status wrong_input_count(InferenceRequest& r, const ModelConfig& config, size_t num_required) {
  std::vector<std::string> got, missing;
  for (const auto& input : r.inputs) got.push_back(input.name);
  for (const auto& spec : config.inputs) {
    if (!spec.optional && r.input(spec.name) == nullptr) missing.push_back(spec.name);
  }
  const std::string expected = num_required == config.inputs.size()
                                   ? fmt::format("expected {} inputs", num_required)
                                   : fmt::format("expected number of inputs between {} and {}",
                                                 num_required, config.inputs.size());
  return invalid_argument(
      "{}{} but got {} inputs for model '{}'. Got input(s) [{}], but missing required input(s) "
      "[{}]. Please provide all required input(s).",
      r.log_id(), expected, r.inputs.size(), config.name, join_names(got), join_names(missing));
}

bool dims_match(const std::vector<int64_t>& expected, const int64_t* got, size_t n) {
  if (expected.size() != n) return false;
  for (size_t i = 0; i < n; ++i) {
    if (expected[i] != -1 && expected[i] != got[i]) return false;
  }
  return true;
}

// The spec's reshape, with its variable dims filled, in order, from the client's shape.
Shape reshaped(const TensorSpec& spec, const int64_t* got) {
  Shape variable, out;
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    if (spec.dims[i] == -1) variable.push_back(got[i]);
  }
  size_t next = 0;
  for (int64_t d : *spec.reshape) {
    out.push_back(d == -1 && next < variable.size() ? variable[next++] : d);
  }
  return out;
}

Status check_shape(InferenceRequest& r, InputTensor& input, const TensorSpec& spec,
                   const ModelConfig& config) {
  const bool batched = config.max_batch_size > 0 && !spec.is_shape_tensor;
  for (int64_t d : input.shape) {
    if (d < 0) {
      return invalid_argument("{}input '{}' has a negative dimension [{}] for model '{}'",
                              r.log_id(), input.name, fmt::join(input.shape, ","), config.name);
    }
  }
  if (batched && input.shape.empty()) {
    return invalid_argument("{}input '{}' has no shape but model requires batch dimension for '{}'",
                            r.log_id(), input.name, config.name);
  }
  if (batched) {
    if (r.batch_size == 0) r.batch_size = input.shape[0];
    if (input.shape[0] != r.batch_size) {
      return invalid_argument("{}input '{}' batch size does not match other inputs for '{}'",
                              r.log_id(), input.name, config.name);
    }
    if (r.batch_size < 1 || r.batch_size > config.max_batch_size) {
      return invalid_argument("{}inference request batch-size must be <= {} for '{}'", r.log_id(),
                              config.max_batch_size, config.name);
    }
  }
  const size_t skip = batched ? 1 : 0;
  if (!dims_match(spec.dims, input.shape.data() + skip, input.shape.size() - skip)) {
    auto expected = spec.dims;
    if (batched) expected.insert(expected.begin(), -1);
    return invalid_argument(
        "{}unexpected shape for input '{}' for model '{}'. Expected [{}], got [{}]. {}", r.log_id(),
        input.name, config.name, fmt::join(expected, ","), fmt::join(input.shape, ","),
        batched ? "NOTE: Setting a non-zero max_batch_size in the model config requires a batch "
                  "dimension to be prepended to each input shape. If you want to specify the full "
                  "shape including the batch dim in your input dims config, try setting "
                  "max_batch_size to zero. See the model configuration docs for more info on "
                  "max_batch_size."
                : "");
  }
  if (!spec.reshape) {
    input.backend_shape = input.shape;
    return ok();
  }
  const Shape rest = reshaped(spec, input.shape.data() + skip);
  input.backend_shape.assign(input.shape.begin(), input.shape.begin() + skip);
  input.backend_shape.insert(input.backend_shape.end(), rest.begin(), rest.end());
  return ok();
}

// Number of elements; InvalidArgument when it, or the product of some dimensions, overflows:
// backends multiply dimensions.
StatusOr<uint64_t> element_count(const InputTensor& input) {
  uint64_t n = 1;
  bool is_empty = false;
  for (int64_t d : input.shape) {
    is_empty = is_empty || d == 0;
    if (d == 0) continue;
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(d), &n) || n > (uint64_t{1} << 48)) {
      return invalid_argument("input '{}' has too many elements: [{}]", input.name,
                              fmt::join(input.shape, ","));
    }
  }
  return is_empty ? 0 : n;
}

// Checks the length-prefixed strings of a BYTES tensor in one CPU buffer.
Status check_strings(const InferenceRequest& r, const InputTensor& input, uint64_t expected,
                     const ModelConfig& config) {
  if (input.buffers.size() > 1) return ok();  // only a backend joins split strings
  const char* p = input.buffers.empty() ? nullptr : static_cast<const char*>(input.buffers[0].base);
  size_t left = input.byte_size();
  uint64_t n = 0;
  while (left > 0) {
    uint32_t length = 0;
    if (left < sizeof(length)) break;
    std::memcpy(&length, p, sizeof(length));
    if (length > left - sizeof(length)) break;
    p += sizeof(length) + length;
    left -= sizeof(length) + length;
    ++n;
  }
  if (left > 0 && left < sizeof(uint32_t)) {
    return invalid_argument(
        "{}incomplete string length indicator for inference input '{}' for model '{}', expecting 4 "
        "bytes but only {} bytes available. Please make sure the string length indicator is in one "
        "buffer.",
        r.log_id(), input.name, config.name, left);
  }
  if (left > 0) {
    return invalid_argument(
        "{}incomplete string data for inference input '{}' for model '{}': {} bytes left after {} "
        "strings",
        r.log_id(), input.name, config.name, left, n);
  }
  if (n > expected) {
    return invalid_argument(
        "{}unexpected number of string elements {} for inference input '{}' for model '{}', "
        "expecting {}",
        r.log_id(), n, input.name, config.name, expected);
  }
  if (n < expected) {
    return invalid_argument(
        "{}expected {} string elements for inference input '{}' for model "
        "'{}', got {}",
        r.log_id(), expected, input.name, config.name, n);
  }
  return ok();
}

Status check_bytes(const InferenceRequest& r, const InputTensor& input, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const uint64_t elements, element_count(input));
  const uint32_t element = TRITONSERVER_DataTypeByteSize(input.datatype);
  if (element == 0) {
    for (const auto& buffer : input.buffers) {
      if (buffer.memory_type == TRITONSERVER_MEMORY_GPU) return ok();
    }
    return check_strings(r, input, elements, config);
  }
  if (elements * element != input.byte_size()) {
    return invalid_argument(
        "{}input byte size mismatch for input '{}' for model '{}'. Expected "
        "{}, got {}",
        r.log_id(), input.name, config.name, elements * element, input.byte_size());
  }
  return ok();
}

// Checks that each host policy's data is the whole tensor; the common data may then be missing.
Status check_policy_data(const InferenceRequest& r, const InputTensor& input,
                         const ModelConfig& config) {
  if (input.buffers.empty() && config.is_ensemble()) {
    return invalid_argument(
        "{}input '{}' for ensemble '{}' has data for host policies only, but must have data that "
        "names none",
        r.log_id(), input.name, config.name);
  }
  InputTensor one = input;
  if (!input.buffers.empty()) RETURN_IF_ERROR(check_bytes(r, one, config));
  for (const auto& [name, own] : input.policy_buffers) {
    one.buffers = own;
    RETURN_IF_ERROR(annotate(check_bytes(r, one, config), fmt::format("host policy '{}'", name)));
  }
  return ok();
}

// All bytes as one BYTES element: its length, then the bytes.
std::string as_one_element(const InputTensor& input) {
  const auto length = static_cast<uint32_t>(input.byte_size());
  std::string out(reinterpret_cast<const char*>(&length), sizeof length);
  for (const auto& b : input.buffers) out.append(static_cast<const char*>(b.base), b.byte_size);
  return out;
}

}  // namespace

// Deduces type and shape for a raw request: bytes for the model's only input, with at most
// one variable dimension.
Status InferenceRequest::deduce_raw_input() {
  const ModelConfig& config = model->config();
  if (inputs.size() != 1 || config.inputs.size() != 1) {
    return invalid_argument(
        "{}Raw request must only have 1 input (found {}) to be deduced but got {} inputs in '{}' "
        "model configuration",
        log_id(), inputs.size(), config.inputs.size(), config.name);
  }
  const TensorSpec& spec = config.inputs[0];
  InputTensor& input = inputs[0];
  input.datatype = spec.datatype;
  input.shape.clear();
  if (config.max_batch_size > 0) input.shape.push_back(1);
  uint64_t known = TRITONSERVER_DataTypeByteSize(spec.datatype);
  const bool is_bytes = known == 0;
  if (is_bytes) {
    const bool is_one =
        std::all_of(spec.dims.begin(), spec.dims.end(), [](int64_t dim) { return dim == 1; });
    if (!is_one) {
      return invalid_argument(
          "{}For BYTE datatype raw input '{}', the model must have input shape [1]", log_id(),
          spec.name);
    }
    raw_element_ = as_one_element(input);
    input.buffers = {{raw_element_.data(), raw_element_.size(), TRITONSERVER_MEMORY_CPU, 0}};
    known = 1;
  }
  int64_t* variable = nullptr;
  const size_t first = input.shape.size();
  input.shape.insert(input.shape.end(), spec.dims.begin(), spec.dims.end());
  for (size_t i = first; i < input.shape.size(); ++i) {
    int64_t& dim = input.shape[i];
    if (dim != -1) {
      if (__builtin_mul_overflow(known, static_cast<uint64_t>(dim), &known)) known = UINT64_MAX;
    } else if (variable != nullptr) {
      return invalid_argument(
          "{}The shape of the raw input '{}' can not be deduced because there are more than one "
          "variable-sized dimension",
          log_id(), spec.name);
    } else {
      variable = &dim;
    }
  }
  if (variable != nullptr) {
    *variable = static_cast<int64_t>(input.byte_size() / std::max<uint64_t>(1, known));
  }
  const uint64_t wanted = variable == nullptr ? known : known * static_cast<uint64_t>(*variable);
  if (!is_bytes && wanted != input.byte_size()) {
    return invalid_argument(
        "{}input byte size mismatch for input '{}' for model '{}'. Expected "
        "{}, got {}",
        log_id(), input.name, config.name, wanted, input.byte_size());
  }
  input.name = spec.name;
  input.spec = &spec;
  is_raw = false;
  return ok();
}

// Finds the spec of every input; all names are different.
Status InferenceRequest::match_inputs() {
  const ModelConfig& config = model->config();
  const auto num_required = static_cast<size_t>(std::count_if(
      config.inputs.begin(), config.inputs.end(), [](const auto& spec) { return !spec.optional; }));
  if (inputs.size() < num_required || inputs.size() > config.inputs.size()) {
    return wrong_input_count(*this, config, num_required);
  }
  size_t num_found = 0;
  for (auto& input : inputs) {
    if (input.spec == nullptr) input.spec = config.input(input.name);
    if (input.spec == nullptr) {
      return invalid_argument("unexpected inference input '{}' for model '{}'", input.name,
                              config.name);
    }
    num_found += !input.spec->optional;
  }
  return num_found == num_required ? ok() : wrong_input_count(*this, config, num_required);
}

// Sorts the outputs by name, the order in which backends read and most answer them.
Status InferenceRequest::choose_outputs() {
  const ModelConfig& config = model->config();
  if (known_outputs != nullptr || requested_outputs.empty()) {
    wanted_outputs = known_outputs != nullptr ? *known_outputs : model->sorted_outputs();
    return ok();
  }
  wanted_outputs.clear();
  for (const auto& name : requested_outputs) {
    wanted_outputs.push_back(config.output(name));
    if (wanted_outputs.back() == nullptr) {
      return invalid_argument("unexpected inference output '{}' for model '{}'", name, config.name);
    }
  }
  std::sort(wanted_outputs.begin(), wanted_outputs.end(), by_name);
  return ok();
}

Status InferenceRequest::validate() {
  const ModelConfig& config = model->config();
  if (release_fn == nullptr) return invalid_argument("the request has no release callback");
  if (response_fn == nullptr && !deliver) {
    return invalid_argument("the request has no response callback");
  }
  if (is_raw) RETURN_IF_ERROR(deduce_raw_input());
  RETURN_IF_ERROR(match_inputs());
  batch_size = 0;
  for (auto& input : inputs) {
    if (input.datatype != input.spec->datatype) {
      return invalid_argument(
          "{}inference input '{}' data-type is '{}', but model '{}' expects '{}'", log_id(),
          input.name, TRITONSERVER_DataTypeString(input.datatype), config.name,
          TRITONSERVER_DataTypeString(input.spec->datatype));
    }
    RETURN_IF_ERROR(check_shape(*this, input, *input.spec, config));
    RETURN_IF_ERROR(input.policy_buffers.empty() ? check_bytes(*this, input, config)
                                                 : check_policy_data(*this, input, config));
  }
  return choose_outputs();
}

}  // namespace nereid::server
