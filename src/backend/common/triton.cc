// The C++ layer over the backend C API.
#include "backend/common/triton.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/clock.h"
#include "base/copy_bytes.h"
#include "base/error_codes.h"
#include "nereid/server.h"

// Weak: stock tritonserver does not have this function.
#pragma weak NEREID_ServerHoldMemory
#pragma weak NEREID_ServerReleaseMemory
#pragma weak NEREID_ServerTenant

namespace nereid::backend {

Status take_error(TRITONSERVER_Error* error) {
  const std::string text = TRITONSERVER_ErrorMessage(error);
  const auto code = TRITONSERVER_ErrorCode(error);
  TRITONSERVER_ErrorDelete(error);
  // An error that does not say its kind is internal.
  return Status(
      code == TRITONSERVER_ERROR_UNKNOWN ? absl::StatusCode::kInternal : to_status_code(code),
      text);
}

TRITONSERVER_Error* give(const Status& status) {
  if (status.ok()) return nullptr;
  return TRITONSERVER_ErrorNew(to_error_code(status.code()), std::string(message(status)).c_str());
}

namespace {

void log(TRITONSERVER_LogLevel level, std::string_view text) {
  TRITONSERVER_ErrorDelete(TRITONSERVER_LogMessage(level, "backend", 0, std::string(text).c_str()));
}

// Logs an error of a call that fails only through a bug.
void check(TRITONSERVER_Error* error) {
  if (error == nullptr) return;
  log(TRITONSERVER_LOG_ERROR, TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
}

template <class T>
constexpr TRITONSERVER_DataType type_of();
template <>
constexpr TRITONSERVER_DataType type_of<int32_t>() {
  return TRITONSERVER_TYPE_INT32;
}
template <>
constexpr TRITONSERVER_DataType type_of<int64_t>() {
  return TRITONSERVER_TYPE_INT64;
}
template <>
constexpr TRITONSERVER_DataType type_of<uint64_t>() {
  return TRITONSERVER_TYPE_UINT64;
}
template <>
constexpr TRITONSERVER_DataType type_of<float>() {
  return TRITONSERVER_TYPE_FP32;
}
template <>
constexpr TRITONSERVER_DataType type_of<bool>() {
  return TRITONSERVER_TYPE_BOOL;
}

}  // namespace

void log_info(std::string_view text) { log(TRITONSERVER_LOG_INFO, text); }
void log_warning(std::string_view text) { log(TRITONSERVER_LOG_WARN, text); }
void log_verbose(std::string_view text) { log(TRITONSERVER_LOG_VERBOSE, text); }

namespace {

Status read_input(TRITONBACKEND_Input* input, std::string_view& name, InputView& view) {
  const char* text = "";
  const int64_t* shape = nullptr;
  uint32_t rank = 0, num_buffers = 0;
  RETURN_IF_ERROR(take(TRITONBACKEND_InputProperties(input, &text, &view.datatype, &shape, &rank,
                                                     nullptr, &num_buffers)));
  name = text;
  view.shape.assign(shape, shape + rank);
  for (uint32_t i = 0; i < num_buffers; ++i) {
    const void* base = nullptr;
    uint64_t size = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    RETURN_IF_ERROR(take(TRITONBACKEND_InputBuffer(input, i, &base, &size, &memory, &memory_id)));
    if (memory == TRITONSERVER_MEMORY_GPU) {
      return invalid_argument("input '{}' is in device memory; only host memory works", name);
    }
    const std::string_view part(static_cast<const char*>(base), size);
    if (num_buffers == 1) {
      view.bytes = part;
    } else {
      if (view.joined == nullptr) view.joined = std::make_shared<std::string>();
      view.joined->append(part);
      view.bytes = *view.joined;
    }
  }
  return ok();
}

}  // namespace

Request::Request(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request)
    : instance_(instance), request_(request), exec_start_(now_ns()) {
  first_of_hash_.fill(-1);
  uint32_t count = 0;
  check(TRITONBACKEND_RequestInputCount(request_, &count));
  inputs_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_Input* input = nullptr;
    check(TRITONBACKEND_RequestInputByIndex(request_, i, &input));
    if (input == nullptr) continue;
    const auto index = static_cast<int32_t>(inputs_.size());
    Input& entry = inputs_.emplace_back();
    entry.status = read_input(input, entry.name, entry.view);
    entry.next = std::exchange(first_of_hash_[hash_of(entry.name)], index);
  }
  check(TRITONBACKEND_RequestOutputCount(request_, &count));
  outputs_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = "";
    check(TRITONBACKEND_RequestOutputName(request_, i, &name));
    outputs_.emplace_back(name);
  }
}

std::string Request::id() const {
  const char* id = "";
  check(TRITONBACKEND_RequestId(request_, &id));
  return id;
}

const Request::Input* Request::find(std::string_view name) const {
  for (int32_t i = first_of_hash_[hash_of(name)]; i >= 0; i = inputs_[i].next)
    if (inputs_[i].name == name) return &inputs_[i];
  return nullptr;
}

StatusOr<const InputView*> Request::input(std::string_view name) const {
  const Input* const input = find(name);
  if (input == nullptr) return nullptr;
  RETURN_IF_ERROR(input->status);
  return &input->view;
}

StatusOr<std::string_view> Request::strings_of_item(std::string_view name, int64_t index,
                                                    int64_t batch) const {
  const Input& input = *find(name);
  if (input.item_ends.empty()) {
    RETURN_IF_ERROR(hold(static_cast<uint64_t>(batch) * sizeof(size_t)));
    ASSIGN_OR_RETURN(input.item_ends, item_ends(name, input.view, batch));
  }
  const auto i = static_cast<size_t>(index);
  const size_t begin = i == 0 ? 0 : input.item_ends[i - 1];
  return input.view.bytes.substr(begin, input.item_ends[i] - begin);
}

bool has_small_inputs(TRITONBACKEND_Request* request, uint64_t max_bytes) {
  uint32_t count = 0;
  check(TRITONBACKEND_RequestInputCount(request, &count));
  uint64_t total = 0;
  for (uint32_t i = 0; i < count && total <= max_bytes; ++i) {
    TRITONBACKEND_Input* input = nullptr;
    uint64_t size = 0;
    check(TRITONBACKEND_RequestInputByIndex(request, i, &input));
    if (input == nullptr) return false;
    const char* name = nullptr;
    check(TRITONBACKEND_InputProperties(input, &name, nullptr, nullptr, nullptr, &size, nullptr));
    // Its compilation takes longer than quick requests may.
    if (std::string_view(name) == "guided_decoding_guide") return false;
    total += size;
  }
  return total <= max_bytes;
}

Status Request::hold(uint64_t num_bytes) const {
  constexpr uint64_t kLittle = 4096;  // bytes; smaller amounts are not counted
  if (NEREID_ServerHoldMemory == nullptr || num_bytes <= kLittle) return ok();
  RETURN_IF_ERROR(take(NEREID_ServerHoldMemory(num_bytes)));
  num_held_ += num_bytes;
  return ok();
}

uint64_t Request::tenant() const {
  return NEREID_ServerTenant == nullptr ? 0 : NEREID_ServerTenant(request_);
}

bool Request::wants_output(std::string_view name) const {
  return std::find(outputs_.begin(), outputs_.end(), name) != outputs_.end();
}

namespace {

// Lengths and counts are UINT32 in the oldest repositories.
template <class T>
bool is_unsigned(const InputView& view) {
  return std::is_same_v<T, int32_t> && view.datatype == TRITONSERVER_TYPE_UINT32;
}

template <class T>
Status check_elements(std::string_view name, const InputView& view) {
  const bool has_type = view.datatype == type_of<T>() || is_unsigned<T>(view);
  if (has_type && view.bytes.size() % sizeof(T) == 0) return ok();
  return invalid_argument("input '{}' has type {}, expected {}", name,
                          TRITONSERVER_DataTypeString(view.datatype),
                          TRITONSERVER_DataTypeString(type_of<T>()));
}

// Copies the elements into `to`.
template <class T>
Status copy_elements(std::string_view name, const InputView& view, T* to) {
  const size_t count = view.bytes.size() / sizeof(T);
  if (count == 0) return ok();
  std::memcpy(to, view.bytes.data(), view.bytes.size());
  if (!is_unsigned<T>(view)) return ok();
  const T* const wrapped = std::find_if(to, to + count, [](T value) { return value < T{}; });
  if (wrapped == to + count) return ok();
  return invalid_argument("input '{}' is {}, expected at most {}", name,
                          static_cast<uint32_t>(*wrapped), std::numeric_limits<T>::max());
}

// A bool is one byte of any value: nonzero is true.
template <>
Status copy_elements(std::string_view, const InputView& view, bool* to) {
  for (const char byte : view.bytes) *to++ = byte != 0;
  return ok();
}

}  // namespace

template <class T>
StatusOr<std::vector<T>> values_of(std::string_view name, const InputView& view) {
  RETURN_IF_ERROR(check_elements<T>(name, view));
  std::vector<T> out(view.bytes.size() / sizeof(T));
  RETURN_IF_ERROR(copy_elements(name, view, out.data()));
  return out;
}

template <class T>
StatusOr<T> value_of(std::string_view name, const InputView& view) {
  RETURN_IF_ERROR(check_elements<T>(name, view));
  if (view.bytes.size() != sizeof(T)) return invalid_argument("Invalid size for tensor {}", name);
  T value;
  RETURN_IF_ERROR(copy_elements(name, view, &value));
  return value;
}

template StatusOr<int32_t> value_of(std::string_view, const InputView&);
template StatusOr<uint64_t> value_of(std::string_view, const InputView&);
template StatusOr<float> value_of(std::string_view, const InputView&);
template StatusOr<bool> value_of(std::string_view, const InputView&);
template StatusOr<std::vector<int32_t>> values_of(std::string_view, const InputView&);
template StatusOr<std::vector<uint64_t>> values_of(std::string_view, const InputView&);
template StatusOr<std::vector<float>> values_of(std::string_view, const InputView&);

namespace {

// Calls `take(text)` for each element. InvalidArgument: the tensor is not BYTES, or is incomplete.
template <class Take>
Status visit_strings(std::string_view name, const InputView& view, Take take) {
  if (view.datatype != TRITONSERVER_TYPE_BYTES) {
    return invalid_argument("input '{}' has type {}, expected BYTES", name,
                            TRITONSERVER_DataTypeString(view.datatype));
  }
  std::string_view left = view.bytes;
  while (!left.empty()) {
    uint32_t length = 0;
    if (left.size() >= sizeof(length)) {
      std::memcpy(&length, left.data(), sizeof(length));
      left.remove_prefix(sizeof(length));
      if (length <= left.size()) {
        take(left.substr(0, length));
        left.remove_prefix(length);
        continue;
      }
    }
    return invalid_argument("input '{}' holds incomplete strings", name);
  }
  return ok();
}

}  // namespace

StatusOr<std::vector<std::string_view>> strings_of(std::string_view name, const InputView& view) {
  std::vector<std::string_view> out;
  RETURN_IF_ERROR(visit_strings(name, view, [&](std::string_view text) { out.push_back(text); }));
  return out;
}

Status uneven(std::string_view name, int64_t batch) {
  return invalid_argument("input '{}' does not divide into the {} items of the batch", name, batch);
}

StatusOr<std::vector<size_t>> item_ends(std::string_view name, const InputView& view,
                                        int64_t batch) {
  const auto num_items = static_cast<size_t>(batch);
  size_t count = 0;
  RETURN_IF_ERROR(visit_strings(name, view, [&](std::string_view) { ++count; }));
  if (count % num_items != 0) return uneven(name, batch);
  std::vector<size_t> ends;
  ends.reserve(num_items);
  const size_t per_item = count / num_items;
  size_t seen = 0;
  const auto take = [&](std::string_view text) {
    if (++seen % per_item == 0)
      ends.push_back(static_cast<size_t>(text.data() + text.size() - view.bytes.data()));
  };
  RETURN_IF_ERROR(visit_strings(name, view, take));
  ends.resize(num_items);  // all 0 without elements
  return ends;
}

uint64_t held_as_strings(const InputView& view) {
  uint64_t count = 1;
  for (const int64_t size : view.shape) count *= static_cast<uint64_t>(std::max<int64_t>(size, 0));
  return view.bytes.size() + count * (sizeof(std::string) + sizeof(std::string_view));
}

template <class T>
StatusOr<std::optional<std::vector<T>>> Request::read_values(std::string_view name) const {
  ASSIGN_OR_RETURN(const InputView* view, input(name));
  if (view == nullptr) return std::nullopt;
  RETURN_IF_ERROR(hold(view->bytes.size()));
  ASSIGN_OR_RETURN(auto out, values_of<T>(name, *view));
  return std::optional(std::move(out));
}

template <class T>
StatusOr<std::optional<T>> Request::read_scalar(std::string_view name) const {
  ASSIGN_OR_RETURN(const InputView* view, input(name));
  if (view == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(const T value, value_of<T>(name, *view));
  return std::optional<T>(value);
}

template StatusOr<std::optional<int32_t>> Request::read_scalar(std::string_view) const;
template StatusOr<std::optional<uint64_t>> Request::read_scalar(std::string_view) const;
template StatusOr<std::optional<float>> Request::read_scalar(std::string_view) const;
template StatusOr<std::optional<bool>> Request::read_scalar(std::string_view) const;
template StatusOr<std::optional<std::vector<int32_t>>> Request::read_values(std::string_view) const;
template StatusOr<std::optional<std::vector<uint64_t>>> Request::read_values(
    std::string_view) const;
template StatusOr<std::optional<std::vector<float>>> Request::read_values(std::string_view) const;

StatusOr<std::optional<std::vector<std::string>>> Request::read_strings(
    std::string_view name) const {
  ASSIGN_OR_RETURN(const InputView* view, input(name));
  if (view == nullptr) return std::nullopt;
  RETURN_IF_ERROR(hold(held_as_strings(*view)));
  ASSIGN_OR_RETURN(const auto parts, strings_of(name, *view));
  return std::optional(std::vector<std::string>(parts.begin(), parts.end()));
}

void Request::set_times(uint64_t compute_start, uint64_t compute_end) {
  has_times_ = true;
  compute_start_ = compute_start;
  compute_end_ = compute_end;
}

void Request::report() {
  if ((!has_times_ && success_) || std::exchange(reported_, true)) return;
  const uint64_t end = now_ns();
  if (!has_times_) set_times(end, end);
  check(TRITONBACKEND_ModelInstanceReportStatistics(instance_, request_, success_, exec_start_,
                                                    compute_start_, compute_end_, end));
  if (!success_) return;
  check(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, 1, exec_start_, compute_start_,
                                                         compute_end_, end));
}

void Request::release() {
  if (request_ == nullptr) return;
  report();
  if (num_held_ > 0) NEREID_ServerReleaseMemory(std::exchange(num_held_, 0));
  check(TRITONBACKEND_RequestRelease(std::exchange(request_, nullptr),
                                     TRITONSERVER_REQUEST_RELEASE_ALL));
}

template <class T>
Output make_output(std::string name, Shape shape, const std::vector<T>& values) {
  return {std::move(name), type_of<T>(), std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

template Output make_output(std::string, Shape, const std::vector<int32_t>&);
template Output make_output(std::string, Shape, const std::vector<int64_t>&);
template Output make_output(std::string, Shape, const std::vector<float>&);

Output make_output(std::string name, Shape shape, const std::vector<std::string>& values) {
  std::string bytes;
  for (const auto& value : values) {
    const auto length = static_cast<uint32_t>(value.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes += value;
  }
  return {std::move(name), TRITONSERVER_TYPE_BYTES, std::move(shape), std::move(bytes)};
}

Responder::Responder(Request& request) : request_(request) {
  check(TRITONBACKEND_ResponseFactoryNew(&factory_, request.raw()));
}

Responder::~Responder() { check(TRITONBACKEND_ResponseFactoryDelete(factory_)); }

namespace {

Status fill(TRITONBACKEND_Response* response, const std::vector<Output>& outputs,
            const std::vector<ResponseParameter>& parameters) {
  for (const auto& output : outputs) {
    const std::string_view data = output.data();
    TRITONBACKEND_Output* tensor = nullptr;
    RETURN_IF_ERROR(take(TRITONBACKEND_ResponseOutput(response, &tensor, output.name.c_str(),
                                                      output.datatype, output.shape.data(),
                                                      static_cast<uint32_t>(output.shape.size()))));
    void* buffer = nullptr;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    RETURN_IF_ERROR(
        take(TRITONBACKEND_OutputBuffer(tensor, &buffer, data.size(), &memory, &memory_id)));
    if (memory == TRITONSERVER_MEMORY_GPU) {
      return unsupported("output '{}' cannot be written to device memory", output.name);
    }
    if (buffer == nullptr && !data.empty()) {
      return internal_error("allocator gave no buffer of {} bytes for output '{}'", data.size(),
                            output.name);
    }
    copy_bytes(buffer, data.data(), data.size());
  }
  for (const auto& [name, value] : parameters) {
    const auto* text = std::get_if<std::string>(&value);
    RETURN_IF_ERROR(
        take(text ? TRITONBACKEND_ResponseSetStringParameter(response, name.c_str(), text->c_str())
                  : TRITONBACKEND_ResponseSetIntParameter(response, name.c_str(),
                                                          std::get<int64_t>(value))));
  }
  return ok();
}

}  // namespace

Status Responder::send(const std::vector<Output>& outputs, bool is_final,
                       const std::vector<ResponseParameter>& parameters) {
  TRITONBACKEND_Response* response = nullptr;
  RETURN_IF_ERROR(take(TRITONBACKEND_ResponseNewFromFactory(&response, factory_)));
  if (Status status = fill(response, outputs, parameters); !status.ok()) {
    check(TRITONBACKEND_ResponseDelete(response));
    return status;
  }
  if (is_final) {
    final_sent_ = true;
    request_.report();
  }
  return take(TRITONBACKEND_ResponseSend(
      response, is_final ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, nullptr));
}

void Responder::fail(const Status& status, bool is_final) {
  if (final_sent_) return;
  final_sent_ = is_final;
  request_.set_failed();
  if (is_final) request_.report();
  TRITONBACKEND_Response* response = nullptr;
  check(TRITONBACKEND_ResponseNewFromFactory(&response, factory_));
  if (response == nullptr) return;
  TRITONSERVER_Error* error = give(status);
  check(TRITONBACKEND_ResponseSend(response, is_final ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0,
                                   error));
  TRITONSERVER_ErrorDelete(error);
}

void Responder::finish() {
  if (std::exchange(final_sent_, true)) return;
  request_.report();
  check(TRITONBACKEND_ResponseFactorySendFlags(factory_, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
}

bool Request::is_cancelled() const {
  bool cancelled = false;
  check(TRITONBACKEND_RequestIsCancelled(request_, &cancelled));
  return cancelled;
}

bool Responder::is_cancelled() const {
  bool cancelled = false;
  check(TRITONBACKEND_ResponseFactoryIsCancelled(factory_, &cancelled));
  return cancelled;
}

}  // namespace nereid::backend
