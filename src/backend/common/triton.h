// A thin C++ layer over the C API for our backends: Status for errors, and objects that clean up
// after themselves.
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

Status take_error(TRITONSERVER_Error* error);  // not null
// The error as a Status; deletes it. OK for null.
inline Status take(TRITONSERVER_Error* error) {
  return error == nullptr ? ok() : take_error(error);
}
// A new error for the core; null for OK.
TRITONSERVER_Error* give(const Status& status);

using Shape = absl::InlinedVector<int64_t, 4>;

// One input of a request; `bytes` lives as long as the request unless it had several buffers (then
// `joined` holds it).
struct InputView {
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  Shape shape;  // with the batch dimension
  std::string_view bytes;
  std::shared_ptr<std::string> joined;
};

// All elements of a tensor of type T. InvalidArgument, naming the input, for another type or size.
template <class T>
StatusOr<std::vector<T>> values_of(std::string_view name, const InputView& view);
// The one element. InvalidArgument for more or none, too.
template <class T>
StatusOr<T> value_of(std::string_view name, const InputView& view);
// The elements of a BYTES tensor; views into it.
StatusOr<std::vector<std::string_view>> strings_of(std::string_view name, const InputView& view);

// Where the elements of a BYTES tensor end for each item of a batch, in bytes. InvalidArgument:
// they do not divide.
StatusOr<std::vector<size_t>> item_ends(std::string_view name, const InputView& view,
                                        int64_t batch);

// InvalidArgument: an input that does not divide into the items of a batch.
Status uneven(std::string_view name, int64_t batch);

// Bytes that the elements take as texts of their own, which small ones exceed many times: the core
// has checked that there are as many as the shape says.
uint64_t held_as_strings(const InputView& view);

// A request that the backend owns; released exactly once, at the latest by the destructor. Not
// thread safe.
class Request {
 public:
  Request(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request);
  ~Request() { release(); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  std::string id() const;
  TRITONBACKEND_Request* raw() const { return request_; }
  TRITONBACKEND_ModelInstance* instance() const { return instance_; }

  // True: the client did not send it. Most inputs that are asked for are not there, so this costs
  // next to nothing for a name that is known when compiling.
  bool lacks(std::string_view name) const { return first_of_hash_[hash_of(name)] < 0; }
  // Null when the client did not send it; else as long as this. InvalidArgument for device memory.
  StatusOr<const InputView*> input(std::string_view name) const;
  bool wants_output(std::string_view name) const;
  // The strings of BYTES input `name`, which the client sent, for item `index` of `batch`; where
  // each item's end is found once. InvalidArgument: they do not divide.
  StatusOr<std::string_view> strings_of_item(std::string_view name, int64_t index,
                                             int64_t batch) const;

  // The one element of input `name`; nullopt when absent. InvalidArgument for another type or size.
  template <class T>
  StatusOr<std::optional<T>> scalar(std::string_view name) const {
    if (lacks(name)) return std::optional<T>();
    return read_scalar<T>(name);
  }
  // All elements; nullopt when absent.
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

  // Counts memory that is taken for the request, before it is taken and until the request is
  // released, in what the server holds for its clients. Unavailable where there is no room. Other
  // servers than ours do not count. What values() and strings() give is counted by them.
  Status hold(uint64_t num_bytes) const;

  // Steady-clock ns. The execution began when this was made.
  void set_times(uint64_t compute_start, uint64_t compute_end);
  void set_failed() { success_ = false; }
  // Books the request, once; one without times (it was refused, or asked for nothing to be run)
  // only if it failed. Comes before the last response, so that who has the answer finds it counted.
  void report();
  void release();  // reports first

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
    Status status;                          // why there is no view
    int32_t next = -1;                      // in `inputs_`, of the same hash
    mutable std::vector<size_t> item_ends;  // see strings_of_item()
  };
  const Input* find(std::string_view name) const;
  // All of them, read once: most names that are asked for are not there, and asking the server for
  // such a one costs it a message.
  std::vector<Input> inputs_;
  std::array<int32_t, kNumHashes> first_of_hash_;  // in `inputs_`; -1: none
  std::vector<std::string_view> outputs_;
  mutable uint64_t num_held_ = 0;  // bytes
  uint64_t exec_start_, compute_start_ = 0, compute_end_ = 0;
  bool has_times_ = false, reported_ = false, success_ = true;
};

// Whether all inputs of `request` together have at most `max_bytes`.
bool has_small_inputs(TRITONBACKEND_Request* request, uint64_t max_bytes);

// One output tensor to send; bytes as they go on the wire.
struct Output {
  std::string name;
  TRITONSERVER_DataType datatype;
  Shape shape;
  std::string bytes;
  std::shared_ptr<const std::vector<float>> shared = nullptr;  // not null: in the place of `bytes`

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

// Where a request's responses go. Books the request with the last one and releases it with none.
// Sends FINAL at most once, while the request is there; the core supplies a missing one.
class Responder {
 public:
  explicit Responder(Request& request);
  ~Responder();
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  Status send(const std::vector<Output>& outputs, bool is_final,
              const std::vector<ResponseParameter>& parameters = {});
  // An error response; the request counts as failed.
  void fail(const Status& status) { fail(status, /*is_final=*/true); }
  void fail(const Status& status, bool is_final);
  void finish();  // FINAL alone
  bool is_cancelled() const;
  bool is_final() const { return final_sent_; }

 private:
  Request& request_;
  TRITONBACKEND_ResponseFactory* factory_ = nullptr;
  bool final_sent_ = false;
};

// The model's configuration as a backend needs it.
class ModelSettings {
 public:
  static StatusOr<ModelSettings> read(TRITONBACKEND_Model* model);

  // nullopt when unset: no such key, empty, or an unfilled ${placeholder}.
  std::optional<std::string> parameter(std::string_view key) const;
  // The default when unset. InvalidArgument, naming key and value, when it is not such a number or
  // bool.
  StatusOr<int64_t> integer(std::string_view key, int64_t fallback) const;
  StatusOr<bool> boolean(std::string_view key, bool fallback) const;
  StatusOr<double> number(std::string_view key, double fallback) const;

  std::string name;
  int64_t version = 1;
  std::string dir;  // the model's folder
  bool decoupled = false;
  struct OutputSpec {
    std::string name;
    TRITONSERVER_DataType datatype;
    size_t rank;  // without the batch dimension
  };
  std::vector<OutputSpec> outputs;
  // The declared output of that name; nullptr when there is none.
  const OutputSpec* output(std::string_view name) const;
  // An output of 32-bit integers with the integer type that the configuration declares for it; any
  // other as it is. Negative numbers become unsigned ones as in a cast.
  Output as_declared(Output output) const;
  // InvalidArgument, naming both, where output `name` is declared with a type that as_declared()
  // cannot make of `made`.
  Status check_type(std::string_view name, TRITONSERVER_DataType made) const;

 private:
  json::object parameters_;
};

void log_info(std::string_view text);
void log_warning(std::string_view text);
void log_verbose(std::string_view text);

// Runs `body`, turning exceptions into Unavailable, for want of memory, or Internal.
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
