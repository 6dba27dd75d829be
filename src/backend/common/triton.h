// A thin C++ layer over Triton's C API for our backends: Status for errors, and RAII objects.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/json.h"
#include "base/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::backend {

Status take_error(TRITONSERVER_Error* error);  // `error` is not null
// The error as a Status, and deletes it. OK for null.
inline Status take(TRITONSERVER_Error* error) {
  return error == nullptr ? ok() : take_error(error);
}
// A new error object for the core; null for OK.
TRITONSERVER_Error* give(const Status& status);

using Shape = absl::InlinedVector<int64_t, 4>;

// One input of a request. `bytes` lives as long as the request, or is a view into `joined` when the
// input came in several buffers.
struct InputView {
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  Shape shape;  // batch dimension included
  std::string_view bytes;
  std::shared_ptr<std::string> joined;
};

// All elements of a tensor of type T. InvalidArgument, naming the input, for another type or size.
template <class T>
StatusOr<std::vector<T>> values_of(std::string_view name, const InputView& view);
// The only element. InvalidArgument also for none or several.
template <class T>
StatusOr<T> value_of(std::string_view name, const InputView& view);
// The elements of a BYTES tensor as views into it.
StatusOr<std::vector<std::string_view>> strings_of(std::string_view name, const InputView& view);

// The end of each item's elements in a BYTES tensor, in bytes. InvalidArgument: the elements do not
// divide by the number of items.
StatusOr<std::vector<size_t>> item_ends(std::string_view name, const InputView& view,
                                        int64_t batch);

// InvalidArgument: the input does not divide into the items of a batch.
Status uneven(std::string_view name, int64_t batch);

// Bytes that the elements take as strings of their own: for short elements many times their size in
// the tensor. The core has checked that their number matches the shape.
uint64_t held_as_strings(const InputView& view);

// A request that the backend owns, released exactly once, at the latest by the
// destructor. Not thread safe.
class Request {
 public:
  Request(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request);
  ~Request() { release(); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  std::string id() const;
  TRITONBACKEND_Request* raw() const { return request_; }
  TRITONBACKEND_ModelInstance* instance() const { return instance_; }

  bool has(std::string_view name) const { return find(name) != nullptr; }
  // True: the client did not send the input; false: it may have. Inline with a hash that is
  // constant for literals: most inputs asked for are absent.
  bool lacks(std::string_view name) const { return first_of_hash_[hash_of(name)] < 0; }
  // Null when the client did not send the input; else valid as long as this. InvalidArgument
  // for device memory.
  StatusOr<const InputView*> input(std::string_view name) const;
  bool wants_output(std::string_view name) const;
  // The strings of BYTES input `name`, which the client sent, for item `index` of `batch`. The ends
  // of the items are found once and kept. InvalidArgument: the elements do not divide.
  StatusOr<std::string_view> strings_of_item(std::string_view name, int64_t index,
                                             int64_t batch) const;

  // The only element of input `name`; nullopt when absent. InvalidArgument for
  // another type or size.
  template <class T>
  StatusOr<std::optional<T>> scalar(std::string_view name) const {
    if (lacks(name)) return std::optional<T>();
    return read_scalar<T>(name);
  }
  // All elements of input `name`; nullopt when absent.
  template <class T>
  StatusOr<std::optional<std::vector<T>>> values(std::string_view name) const {
    if (lacks(name)) return std::optional<std::vector<T>>();
    return read_values<T>(name);
  }
  StatusOr<std::optional<std::vector<std::string>>> strings(std::string_view name) const {
    if (lacks(name)) return std::optional<std::vector<std::string>>();
    return read_strings(name);
  }

  bool is_cancelled() const;  // any thread
  uint64_t tenant() const;    // whose it is (NEREID_ServerSetTenant); 0 in other servers

  // Counts `num_bytes`, which the backend is about to allocate for the request, in the server's
  // memory budget until the request is released. Unavailable when the budget is full. Other servers
  // do not count. values() and strings() count their results themselves.
  Status hold(uint64_t num_bytes) const;

  // Steady-clock ns. The execution began when this object was made.
  void set_times(uint64_t compute_start, uint64_t compute_end);
  void set_failed() { success_ = false; }
  // Reports the request's statistics, once; a request without times (refused, or one that ran
  // nothing) is reported only if it failed. To be called before the last response, so that a client
  // that has the answer finds it counted.
  void report();
  void release();  // reports statistics first

 private:
  static constexpr size_t kNumHashes = 64;
  static constexpr size_t hash_of(std::string_view name) {
    if (name.empty()) return 0;
    return (name.size() * 7 + static_cast<unsigned char>(name.front()) * 5 +
            static_cast<unsigned char>(name.back())) %
           kNumHashes;
  }
  template <class T>
  StatusOr<std::optional<T>> read_scalar(std::string_view name) const;
  template <class T>
  StatusOr<std::optional<std::vector<T>>> read_values(std::string_view name) const;
  StatusOr<std::optional<std::vector<std::string>>> read_strings(std::string_view name) const;

  TRITONBACKEND_ModelInstance* instance_;
  TRITONBACKEND_Request* request_;
  struct Input {
    std::string_view name;
    InputView view;
    Status status;                          // the reason when there is no view
    int32_t next = -1;                      // next entry of `inputs_` with the same hash
    mutable std::vector<size_t> item_ends;  // see strings_of_item()
  };
  const Input* find(std::string_view name) const;
  // All inputs, read once: a lookup of an absent name in the server would cost an error message.
  std::vector<Input> inputs_;
  std::array<int32_t, kNumHashes> first_of_hash_;  // first index in `inputs_` by hash; -1: none
  std::vector<std::string_view> outputs_;
  mutable uint64_t num_held_ = 0;  // bytes held so far
  uint64_t exec_start_, compute_start_ = 0, compute_end_ = 0;
  bool has_times_ = false, reported_ = false, success_ = true;
};

// Whether all inputs of `request` together have at most `max_bytes`.
bool has_small_inputs(TRITONBACKEND_Request* request, uint64_t max_bytes);

// One output tensor to send; bytes in wire format.
struct Output {
  std::string name;
  TRITONSERVER_DataType datatype;
  Shape shape;
  std::string bytes;
  std::shared_ptr<const std::vector<float>> shared = nullptr;  // not null: used instead of `bytes`

  std::string_view data() const {
    if (shared == nullptr) return bytes;
    return {reinterpret_cast<const char*>(shared->data()), shared->size() * sizeof(float)};
  }
};

template <class T>
Output make_output(std::string name, Shape shape, const std::vector<T>& values);
Output make_output(std::string name, Shape shape, const std::vector<std::string>& values);

struct ResponseParameter {
  std::string name;
  std::variant<std::string, int64_t> value;
};

// Sends a request's responses. Reports the statistics before the last response and releases
// the request behind it. FINAL is sent at most once, while the request exists; the core
// adds a missing one.
class Responder {
 public:
  explicit Responder(Request& request);
  ~Responder();
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  Status send(const std::vector<Output>& outputs, bool is_final,
              const std::vector<ResponseParameter>& parameters = {});
  // Sends an error response; the request counts as failed.
  void fail(const Status& status) { fail(status, /*is_final=*/true); }
  void fail(const Status& status, bool is_final);
  void finish();  // sends FINAL alone
  bool is_cancelled() const;
  bool is_final() const { return final_sent_; }

 private:
  Request& request_;
  TRITONBACKEND_ResponseFactory* factory_ = nullptr;
  bool final_sent_ = false;
};

// A model's configuration, as far as backends read it.
class ModelSettings {
 public:
  static StatusOr<ModelSettings> read(TRITONBACKEND_Model* model);
  // `config`: a ModelConfig as the core gives it; what it lacks has its default.
  static ModelSettings of(const json::object& config);

  // nullopt when unset: no such key, an empty value, or an unfilled ${placeholder}.
  std::optional<std::string> parameter(std::string_view key) const;
  // `fallback` when unset. InvalidArgument, naming key and value, for other text than
  // such a number or bool.
  StatusOr<int64_t> integer(std::string_view key, int64_t fallback) const;
  StatusOr<bool> boolean(std::string_view key, bool fallback) const;
  StatusOr<double> number(std::string_view key, double fallback) const;

  std::string name;
  int64_t version = 1;
  std::string dir;  // the model's folder
  bool decoupled = false;
  int64_t num_instances = 1;  // of all instance groups
  std::vector<int64_t> gpus;  // of all instance groups, in order
  struct OutputSpec {
    std::string name;
    TRITONSERVER_DataType datatype;
    size_t rank;  // batch dimension excluded
  };
  std::vector<OutputSpec> outputs;
  // The declared output of that name; nullptr without one.
  const OutputSpec* output(std::string_view name) const;
  // `output` with the type that the configuration declares for it, if both are 32-bit integer
  // types; else unchanged. Negative numbers are cast.
  Output as_declared(Output output) const;
  // InvalidArgument, naming both types, when output `name` is declared with a type that
  // as_declared() cannot convert `made` to.
  Status check_type(std::string_view name, TRITONSERVER_DataType made) const;

 private:
  json::object parameters_;
};

void log_info(std::string_view text);
void log_warning(std::string_view text);
void log_verbose(std::string_view text);

// Runs `body`; bad_alloc becomes Unavailable, other exceptions Internal.
template <class Body>
Status guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return unavailable("the server has no memory left for this request");
  } catch (const std::exception& e) {
    return internal_error("{}", e.what());
  }
}

}  // namespace nereid::backend
