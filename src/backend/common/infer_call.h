// A request from one model to another through the server's C API.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/common/triton.h"

namespace nereid::backend {

// The tensor of that name; null without one.
const Output* find_output(const std::vector<Output>& outputs, std::string_view name);

struct Reply {
  Status status;
  std::vector<Output> outputs;  // empty: a final response without content, or an error
  bool is_final = false;
  bool has_content = false;
};

class InferCall {
 public:
  // `on_reply` runs on the thread that sends the response, in order, and must not block. is_final
  // comes exactly once, unless start() itself fails.
  static StatusOr<std::shared_ptr<InferCall>> start(TRITONSERVER_Server* server,
                                                    const std::string& model, const std::string& id,
                                                    uint64_t tenant, std::vector<Output> inputs,
                                                    std::function<void(Reply)> on_reply);
  ~InferCall();
  InferCall(const InferCall&) = delete;
  InferCall& operator=(const InferCall&) = delete;

  void cancel();  // any thread

 private:
  InferCall() = default;
  static void on_release(TRITONSERVER_InferenceRequest*, const uint32_t, void* userp);
  static void on_response(TRITONSERVER_InferenceResponse* response, const uint32_t flags,
                          void* userp);

  TRITONSERVER_InferenceRequest* request_ = nullptr;
  std::vector<Output> inputs_;  // read by the core until it releases the request
  std::function<void(Reply)> on_reply_;
};

}  // namespace nereid::backend
