// The steps of a BLS request: preprocessing, generating model, postprocessing.
#include "backend/bls/bls_run.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/copy_bytes.h"

namespace nereid::backend {
namespace {

using Rename = BlsRun::Rename;

constexpr Rename kToPreprocessing[] = {{"text_input", "QUERY"},
                                       {"max_tokens", "REQUEST_OUTPUT_LEN"},
                                       {"bad_words", "BAD_WORDS_DICT"},
                                       {"stop_words", "STOP_WORDS_DICT"},
                                       {"decoder_text_input", "DECODER_QUERY"},
                                       {"src_lang", "SRC_LANG"},
                                       {"tgt_lang", "TGT_LANG"},
                                       {"embedding_bias_words", "EMBEDDING_BIAS_WORDS"},
                                       {"embedding_bias_weights", "EMBEDDING_BIAS_WEIGHTS"},
                                       {"image_bytes_input", "IMAGE_BYTES"},
                                       {"image_url_input", "IMAGE_URL"}};

// end_id and pad_id pass through the preprocessing model where it has these inputs; models
// of v0.7 have none.
constexpr Rename kIds[] = {{"end_id", "END_ID"}, {"pad_id", "PAD_ID"}};

constexpr Rename kPreprocessedToLlm[] = {{"INPUT_ID", "input_ids"},
                                         {"REQUEST_INPUT_LEN", "input_lengths"},
                                         {"DECODER_INPUT_ID", "decoder_input_ids"},
                                         {"REQUEST_DECODER_INPUT_LEN", "decoder_input_lengths"},
                                         {"BAD_WORDS_IDS", "bad_words_list"},
                                         {"STOP_WORDS_IDS", "stop_words_list"},
                                         {"STOP_STRINGS", "stop_strings"},
                                         {"EMBEDDING_BIAS", "embedding_bias"},
                                         {"REQUEST_OUTPUT_LEN", "request_output_len"},
                                         {"IMAGE_PATCHES", "image_patches"},
                                         {"IMAGE_GRIDS", "image_grids"},
                                         {"IMAGE_TOKEN_SPANS", "image_token_spans"},
                                         {"IMAGE_TILES", "image_tiles"},
                                         {"OUT_PROMPT_TABLE_EXTRA_IDS", "prompt_table_extra_ids"},
                                         {"OUT_END_ID", "end_id"},
                                         {"OUT_PAD_ID", "pad_id"}};

constexpr Rename kToLlm[] = {{"num_return_sequences", "num_return_sequences"},
                             {"best_of", "best_of"},
                             {"exclude_input_in_output", "exclude_input_in_output"},
                             {"top_k", "runtime_top_k"},
                             {"top_p", "runtime_top_p"},
                             {"top_p_min", "runtime_top_p_min"},
                             {"top_p_decay", "runtime_top_p_decay"},
                             {"top_p_reset_ids", "runtime_top_p_reset_ids"},
                             {"min_p", "min_p"},
                             {"temperature", "temperature"},
                             {"temperature_last", "temperature_last"},
                             {"repetition_penalty", "repetition_penalty"},
                             {"presence_penalty", "presence_penalty"},
                             {"frequency_penalty", "frequency_penalty"},
                             {"prompt_ignore_length", "prompt_ignore_length"},
                             {"no_repeat_ngram_size", "no_repeat_ngram_size"},
                             {"length_penalty", "len_penalty"},
                             {"len_penalty", "len_penalty"},
                             {"early_stopping", "early_stopping"},
                             {"beam_search_diversity_rate", "beam_search_diversity_rate"},
                             {"min_length", "min_length"},
                             {"min_tokens", "min_tokens"},
                             {"random_seed", "random_seed"},
                             {"seed", "seed"},
                             {"return_log_probs", "return_log_probs"},
                             {"num_top_log_probs", "num_top_log_probs"},
                             {"raw_log_probs", "raw_log_probs"},
                             {"return_context_logits", "return_context_logits"},
                             {"return_generation_logits", "return_generation_logits"},
                             {"return_perf_metrics", "return_perf_metrics"},
                             {"return_kv_cache_reuse_stats", "return_kv_cache_reuse_stats"},
                             {"return_num_input_tokens", "return_num_input_tokens"},
                             {"return_num_output_tokens", "return_num_output_tokens"},
                             {"beam_width", "beam_width"},
                             {"stream", "streaming"},
                             {"streaming", "streaming"},
                             {"priority", "priority"},
                             {"allotted_time_ms", "allotted_time_ms"},
                             {"cache_salt", "cache_salt"},
                             {"prompt_embedding_table", "prompt_embedding_table"},
                             {"prompt_vocab_size", "prompt_vocab_size"},
                             {"lora_task_id", "lora_task_id"},
                             {"lora_weights", "lora_weights"},
                             {"lora_config", "lora_config"},
                             {"guided_decoding_guide_type", "guided_decoding_guide_type"},
                             {"guided_decoding_guide", "guided_decoding_guide"}};

// Outputs of the preprocessing model that the model of pictures' encoders takes; other models of
// pictures than LLaVA have the later ones.
constexpr Rename kPreprocessedToEncoders[] = {{"PIXEL_VALUES", "pixel_values"},
                                              {"REQUEST_OUTPUT_LEN", "max_tokens"},
                                              {"ASPECT_RATIO_IDS", "aspect_ratio_ids"},
                                              {"ASPECT_RATIO_MASK", "aspect_ratio_mask"},
                                              {"CROSS_ATTENTION_MASK", "cross_attention_mask"},
                                              {"ATTENTION_MASK", "attention_mask"},
                                              {"IMAGE_GRID_THW", "image_grid_thw"},
                                              {"IMAGE_SIZES", "image_sizes"},
                                              {"IS_VIDEO_INPUT", "is_video_input"},
                                              {"VISION_INPUT_ID", "vision_input_id"}};

constexpr Rename kEncodedToLlm[] = {{"OUT_PROMPT_EMBEDDING_TABLE", "prompt_embedding_table"},
                                    {"OUT_PROMPT_VOCAB_SIZE", "prompt_vocab_size"},
                                    {"ENCODER_INPUT_FEATURES", "encoder_input_features"},
                                    {"ENCODER_OUTPUT_LENGTHS", "encoder_output_lengths"},
                                    {"CROSS_ATTENTION_MASK", "cross_attention_mask"},
                                    {"SKIP_CROSS_ATTN_BLOCKS", "skip_cross_attn_blocks"},
                                    {"MROPE_ROTARY_COS_SIN", "mrope_rotary_cos_sin"},
                                    {"MROPE_POSITION_DELTAS", "mrope_position_deltas"}};

// Outputs of the generating model that postprocessing models of v0.6 to v0.13 take, some
// as mandatory inputs.
constexpr Rename kGeneratedToText[] = {{"cum_log_probs", "CUM_LOG_PROBS"},
                                       {"output_log_probs", "OUTPUT_LOG_PROBS"},
                                       {"context_logits", "CONTEXT_LOGITS"},
                                       {"generation_logits", "GENERATION_LOGITS"},
                                       {"batch_index", "BATCH_INDEX"}};

// Inputs declared only so that a request with one is refused by name.
constexpr const char* kRefused[] = {"video_bytes_input", "prompt_table_extra_id"};

Status refuse_unsupported(const Request& request, bool has_encoders) {
  const auto is_given = [&](const char* name) -> StatusOr<bool> {
    ASSIGN_OR_RETURN(const auto view, request.input(name));
    return view && !view->bytes.empty();
  };
  for (const char* name : kRefused) {
    ASSIGN_OR_RETURN(const bool given, is_given(name));
    if (given) return unsupported("input '{}' is not supported", name);
  }
  ASSIGN_OR_RETURN(const bool has_pixels, is_given("image_input"));
  if (has_pixels && !has_encoders)
    return unsupported(
        "input 'image_input' is not supported without a model that encodes pictures; the parameter "
        "multimodal_encoders_name names one, and 'image_bytes_input' and 'image_url_input' need "
        "none");
  return ok();
}

// The value of a [1, 1] INT32 output; 0 when the reply has none.
uint32_t index_of(const Reply& reply, std::string_view name) {
  const Output* output = find_output(reply.outputs, name);
  int32_t value = 0;
  if (output != nullptr && output->bytes.size() == sizeof(value)) {
    std::memcpy(&value, output->bytes.data(), sizeof(value));
  }
  return static_cast<uint32_t>(std::max(value, 0));
}

}  // namespace

BlsRun::BlsRun(const BlsSettings& settings, std::unique_ptr<Request> request, std::string id,
               std::function<void()> on_over)
    : settings_(settings),
      request_(std::move(request)),
      responder_(*request_),
      id_(std::move(id)),
      on_over_(std::move(on_over)),
      start_ns_(now_ns()) {}

template <class Event>
void BlsRun::post(Event event) {
  events_.post([self = shared_from_this(), event = std::move(event)]() mutable {
    const Status status = guarded([&] {
      event();
      return ok();
    });
    if (!status.ok()) self->fail(status);
    self->finish_if_over();
  });
}

void BlsRun::start() {
  post([this] {
    if (Status status = read(); !status.ok()) return fail(status);
    call("preprocessing", std::move(for_preprocessing_), &BlsRun::on_preprocessed);
  });
}

Status BlsRun::read() {
  const bool has_encoders = !settings_.encoders_model.empty();
  RETURN_IF_ERROR(refuse_unsupported(*request_, has_encoders));
  ASSIGN_OR_RETURN(const auto text, request_->strings("text_input"));
  if (!text || text->empty()) return invalid_argument("text_input is required");
  if (text->size() != 1 && !settings_.decoupled) {
    return invalid_argument(
        "text_input has a batch of {}: more than one needs a model that is deployed using "
        "decoupled mode",
        text->size());
  }
  prompts_ = *text;
  const Item first(*request_, 0, static_cast<int64_t>(prompts_.size()));
  ASSIGN_OR_RETURN(const auto max_tokens, request_->values<int32_t>("max_tokens"));
  if (!max_tokens || max_tokens->size() != prompts_.size() ||
      *std::min_element(max_tokens->begin(), max_tokens->end()) <= 0) {
    return invalid_argument("max_tokens must be a single value > 0");
  }
  for (const char* name : {"stream", "streaming"}) {
    ASSIGN_OR_RETURN(const auto stream, first.scalar<bool>(name));
    streaming_ = streaming_ || stream.value_or(false);
  }
  if (streaming_ && !settings_.decoupled) {
    return invalid_argument(
        "Streaming is only supported if model is deployed using decoupled mode.");
  }
  ASSIGN_OR_RETURN(const auto exclude, first.scalar<bool>("exclude_input_in_output"));
  exclude_input_ = exclude;
  ASSIGN_OR_RETURN(draft_options_, DraftLoop::wish(first));
  if (draft_options_.num_drafts > 0 && settings_.draft_model.empty()) {
    return unsupported(
        "input 'num_draft_tokens' is {}: cannot perform speculative decoding without draft model; "
        "the parameter tensorrt_llm_draft_model_name names one",
        draft_options_.num_drafts);
  }
  if (draft_options_.num_drafts > 0 && has_encoders)
    return unsupported("Multimodal and speculative decoding is not currently supported");
  RETURN_IF_ERROR(read_lists());
  const auto collect = [&](const Rename& rename, std::vector<Output>& to) -> Status {
    ASSIGN_OR_RETURN(const auto view, request_->input(rename.from));
    // Two names for the same input: the first counts.
    if (view && find_output(to, rename.to) == nullptr)
      to.push_back({rename.to, view->datatype, view->shape, std::string(view->bytes)});
    return ok();
  };
  for (const auto& rename : kToPreprocessing) RETURN_IF_ERROR(collect(rename, for_preprocessing_));
  for (const auto& rename : kIds) {
    const bool is_taken = settings_.callees->has_input("preprocessing", rename.to);
    RETURN_IF_ERROR(is_taken ? collect(rename, for_preprocessing_)
                             : collect({rename.from, rename.from}, for_llm_));
  }
  for (const auto& rename : kToLlm) RETURN_IF_ERROR(collect(rename, for_llm_));
  if (has_encoders) RETURN_IF_ERROR(collect({"image_input", "IMAGE"}, for_encoders_));
  return ok();
}

// Reads the stop words of each item and the number of streams.
Status BlsRun::read_lists() {
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const Item item(*request_, static_cast<int64_t>(i), static_cast<int64_t>(prompts_.size()));
    ASSIGN_OR_RETURN(auto words, item.strings("stop_words"));
    if (words) std::erase(*words, "");
    stop_words_.push_back(words ? *std::move(words) : std::vector<std::string>());
    ASSIGN_OR_RETURN(const auto beams, item.scalar<int32_t>("beam_width"));
    ASSIGN_OR_RETURN(const auto sequences, item.scalar<int32_t>("num_return_sequences"));
    // A request with beams is one stream, whatever the number of beams.
    num_streams_ += beams.value_or(1) > 1 ? 1 : static_cast<size_t>(sequences.value_or(1));
  }
  return ok();
}

void BlsRun::call(const std::string& model, std::vector<Output> inputs,
                  void (BlsRun::*on_reply)(Reply)) {
  if (responder_.is_cancelled()) return fail(cancelled("request was cancelled"));
  // Gives inputs their declared rank: an input that the configuration reshapes arrives
  // with fewer dimensions.
  for (Output& input : inputs) {
    const size_t rank = settings_.callees->input(model, input.name).value_or(CalleeInput()).rank;
    if (input.shape.size() < rank) input.shape.resize(rank, 1);
  }
  auto self = shared_from_this();
  auto started = InferCall::start(
      settings_.server, model, id_, request_->tenant(), std::move(inputs),
      [self, on_reply](Reply reply) {
        auto shared = std::make_shared<Reply>(std::move(reply));
        self->post([self, on_reply, shared] { ((*self).*on_reply)(std::move(*shared)); });
      });
  if (!started.ok()) return fail(started.status());
  const bool is_llm = on_reply == &BlsRun::on_generated || on_reply == &BlsRun::on_draft ||
                      on_reply == &BlsRun::on_tested;
  (is_llm ? llm_ : current_) = *std::move(started);
}

Status BlsRun::pass_on(const std::vector<Output>& outputs, std::span<const Rename> renames,
                       const std::string& model, std::vector<Output>& inputs) {
  for (const Rename& rename : renames) {
    const Output* output = find_output(outputs, rename.from);
    if (output == nullptr) continue;
    if (!settings_.callees->has_input(model, rename.to)) {
      if (output->name == "IMAGE_PATCHES" || output->name == "OUT_PROMPT_EMBEDDING_TABLE")
        return unsupported("model '{}' has no input '{}' for pictures", model, rename.to);
      continue;
    }
    RETURN_IF_ERROR(request_->hold(output->bytes.size()));
    // A model's output replaces an input of the client.
    std::erase_if(inputs, [&](const Output& input) { return input.name == rename.to; });
    inputs.push_back({rename.to, output->datatype, output->shape, output->bytes});
  }
  return ok();
}

void BlsRun::on_preprocessed(Reply reply) {
  current_.reset();
  if (failed_) return;
  if (!reply.status.ok()) return fail(reply.status);
  if (Status s = pass_on(reply.outputs, kPreprocessedToLlm, settings_.llm_model, for_llm_); !s.ok())
    return fail(s);
  // The generating model encodes patches itself.
  const bool has_patches = find_output(reply.outputs, "IMAGE_PATCHES") != nullptr;
  if (settings_.encoders_model.empty() || has_patches) return generate();
  if (Status s =
          pass_on(reply.outputs, kPreprocessedToEncoders, settings_.encoders_model, for_encoders_);
      !s.ok())
    return fail(s);
  call(settings_.encoders_model, std::move(for_encoders_), &BlsRun::on_encoded);
}

void BlsRun::on_encoded(Reply reply) {
  current_.reset();
  if (failed_) return;
  if (!reply.status.ok()) return fail(reply.status);
  if (Status s = pass_on(reply.outputs, kEncodedToLlm, settings_.llm_model, for_llm_); !s.ok())
    return fail(s);
  generate();
}

void BlsRun::generate() {
  llm_over_ = false;
  if (draft_options_.num_drafts == 0) {
    return call(settings_.llm_model, std::move(for_llm_), &BlsRun::on_generated);
  }
  auto loop = DraftLoop::create(std::move(for_llm_), draft_options_,
                                settings_.prompt_rule(settings_.llm_model),
                                settings_.prompt_rule(settings_.draft_model));
  if (!loop.ok()) return fail(loop.status());
  drafts_ = *std::move(loop);
  next_draft();
}

void BlsRun::next_draft() {
  if (drafts_->wants_draft()) {
    call(settings_.draft_model, drafts_->draft_inputs(), &BlsRun::on_draft);
  } else {
    call(settings_.llm_model, drafts_->target_inputs(), &BlsRun::on_tested);
  }
}

// Whether the last call is complete; its outputs are then in `answer_`.
bool BlsRun::take_answer(Reply& reply) {
  if (reply.is_final) llm_.reset();
  if (failed_) return false;
  if (!reply.status.ok()) {
    fail(reply.status);
    return false;
  }
  if (reply.has_content) answer_ = std::move(reply.outputs);
  return reply.is_final;
}

void BlsRun::on_draft(Reply reply) {
  if (!take_answer(reply)) return;
  if (Status s = drafts_->take_draft(std::exchange(answer_, {})); !s.ok()) return fail(s);
  call(settings_.llm_model, drafts_->target_inputs(), &BlsRun::on_tested);
}

void BlsRun::on_tested(Reply reply) {
  if (!take_answer(reply)) return;
  if (Status s = drafts_->take_tokens(std::exchange(answer_, {})); !s.ok()) return fail(s);
  if (!drafts_->is_over()) return next_draft();
  llm_over_ = true;
  generated_ns_ = now_ns();
  Reply whole;
  whole.outputs = drafts_->outputs(
      !exclude_input_.value_or(settings_.callees->excludes_prompt(settings_.llm_model)));
  whole.is_final = whole.has_content = true;
  replies_.push_back(std::move(whole));
  next_text();
}

void BlsRun::on_generated(Reply reply) {
  if (reply.is_final) {
    llm_over_ = true;
    llm_.reset();
    generated_ns_ = now_ns();
  }
  if (failed_ || is_stopped_) return;
  if (!reply.status.ok()) return fail(reply.status);
  if (reply.has_content) replies_.push_back(std::move(reply));
  next_text();
}

void BlsRun::next_text() {
  if (failed_ || in_postprocessing_ || replies_.empty()) return;
  auto inputs = text_inputs(replies_.front());
  if (!inputs.ok()) return fail(inputs.status());
  for (const auto& rename : kGeneratedToText) {
    const Output* output = find_output(replies_.front().outputs, rename.from);
    if (output == nullptr || !settings_.callees->has_input("postprocessing", rename.to)) continue;
    inputs->push_back({rename.to, output->datatype, output->shape, output->bytes});
  }
  in_postprocessing_ = true;
  call("postprocessing", *std::move(inputs), &BlsRun::on_text);
}

StatusOr<std::vector<Output>> BlsRun::text_inputs(const Reply& reply) {
  const Output* ids = find_output(reply.outputs, "output_ids");
  const Output* lengths = find_output(reply.outputs, "sequence_length");
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
  auto& tokens = accumulated_[{index_of(reply, "batch_index"), index_of(reply, "sequence_index")}];
  const size_t begin = tokens.size();
  tokens.resize(begin + ids->bytes.size() / sizeof(int32_t));
  copy_bytes(tokens.data() + begin, ids->bytes.data(), ids->bytes.size());
  const auto length = static_cast<int32_t>(tokens.size());
  inputs.push_back(make_output("TOKENS_BATCH", {1, 1, length}, tokens));
  inputs.push_back(make_output("SEQUENCE_LENGTH", {1, 1}, std::vector<int32_t>{length}));
  return inputs;
}

// Cuts the text of a stream behind its first stop word. Text may follow a stop word: the rest of
// the token that completed it, or more where the generating model compares only tokens.
Status BlsRun::cut_at_stop_words(const Stream& stream, Output& text) {
  if (stop_words_[stream.first].empty()) return ok();
  const InputView view{text.datatype, text.shape, text.bytes, nullptr};
  ASSIGN_OR_RETURN(const auto parts, strings_of(text.name, view));
  // Responses with beams or accumulated tokens hold the whole text, others the next piece.
  const bool is_whole = !streaming_ || settings_.accumulate_tokens || parts.size() > 1;
  size_t num_ended = 0;
  std::vector<std::string> cut;
  for (std::string_view part : parts) {
    num_ended += ends_at_stop_word(stream, is_whole, part);
    cut.emplace_back(part);
  }
  text = make_output(text.name, text.shape, cut);
  if (streaming_ && num_ended == parts.size()) stopped_.insert(stream);
  return ok();
}

// Whether `part` contains a stop word; cuts `part` behind the one that is complete first.
bool BlsRun::ends_at_stop_word(const Stream& stream, bool is_whole, std::string_view& part) {
  const auto& words = stop_words_[stream.first];
  size_t from = 0;
  if (!streaming_) {
    // Unless the client sends the flag, the generating model's default decides.
    const std::string& prompt = prompts_[stream.first];
    const bool excluded = exclude_input_.value_or(!part.starts_with(prompt));
    from = excluded ? 0 : std::min(prompt.size(), part.size());
  }
  text::StopStrings fresh;
  text::StopStrings* matcher = &fresh;
  if (is_whole) {
    fresh = text::StopStrings(words);
  } else {
    matcher = &matchers_.try_emplace(stream, words).first->second;
  }
  for (size_t i = from; i < part.size(); ++i) {
    if (!matcher->push(part.substr(i, 1), false).stopped) continue;
    part = part.substr(0, i + 1);
    return true;
  }
  return false;
}

// Cancels the generating call; later replies of it, its cancellation error included, are dropped.
void BlsRun::stop_generating() {
  is_stopped_ = true;
  replies_.clear();
  if (llm_ != nullptr) llm_->cancel();
}

void BlsRun::on_text(Reply reply) {
  in_postprocessing_ = false;
  current_.reset();
  if (failed_) return;
  if (!reply.status.ok()) return fail(reply.status);
  const Reply generated = std::move(replies_.front());
  replies_.pop_front();
  const auto last = static_cast<uint32_t>(prompts_.size() - 1);
  const Stream stream = {std::min(index_of(generated, "batch_index"), last),
                         index_of(generated, "sequence_index")};
  if (stopped_.contains(stream)) return next_text();
  std::vector<Output> outputs;
  for (auto& output : reply.outputs) {
    if (output.name != "OUTPUT" || !request_->wants_output("text_output")) continue;
    output.name = "text_output";
    if (Status s = cut_at_stop_words(stream, output); !s.ok()) return fail(s);
    outputs.push_back(std::move(output));
  }
  for (const auto& output : generated.outputs) {
    if (output.name == "output_ids" || output.name == "sequence_length") continue;
    if (request_->wants_output(output.name)) outputs.push_back(output);
  }
  set_times();
  // A decoupled model sends FINAL in a response of its own.
  if (Status s = responder_.send(outputs, !settings_.decoupled); !s.ok()) return fail(s);
  if (stopped_.size() == num_streams_) stop_generating();
  next_text();
}

void BlsRun::check_cancelled() {
  if (!responder_.is_cancelled()) return;
  post([this] {
    if (is_cancelled_ || over_) return;
    is_cancelled_ = true;
    if (current_ != nullptr) current_->cancel();
    if (llm_ != nullptr) llm_->cancel();
  });
}

void BlsRun::fail(const Status& status) {
  if (failed_) return;
  failed_ = true;
  set_times();
  responder_.fail(status);
  replies_.clear();
  if (current_ != nullptr) current_->cancel();
  if (llm_ != nullptr) llm_->cancel();
}

void BlsRun::set_times() {
  request_->set_times(start_ns_, generated_ns_ == 0 ? now_ns() : generated_ns_);
}

void BlsRun::finish_if_over() {
  if (over_ || current_ != nullptr || llm_ != nullptr) return;
  if (!failed_ && (!llm_over_ || !replies_.empty())) return;
  over_ = true;
  set_times();
  if (!failed_ && !responder_.is_final()) {
    if (settings_.decoupled) {
      responder_.finish();
    } else {
      responder_.fail(internal_error("model '{}' gave no response", settings_.llm_model));
    }
  }
  on_over_();
  request_->release();
}

}  // namespace nereid::backend
