// Token ids -> text with stops and finish reasons; see generation.h.
#include "front/openai/generation.h"

#include <algorithm>
#include <random>
#include <utility>

namespace nereid::front {
namespace {

constexpr char kExcludeInput[] = "exclude_input_in_output";

uint64_t random_seed() {
  thread_local std::mt19937_64 engine{std::random_device{}()};
  return engine();
}

// Builds inputs in the layout that the engine's metadata asks for.
class Inputs {
 public:
  Inputs(const ModelInfo& engine, InferenceSpec& spec) : engine_(engine), spec_(spec) {}

  // `shape` is without batch; a leading 1 is added when the declared rank has one more. An input
  // that the engine does not declare is an error unless it is `optional`.
  template <class T>
  void add(const char* name, std::vector<int64_t> shape, const std::vector<T>& values,
           bool optional = false) {
    const TensorInfo* info = engine_.input(name);
    if (info == nullptr) {
      if (!optional && status_.ok()) {
        status_ = unsupported("model '{}' has no input '{}'", engine_.name, name);
      }
      return;
    }
    if (info->shape.size() == shape.size() + 1) shape.insert(shape.begin(), 1);
    spec_.inputs.push_back(make_tensor(name, std::move(shape), values));
  }
  template <class T>
  void scalar(const char* name, T value, bool optional = false) {
    add(name, {1}, std::vector<T>{value}, optional);
  }
  const Status& status() const { return status_; }

 private:
  const ModelInfo& engine_;
  InferenceSpec& spec_;
  Status status_;
};

// [2, n]: ids of all one-token words, then their running ends (backend's word list format).
std::vector<int32_t> one_token_words(const std::vector<int32_t>& ids) {
  std::vector<int32_t> out = ids;
  for (size_t i = 0; i < ids.size(); ++i) out.push_back(static_cast<int32_t>(i + 1));
  return out;
}

}  // namespace

std::variant<int64_t, ApiError> check_prompt(const LanguageModel& model,
                                             const std::vector<int32_t>& prompt,
                                             const SamplingOptions& sampling,
                                             std::string_view param) {
  const auto length = static_cast<int64_t>(prompt.size());
  const int64_t room = model.max_seq_len - length;
  if (room < 1) {
    return ApiError{400,
                    fmt::format("This model's maximum context length is {} tokens, but the prompt "
                                "has {} tokens and needs room for at least 1 more",
                                model.max_seq_len, length),
                    std::string(param), "context_length_exceeded"};
  }
  const int64_t wanted = sampling.max_tokens.value_or(room);
  if (wanted > room) {
    return ApiError{400,
                    fmt::format("This model's maximum context length is {} tokens, but {} were "
                                "requested: {} in the prompt and {} in max_tokens",
                                model.max_seq_len, length + wanted, length, wanted),
                    std::string(param), "context_length_exceeded"};
  }
  const int32_t vocab = model.tokenizer->vocab_size();
  for (const int32_t id : prompt) {
    if (id >= vocab) {
      return ApiError{400, fmt::format("token id {} is not in [0, {})", id, vocab),
                      std::string(param), ""};
    }
  }
  return wanted;
}

Generation::Generation(std::shared_ptr<const LanguageModel> model, const SamplingOptions& sampling,
                       OnPiece on_piece)
    : model_(std::move(model)),
      sampling_(sampling),
      on_piece_(std::move(on_piece)),
      detokenizer_(model_->tokenizer, sampling.skip_special_tokens),
      stops_(sampling.stop) {}

StatusOr<InferenceSpec> Generation::build_request(const std::vector<int32_t>& prompt) const {
  InferenceSpec spec;
  spec.model = model_->engine_name;
  Inputs inputs(model_->engine, spec);
  const auto length = static_cast<int64_t>(prompt.size());
  inputs.add("input_ids", {length}, prompt);
  inputs.scalar("input_lengths", static_cast<int32_t>(length));
  inputs.scalar("request_output_len", static_cast<int32_t>(max_tokens_));
  inputs.scalar("streaming", static_cast<uint8_t>(model_->decoupled));
  inputs.scalar(kExcludeInput, uint8_t{1}, /*optional=*/true);
  std::vector<int32_t> stop_ids = sampling_.stop_token_ids;
  if (!sampling_.ignore_eos && !model_->eos_ids.empty()) {
    inputs.scalar("end_id", model_->eos_ids[0]);
    stop_ids.insert(stop_ids.end(), model_->eos_ids.begin() + 1, model_->eos_ids.end());
  } else {
    inputs.scalar("end_id", int32_t{-1});
  }
  if (!stop_ids.empty()) {
    inputs.add("stop_words_list", {2, static_cast<int64_t>(stop_ids.size())},
               one_token_words(stop_ids));
  }
  if (sampling_.min_tokens > 0) {
    inputs.scalar("min_length", static_cast<int32_t>(sampling_.min_tokens));
  }
  if (sampling_.temperature == 0) {
    inputs.scalar("runtime_top_k", int32_t{1});
  } else {
    inputs.scalar("temperature", static_cast<float>(sampling_.temperature));
    inputs.scalar("runtime_top_k", static_cast<int32_t>(sampling_.top_k));
    inputs.scalar("runtime_top_p", static_cast<float>(sampling_.top_p));
    inputs.scalar("random_seed", sampling_.seed ? *sampling_.seed : random_seed());
  }
  RETURN_IF_ERROR(inputs.status());
  return spec;
}

StatusOr<std::shared_ptr<Generation>> Generation::start(
    TRITONSERVER_Server* server, std::shared_ptr<const LanguageModel> model, ExchangePtr exchange,
    std::vector<int32_t> prompt, const SamplingOptions& sampling, OnPiece on_piece) {
  std::shared_ptr<Generation> self(new Generation(std::move(model), sampling, std::move(on_piece)));
  self->num_prompt_tokens_ = prompt.size();
  self->max_tokens_ =
      sampling.max_tokens.value_or(self->model_->max_seq_len - static_cast<int64_t>(prompt.size()));
  ASSIGN_OR_RETURN(InferenceSpec spec, self->build_request(prompt));
  auto on_reply = [self, exchange](InferenceReply reply) {
    auto shared = std::make_shared<const InferenceReply>(std::move(reply));
    exchange->post([self, shared] { self->take(*shared); });
  };
  ASSIGN_OR_RETURN(self->call_, InferenceCall::start(server, std::move(spec), std::move(on_reply)));
  return self;
}

void Generation::cancel() {
  if (std::exchange(done_, true)) return;
  on_piece_ = nullptr;
  call_->cancel();
}

// Without streaming the one response repeats the prompt; with it each has the new tokens only.
StatusOr<std::vector<int32_t>> Generation::new_tokens(const InferenceReply& reply) const {
  const Tensor* ids = reply.output("output_ids");
  if (ids == nullptr) return std::vector<int32_t>();
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, elements<int32_t>(*ids));
  if (const Tensor* lengths = reply.output("sequence_length")) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> length, elements<int32_t>(*lengths));
    if (!length.empty() && length[0] >= 0 && static_cast<size_t>(length[0]) < tokens.size()) {
      tokens.resize(static_cast<size_t>(length[0]));
    }
  }
  if (!model_->decoupled && model_->engine.input(kExcludeInput) == nullptr) {
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(
                                                      std::min(num_prompt_tokens_, tokens.size())));
  }
  return tokens;
}

bool Generation::push_token(int32_t id, Piece& piece) {
  ++num_tokens_;
  const auto& stop_ids = sampling_.stop_token_ids;
  const auto& eos_ids = model_->eos_ids;
  const bool is_stop = std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end();
  const bool is_eos =
      !sampling_.ignore_eos && std::find(eos_ids.begin(), eos_ids.end(), id) != eos_ids.end();
  if ((is_stop || is_eos) && num_tokens_ > sampling_.min_tokens) {
    if (is_stop) piece.stop_reason = id;
    if (is_stop && sampling_.include_stop_text) {
      piece.text += stops_.push(detokenizer_.push(id), false).text;
    }
    piece.finish_reason = "stop";
    return true;
  }
  const text::StopStrings::Out out = stops_.push(detokenizer_.push(id), false);
  piece.text += out.text;
  if (!out.stopped) return false;
  const std::string& matched = sampling_.stop[out.which];
  if (sampling_.include_stop_text) piece.text += matched;
  piece.stop_reason = matched;
  piece.finish_reason = "stop";
  return true;
}

void Generation::take(const InferenceReply& reply) {
  if (done_) return;
  Piece piece;
  if (!reply.status.ok()) {
    piece.status = reply.status;
    piece.done = true;
    emit(std::move(piece));
    if (!reply.final) call_->cancel();
    return;
  }
  const StatusOr<std::vector<int32_t>> tokens = new_tokens(reply);
  if (!tokens.ok()) {
    piece.status = tokens.status();
    piece.done = true;
    emit(std::move(piece));
    call_->cancel();
    return;
  }
  for (const int32_t id : *tokens) {
    if (!push_token(id, piece)) continue;
    // Found here; whatever the engine still does for it is not wanted.
    if (!reply.final) call_->cancel();
    finish(reply, std::move(piece));
    return;
  }
  if (reply.final) {
    finish(reply, std::move(piece));
  } else {
    piece.num_tokens = num_tokens_;
    emit(std::move(piece));
  }
}

void Generation::finish(const InferenceReply& reply, Piece piece) {
  piece.done = true;
  if (!piece.stop_reason.is_string()) {
    // No stop string ended it, so text that was held back is safe.
    piece.text += stops_.push(detokenizer_.finish(), true).text;
  }
  if (piece.finish_reason.empty()) {
    const std::string* reason = reply.string_parameter("nereid_finish_reason");
    if (reason == nullptr) {
      piece.finish_reason = num_tokens_ < max_tokens_ ? "stop" : "length";
    } else if (*reason == "end_id") {
      ++num_tokens_;  // the end token is generated but not part of the output
      piece.finish_reason = "stop";
    } else {
      piece.finish_reason = *reason == "stop_words" ? "stop" : *reason;
    }
  }
  piece.num_tokens = num_tokens_;
  emit(std::move(piece));
}

void Generation::emit(Piece piece) {
  if (!piece.done) {
    on_piece_(std::move(piece));
    return;
  }
  done_ = true;
  // The callback refers back to the owner of this generation.
  const OnPiece on_piece = std::exchange(on_piece_, nullptr);
  on_piece(std::move(piece));
}

}  // namespace nereid::front
