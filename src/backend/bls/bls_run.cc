// The steps of a BLS request.
#include "backend/bls/bls_run.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace nereid::backend {
namespace {

struct Rename {
  const char *from, *to;
};

constexpr Rename kToPreprocessing[] = {{"text_input", "QUERY"},
                                       {"max_tokens", "REQUEST_OUTPUT_LEN"},
                                       {"bad_words", "BAD_WORDS_DICT"},
                                       {"stop_words", "STOP_WORDS_DICT"},
                                       {"end_id", "END_ID"},
                                       {"pad_id", "PAD_ID"}};

constexpr Rename kPreprocessedToLlm[] = {{"INPUT_ID", "input_ids"},
                                         {"REQUEST_INPUT_LEN", "input_lengths"},
                                         {"BAD_WORDS_IDS", "bad_words_list"},
                                         {"STOP_WORDS_IDS", "stop_words_list"},
                                         {"STOP_STRINGS", "stop_strings"},
                                         {"REQUEST_OUTPUT_LEN", "request_output_len"},
                                         {"OUT_END_ID", "end_id"},
                                         {"OUT_PAD_ID", "pad_id"}};

constexpr Rename kToLlm[] = {{"beam_width", "beam_width"},
                             {"top_k", "runtime_top_k"},
                             {"top_p", "runtime_top_p"},
                             {"temperature", "temperature"},
                             {"length_penalty", "len_penalty"},
                             {"repetition_penalty", "repetition_penalty"},
                             {"presence_penalty", "presence_penalty"},
                             {"frequency_penalty", "frequency_penalty"},
                             {"min_length", "min_length"},
                             {"random_seed", "random_seed"},
                             {"num_return_sequences", "num_return_sequences"},
                             {"exclude_input_in_output", "exclude_input_in_output"},
                             {"return_log_probs", "return_log_probs"},
                             {"return_context_logits", "return_context_logits"},
                             {"return_generation_logits", "return_generation_logits"},
                             {"return_perf_metrics", "return_perf_metrics"},
                             {"return_num_input_tokens", "return_num_input_tokens"},
                             {"return_num_output_tokens", "return_num_output_tokens"},
                             {"stream", "streaming"}};

const Output* find(const std::vector<Output>& outputs, std::string_view name) {
  const auto it =
      std::find_if(outputs.begin(), outputs.end(), [&](const Output& o) { return o.name == name; });
  return it == outputs.end() ? nullptr : &*it;
}

}  // namespace

BlsRun::BlsRun(const BlsSettings& settings, std::unique_ptr<Request> request, std::string id,
               std::function<void()> on_over)
    : settings_(settings),
      request_(std::move(request)),
      responder_(request_->raw()),
      id_(std::move(id)),
      on_over_(std::move(on_over)),
      start_ns_(now_ns()) {}

void BlsRun::start() {
  events_.post([self = shared_from_this()] {
    Status status = self->read();
    if (!status.ok()) {
      self->fail(status);
    } else {
      self->call("preprocessing", std::move(self->for_preprocessing_), &BlsRun::on_preprocessed);
    }
    self->finish_if_over();
  });
}

Status BlsRun::read() {
  ASSIGN_OR_RETURN(const auto text, request_->strings("text_input"));
  if (!text || text->empty()) return invalid_argument("text_input is required");
  if (text->size() != 1) {
    return unsupported("text_input has a batch of {}; only 1 works, send several requests",
                       text->size());
  }
  prompt_ = (*text)[0];
  ASSIGN_OR_RETURN(const auto max_tokens, request_->values<int32_t>("max_tokens"));
  if (!max_tokens || max_tokens->size() != 1 || (*max_tokens)[0] <= 0) {
    return invalid_argument("max_tokens must be a single value > 0");
  }
  ASSIGN_OR_RETURN(const auto stream, request_->scalar<bool>("stream"));
  streaming_ = stream.value_or(false);
  if (streaming_ && !settings_.decoupled) {
    return invalid_argument(
        "Streaming is only supported if model is deployed using decoupled mode.");
  }
  ASSIGN_OR_RETURN(const auto exclude, request_->scalar<bool>("exclude_input_in_output"));
  exclude_input_ = exclude.value_or(false);
  ASSIGN_OR_RETURN(auto stop_words, request_->strings("stop_words"));
  if (stop_words) stop_words_ = std::move(*stop_words);
  std::erase(stop_words_, "");
  const auto collect = [&](const Rename& rename, std::vector<Output>& to) -> Status {
    ASSIGN_OR_RETURN(const auto view, request_->input(rename.from));
    if (view) to.push_back({rename.to, view->datatype, view->shape, std::string(view->bytes)});
    return ok();
  };
  for (const auto& rename : kToPreprocessing) RETURN_IF_ERROR(collect(rename, for_preprocessing_));
  for (const auto& rename : kToLlm) RETURN_IF_ERROR(collect(rename, for_llm_));
  return ok();
}

void BlsRun::call(const std::string& model, std::vector<Output> inputs,
                  void (BlsRun::*on_reply)(Reply)) {
  if (responder_.is_cancelled()) return fail(cancelled("request was cancelled"));
  auto self = shared_from_this();
  auto started = InferCall::start(settings_.server, model, id_, std::move(inputs),
                                  [self, on_reply](Reply reply) {
                                    auto shared = std::make_shared<Reply>(std::move(reply));
                                    self->events_.post([self, on_reply, shared] {
                                      ((*self).*on_reply)(std::move(*shared));
                                      self->finish_if_over();
                                    });
                                  });
  if (!started.ok()) return fail(started.status());
  if (on_reply == &BlsRun::on_generated) {
    llm_ = *std::move(started);
  } else {
    current_ = *std::move(started);
  }
}

void BlsRun::on_preprocessed(Reply reply) {
  current_.reset();
  if (failed_) return;
  if (!reply.status.ok()) return fail(reply.status);
  for (const auto& rename : kPreprocessedToLlm) {
    const Output* output = find(reply.outputs, rename.from);
    if (output == nullptr || !settings_.llm_has_input(rename.to)) continue;
    for_llm_.push_back({rename.to, output->datatype, output->shape, output->bytes});
  }
  llm_over_ = false;
  call(settings_.llm_model, std::move(for_llm_), &BlsRun::on_generated);
}

void BlsRun::on_generated(Reply reply) {
  if (reply.is_final) {
    llm_over_ = true;
    llm_.reset();
    generated_ns_ = now_ns();
  }
  if (failed_) return;
  if (!reply.status.ok()) return fail(reply.status);
  if (reply.has_content) replies_.push_back(std::move(reply));
  next_text();
}

void BlsRun::next_text() {
  if (failed_ || in_postprocessing_ || replies_.empty()) return;
  auto inputs = text_inputs(replies_.front());
  if (!inputs.ok()) return fail(inputs.status());
  in_postprocessing_ = true;
  call("postprocessing", *std::move(inputs), &BlsRun::on_text);
}

StatusOr<std::vector<Output>> BlsRun::text_inputs(const Reply& reply) {
  const Output* ids = find(reply.outputs, "output_ids");
  const Output* lengths = find(reply.outputs, "sequence_length");
  if (ids == nullptr || lengths == nullptr) {
    return internal_error("model '{}' sent neither output_ids nor sequence_length",
                          settings_.llm_model);
  }
  std::vector<Output> inputs;
  if (!settings_.accumulate_tokens || !settings_.decoupled || !streaming_) {
    inputs.push_back({"TOKENS_BATCH", ids->datatype, ids->shape, ids->bytes});
    inputs.push_back({"SEQUENCE_LENGTH", lengths->datatype, lengths->shape, lengths->bytes});
    return inputs;
  }
  if (ids->shape.size() != 3) return invalid_argument("Expected output_ids tensor to have 3 dims.");
  if (ids->shape[0] != 1) return invalid_argument("Expected batch size of 1");
  if (ids->shape[1] != 1) {
    return invalid_argument("Accumulation of tokens is only implemented for beam width = 1");
  }
  const size_t begin = accumulated_.size();
  accumulated_.resize(begin + ids->bytes.size() / sizeof(int32_t));
  std::memcpy(accumulated_.data() + begin, ids->bytes.data(), ids->bytes.size());
  const auto length = static_cast<int32_t>(accumulated_.size());
  inputs.push_back(make_output("TOKENS_BATCH", {1, 1, length}, accumulated_));
  inputs.push_back(make_output("SEQUENCE_LENGTH", {1, 1}, std::vector<int32_t>{length}));
  return inputs;
}

// Without streaming the text may go on after the stop word, up to the end of the token that
// completed it.
void BlsRun::cut_at_stop_word(Output& text) const {
  uint32_t length = 0;
  if (text.bytes.size() < sizeof(length)) return;
  std::memcpy(&length, text.bytes.data(), sizeof(length));
  if (text.bytes.size() != sizeof(length) + length) return;  // several texts
  const std::string_view whole = std::string_view(text.bytes).substr(sizeof(length));
  const size_t from = exclude_input_ ? 0 : std::min(prompt_.size(), whole.size());
  size_t end = std::string_view::npos;
  for (const auto& word : stop_words_) {
    const size_t at = whole.find(word, from);
    if (at != std::string_view::npos) end = std::min(end, at + word.size());
  }
  if (end == std::string_view::npos) return;
  text = make_output(text.name, text.shape,
                     std::vector<std::string>{std::string(whole.substr(0, end))});
}

void BlsRun::on_text(Reply reply) {
  in_postprocessing_ = false;
  current_.reset();
  if (failed_) return;
  if (!reply.status.ok()) return fail(reply.status);
  const Reply generated = std::move(replies_.front());
  replies_.pop_front();
  std::vector<Output> outputs;
  for (auto& output : reply.outputs) {
    if (output.name != "OUTPUT" || !request_->wants_output("text_output")) continue;
    output.name = "text_output";
    if (!streaming_) cut_at_stop_word(output);
    outputs.push_back(std::move(output));
  }
  for (const auto& output : generated.outputs) {
    if (output.name == "output_ids" || output.name == "sequence_length") continue;
    if (request_->wants_output(output.name)) outputs.push_back(output);
  }
  // Decoupled: FINAL follows alone.
  if (Status s = responder_.send(outputs, !settings_.decoupled); !s.ok()) return fail(s);
  next_text();
}

void BlsRun::check_cancelled() {
  if (!responder_.is_cancelled()) return;
  events_.post([self = shared_from_this()] {
    if (self->is_cancelled_ || self->over_) return;
    self->is_cancelled_ = true;
    if (self->current_ != nullptr) self->current_->cancel();
    if (self->llm_ != nullptr) self->llm_->cancel();
  });
}

void BlsRun::fail(const Status& status) {
  if (failed_) return;
  failed_ = true;
  request_->set_failed();
  responder_.fail(status);
  replies_.clear();
  if (current_ != nullptr) current_->cancel();
  if (llm_ != nullptr) llm_->cancel();
}

void BlsRun::finish_if_over() {
  if (over_ || current_ != nullptr || llm_ != nullptr) return;
  if (!failed_ && (!llm_over_ || !replies_.empty())) return;
  over_ = true;
  if (!failed_ && !responder_.is_final()) {
    if (settings_.decoupled) {
      responder_.finish();
    } else {
      responder_.fail(internal_error("model '{}' gave no response", settings_.llm_model));
    }
  }
  request_->set_times(start_ns_, start_ns_, generated_ns_ == 0 ? now_ns() : generated_ns_);
  on_over_();
  request_->release();
}

}  // namespace nereid::backend
