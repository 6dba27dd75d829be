// One request's path through preprocessing, the generating model and postprocessing.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/bls/draft_loop.h"
#include "backend/common/callee.h"
#include "backend/common/infer_call.h"
#include "backend/common/item.h"
#include "backend/common/triton.h"
#include "base/serial.h"
#include "text/stop_strings.h"

namespace nereid::backend {

// The settings of the BLS model that its runs share; they outlive the runs.
struct BlsSettings {
  TRITONSERVER_Server* server = nullptr;
  std::string llm_model = "tensorrt_llm";
  std::string draft_model;     // empty: no draft model
  std::string encoders_model;  // that encodes pictures; empty: none
  bool decoupled = false;
  bool accumulate_tokens = false;
  Callees* callees = nullptr;
  PromptRule prompt_rule(const std::string& model) const {
    return {callees->has_input(model, "exclude_input_in_output"), callees->excludes_prompt(model)};
  }
};

// A state machine: each reply is an event of a serial executor, and no event blocks.
class BlsRun : public std::enable_shared_from_this<BlsRun> {
 public:
  // `on_over` is called once, before the request is released.
  BlsRun(const BlsSettings& settings, std::unique_ptr<Request> request, std::string id,
         std::function<void()> on_over);
  void start();
  // Cancels the running calls when the client left. Any thread.
  void check_cancelled();

  struct Rename {
    const char *from, *to;  // names of a tensor: the caller's, the callee's
  };

 private:
  using Stream = std::pair<uint32_t, uint32_t>;  // batch index, sequence index

  // Runs `event` serially; an exception of it ends the request.
  template <class Event>
  void post(Event event);
  Status read();
  Status read_lists();
  void call(const std::string& model, std::vector<Output> inputs, void (BlsRun::*on_reply)(Reply));
  // Appends the outputs that `model` takes to its `inputs`.
  Status pass_on(const std::vector<Output>& outputs, std::span<const Rename> renames,
                 const std::string& model, std::vector<Output>& inputs);
  void on_preprocessed(Reply reply);
  void on_encoded(Reply reply);
  void generate();
  void on_generated(Reply reply);
  void on_text(Reply reply);
  void next_draft();
  bool take_answer(Reply& reply);
  void on_draft(Reply reply);
  void on_tested(Reply reply);
  void next_text();
  StatusOr<std::vector<Output>> text_inputs(const Reply& reply);
  Status cut_at_stop_words(const Stream& stream, Output& text);
  bool ends_at_stop_word(const Stream& stream, bool is_whole, std::string_view& part);
  void stop_generating();
  void fail(const Status& status);
  void set_times();  // to be called before a response that may be the last
  void finish_if_over();

  const BlsSettings& settings_;
  std::unique_ptr<Request> request_;
  Responder responder_;
  std::string id_;
  std::function<void()> on_over_;
  uint64_t start_ns_, generated_ns_ = 0;

  std::vector<std::string> prompts_;                  // by item of the batch
  std::vector<std::vector<std::string>> stop_words_;  // by item of the batch
  bool streaming_ = false;
  std::optional<bool> exclude_input_;
  std::vector<Output> for_preprocessing_, for_encoders_, for_llm_;
  DraftLoop::DraftOptions draft_options_;  // without drafts the generating model is called once
  std::optional<DraftLoop> drafts_;        // the drafts of the only sequence
  std::vector<Output> answer_;             // outputs of the current draft call

  SerialEvents events_;
  std::shared_ptr<InferCall> current_, llm_;  // running calls, kept for cancellation
  // Replies with tokens that are not text yet; the front one is in postprocessing.
  std::deque<Reply> replies_;
  bool in_postprocessing_ = false, llm_over_ = false, failed_ = false, over_ = false;
  bool is_cancelled_ = false;
  std::map<Stream, std::vector<int32_t>> accumulated_;  // all tokens so far, by stream
  size_t num_streams_ = 0;                              // number of streams of this request
  std::map<Stream, text::StopStrings> matchers_;
  std::set<Stream> stopped_;
  bool is_stopped_ = false;  // all streams have ended; later replies are dropped
};

}  // namespace nereid::backend
