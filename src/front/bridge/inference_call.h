// One inference through the Triton C API: owns the request object, its inputs and its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "front/bridge/tensor.h"

namespace nereid::front {

struct InferenceSpec {
  std::string model;
  int64_t version = -1;  // -1: newest ready
  std::string id;
  std::vector<Tensor> inputs;
  std::vector<Parameter> parameters;
  std::vector<std::string> requested_outputs;  // empty: all
};

class InferenceCall : public std::enable_shared_from_this<InferenceCall> {
 public:
  // Called on a thread of the server for every response, in order; the last call, and only that,
  // has final = true. After an accepted start it always comes, whatever fails.
  using OnReply = std::function<void(InferenceReply)>;

  // Sends the request. On an error nothing was accepted and `on_reply` is never called.
  static StatusOr<std::shared_ptr<InferenceCall>> start(TRITONSERVER_Server* server,
                                                        InferenceSpec spec, OnReply on_reply);
  ~InferenceCall();
  InferenceCall(const InferenceCall&) = delete;
  InferenceCall& operator=(const InferenceCall&) = delete;

  // Asks the server to stop; the final reply still comes. Any thread, any time, any number.
  void cancel();

 private:
  InferenceCall() = default;
  Status build(TRITONSERVER_Server* server);
  void finish_part(bool released);

  static void on_release(TRITONSERVER_InferenceRequest* request, uint32_t flags, void* self);
  static void on_response(TRITONSERVER_InferenceResponse* response, uint32_t flags, void* self);

  InferenceSpec spec_;
  OnReply on_reply_;
  std::mutex mutex_;
  TRITONSERVER_InferenceRequest* request_ = nullptr;  // until released and final
  std::shared_ptr<InferenceCall> self_;               // while the server may call back
  bool released_ = false;
  bool final_seen_ = false;
};

}  // namespace nereid::front
