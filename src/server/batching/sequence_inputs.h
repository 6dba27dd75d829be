// Tensors that the core adds to a request of a sequence: controls, and the implicit state of
// the previous request.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/config/model_config.h"
#include "server/request/request.h"

namespace nereid::server {

struct ControlValues {
  bool start = false, ready = false, end = false;
  CorrelationId id;
};

// InvalidArgument when `id` does not fit the model's CORRID tensor.
Status check_correlation_id(const ModelConfig& config, const CorrelationId& id);

// Appends the model's control tensors to the request's core inputs.
void add_controls(const ModelConfig& config, const ControlValues& values,
                  InferenceRequest& request);

// One implicit state of a sequence: the value for the next request, and the buffer that the
// current one writes.
struct ImplicitState {
  const SequenceState* spec = nullptr;
  bool batched = false;
  std::shared_ptr<std::string> data, next;  // next: null until StateBuffer is called
  Shape shape, next_shape;                  // batch dimension included
  TRITONSERVER_BufferAttributes attributes;

  // Allocates the buffer that the request writes. InvalidArgument, or ResourceExhausted.
  StatusOr<void*> allocate(uint64_t byte_size);
  // Makes the written value the input of the next request.
  Status update();
};

// Initial values of a model's states, shared by its sequences with copy on write.
struct InitialStates {
  std::vector<std::shared_ptr<std::string>> data;  // by state
  // Reads the files in <dir>/initial_state. InvalidArgument for a wrong size.
  static StatusOr<InitialStates> read(const ModelConfig& config, const std::filesystem::path& dir);
};

// The implicit states of one sequence. One request uses them at a time.
class ImplicitStates {
 public:
  ImplicitStates(const ModelConfig& config, const InitialStates& initial);
  void reset();
  void add_inputs(InferenceRequest& request) const;
  // Starts a new value of output state `name`. InvalidArgument with the reason.
  StatusOr<ImplicitState*> write(std::string_view name, TRITONSERVER_DataType datatype,
                                 Shape shape);

 private:
  const ModelConfig& config_;
  const InitialStates& initial_;
  std::deque<ImplicitState> states_;  // a deque: addresses are stable
};

// A padding request for a batch slot without a sequence: the shapes of `like`, zeros, control READY
// false. It deletes itself when released.
InferenceRequest* make_padding(const std::shared_ptr<Model>& model, const InferenceRequest& like,
                               const InitialStates& initial);

inline ImplicitState* of(TRITONBACKEND_State* s) { return reinterpret_cast<ImplicitState*>(s); }

}  // namespace nereid::server
