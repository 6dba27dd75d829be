// One sequence being generated: token ids in, pieces of text out, through one inference call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "front/bridge/inference_call.h"
#include "front/http/message.h"
#include "front/openai/language_model.h"
#include "front/openai/requests.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace nereid::front {

struct Piece {
  std::string text;
  int64_t num_tokens = 0;     // generated so far, end and stop tokens included
  bool done = false;          // the last piece
  Status status;              // not OK: the generation failed; done is set
  std::string finish_reason;  // stop | length | cancelled, when done
  json::value stop_reason;    // matched stop string or stop token id, else null
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Called on the exchange's strand; exactly one call has done = true and is the last.
  using OnPiece = std::function<void(Piece)>;

  // `prompt` must fit the model (see check_prompt). An error means nothing was started and
  // `on_piece` is never called.
  static StatusOr<std::shared_ptr<Generation>> start(
      TRITONSERVER_Server* server, std::shared_ptr<const LanguageModel> model, ExchangePtr exchange,
      std::vector<int32_t> prompt, const SamplingOptions& sampling, OnPiece on_piece);

  // On the strand. No piece follows.
  void cancel();

 private:
  Generation(std::shared_ptr<const LanguageModel> model, const SamplingOptions& sampling,
             OnPiece on_piece);
  StatusOr<InferenceSpec> build_request(const std::vector<int32_t>& prompt) const;
  void take(const InferenceReply& reply);
  StatusOr<std::vector<int32_t>> new_tokens(const InferenceReply& reply) const;
  // True when the token ends the text.
  bool push_token(int32_t id, Piece& piece);
  void finish(const InferenceReply& reply, Piece piece);
  void emit(Piece piece);

  std::shared_ptr<const LanguageModel> model_;
  const SamplingOptions sampling_;
  OnPiece on_piece_;
  std::shared_ptr<InferenceCall> call_;
  text::Detokenizer detokenizer_;
  text::StopStrings stops_;
  size_t num_prompt_tokens_ = 0;
  int64_t max_tokens_ = 0;
  int64_t num_tokens_ = 0;
  bool done_ = false;
};

// The room that is left for output, or a 400 with the numbers when the prompt or the wanted output
// does not fit. `param` names the field that the prompt came from.
std::variant<int64_t, ApiError> check_prompt(const LanguageModel& model,
                                             const std::vector<int32_t>& prompt,
                                             const SamplingOptions& sampling,
                                             std::string_view param);

}  // namespace nereid::front
