// One request's path: features of its sound, a call of the generating model, text of its tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/common/callee.h"
#include "backend/common/infer_call.h"
#include "backend/common/triton.h"
#include "base/serial.h"
#include "speech/features/log_mel.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::backend {

// The settings that the runs share; they outlive the runs.
struct WhisperSettings {
  TRITONSERVER_Server* server = nullptr;
  Callees* callees = nullptr;
  bool decoupled = false;
  bool cuts =
      false;  // the sound at WAV_LENS, without padding; else the window is filled with zeros
  std::optional<speech::LogMel> mel;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  int32_t end_id = 0;
};

// A state machine, as BlsRun.
class WhisperRun : public std::enable_shared_from_this<WhisperRun> {
 public:
  // `on_over` is called once, before the request is released.
  WhisperRun(const WhisperSettings& settings, std::unique_ptr<Request> request, std::string id,
             std::function<void()> on_over);
  // Computes the features: some 10 ms.
  void start();
  // Cancels the call when the client left. Any thread.
  void check_cancelled();

 private:
  template <class Event>
  void post(Event event);
  StatusOr<std::vector<Output>> inputs() const;
  StatusOr<Output> features() const;
  void on_generated(const Reply& reply);
  Status send_text();
  void fail(const Status& status);
  void finish_if_over();

  const WhisperSettings& settings_;
  std::unique_ptr<Request> request_;
  Responder responder_;
  const std::string id_;
  std::function<void()> on_over_;
  const uint64_t start_ns_;

  SerialEvents events_;
  std::shared_ptr<InferCall> call_;  // while it runs
  std::vector<int32_t> tokens_;      // all so far
  bool is_started_ = false, failed_ = false, over_ = false;
};

}  // namespace nereid::backend
