// The calls of speculation with a draft model, and their replies.
#include "backend/bls/draft_loop.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "backend/common/infer_call.h"

namespace nereid::backend {
namespace {

// Inputs whose meaning is lost when a request is divided into several calls.
struct Excluded {
  const char* name;
  const char* why;
};
constexpr Excluded kExcluded[] = {
    {"stream", "streaming is not supported with speculative decoding"},
    {"streaming", "streaming is not supported with speculative decoding"},
    {"return_context_logits", "context logits are not supported with speculative decoding"},
    {"return_generation_logits", "generation logits are not supported with speculative decoding"},
    {"return_log_probs", "log-probabilities are not supported with speculative decoding"},
    {"num_top_log_probs", "log-probabilities are not supported with speculative decoding"},
    {"top_p_decay", "it depends on how many tokens one call has generated"},
    {"prompt_ignore_length", "it depends on where the prompt of one call ends"},
    {"min_tokens", "it depends on how many tokens one call has generated"},
    {"allotted_time_ms", "it is the time of one call"},
    {"prompt_embedding_table", "multimodal and speculative decoding is not supported"},
    {"guided_decoding_guide", "guides and drafts exclude each other"}};
// Inputs that may only be 1: speculation runs on one sequence.
constexpr const char* kSingle[] = {"beam_width", "num_return_sequences", "best_of"};
// Inputs of the generating model alone: the draft model has other adapters, and its
// metrics are not read.
constexpr std::string_view kTargetOnly[] = {"lora_task_id", "lora_weights", "lora_config",
                                            "return_perf_metrics"};

bool is_zero(const InputView& view) {
  return std::ranges::all_of(view.bytes, [](char c) { return c == 0; });
}

StatusOr<std::vector<int32_t>> ints(const std::vector<Output>& tensors, std::string_view name) {
  const Output* tensor = find_output(tensors, name);
  if (tensor == nullptr) return internal_error("there is no '{}' for speculative decoding", name);
  return values_of<int32_t>(name, {tensor->datatype, tensor->shape, tensor->bytes, nullptr});
}

StatusOr<int32_t> one_int(const std::vector<Output>& tensors, std::string_view name) {
  ASSIGN_OR_RETURN(const auto values, ints(tensors, name));
  if (values.size() != 1) {
    return internal_error("'{}' has {} elements for speculative decoding, expected 1", name,
                          values.size());
  }
  return values.front();
}

Output scalar(const char* name, int32_t value) {
  return make_output(name, {1, 1}, std::vector<int32_t>{value});
}

Output flag(const char* name, bool value) {
  return {name, TRITONSERVER_TYPE_BOOL, {1, 1}, std::string(1, value ? '\1' : '\0')};
}

// The words of a [1, 2, n] tensor: row 0 tokens, row 1 the end of each word, -1 as padding.
StatusOr<std::vector<std::vector<int32_t>>> words_of(const std::vector<Output>& inputs) {
  std::vector<std::vector<int32_t>> words;
  if (find_output(inputs, "stop_words_list") == nullptr) return words;
  ASSIGN_OR_RETURN(const auto list, ints(inputs, "stop_words_list"));
  const auto width = static_cast<int32_t>(list.size() / 2);
  for (int32_t i = 0, begin = 0; i < width; ++i) {
    const int32_t end = list[static_cast<size_t>(width + i)];
    if (end <= begin || end > width) break;
    words.emplace_back(list.begin() + begin, list.begin() + end);
    begin = end;
  }
  return words;
}

}  // namespace

StatusOr<DraftLoop::DraftOptions> DraftLoop::wish(const Item& item) {
  ASSIGN_OR_RETURN(const auto num_drafts, item.scalar<int32_t>("num_draft_tokens"));
  ASSIGN_OR_RETURN(const auto logits, item.scalar<bool>("use_draft_logits"));
  const bool with_logits = logits.value_or(false);
  if (num_drafts.value_or(0) == 0) {
    if (!with_logits) return DraftOptions();
    return invalid_argument("input 'use_draft_logits' needs 'num_draft_tokens' above 0");
  }
  if (*num_drafts < 0) {
    return invalid_argument("input 'num_draft_tokens' is {}, expected at least 0", *num_drafts);
  }
  if (item.batch() != 1) {
    return invalid_argument("input 'num_draft_tokens': a batch of {} is not allowed, only of 1",
                            item.batch());
  }
  for (const auto& [name, why] : kExcluded) {
    ASSIGN_OR_RETURN(const auto view, item.input(name));
    if (!view || is_zero(*view)) continue;
    if (name == std::string_view("top_p_decay")) {
      ASSIGN_OR_RETURN(const auto decay, item.scalar<float>(name));
      if (decay.value_or(1) == 1) continue;
    }
    return unsupported("input '{}' is not allowed with num_draft_tokens {}: {}", name, *num_drafts,
                       why);
  }
  for (const char* name : kSingle) {
    ASSIGN_OR_RETURN(const auto value, item.scalar<int32_t>(name));
    if (value.value_or(1) <= 1) continue;
    return unsupported("input '{}' is {}, only 1 is allowed with num_draft_tokens {}", name, *value,
                       *num_drafts);
  }
  return DraftOptions{*num_drafts, with_logits};
}

StatusOr<DraftLoop> DraftLoop::create(std::vector<Output> llm_inputs, const DraftOptions& wish,
                                      const PromptRule& target, const PromptRule& draft) {
  DraftLoop loop;
  loop.draft_options_ = wish;
  loop.target_rule_ = target;
  loop.draft_rule_ = draft;
  ASSIGN_OR_RETURN(loop.ids_, ints(llm_inputs, "input_ids"));
  ASSIGN_OR_RETURN(const int32_t length, one_int(llm_inputs, "input_lengths"));
  if (length < 0 || static_cast<size_t>(length) > loop.ids_.size()) {
    return internal_error("input_lengths is {} for {} input_ids", length, loop.ids_.size());
  }
  loop.ids_.resize(static_cast<size_t>(length));
  loop.num_prompt_ = loop.ids_.size();
  ASSIGN_OR_RETURN(loop.max_tokens_, one_int(llm_inputs, "request_output_len"));
  if (find_output(llm_inputs, "min_length") != nullptr) {
    ASSIGN_OR_RETURN(loop.min_length_, one_int(llm_inputs, "min_length"));
  }
  ASSIGN_OR_RETURN(loop.stop_words_, words_of(llm_inputs));
  std::erase_if(llm_inputs, [](const Output& input) {
    constexpr std::string_view kOwn[] = {"input_ids", "input_lengths", "request_output_len",
                                         "min_length", "exclude_input_in_output"};
    return std::ranges::find(kOwn, input.name) != std::end(kOwn);
  });
  loop.common_ = std::move(llm_inputs);
  return loop;
}

std::vector<Output> DraftLoop::inputs(int32_t num_tokens, const PromptRule& rule) const {
  const auto length = static_cast<int32_t>(ids_.size());
  std::vector<Output> inputs = common_;
  inputs.push_back(make_output("input_ids", {1, length}, ids_));
  inputs.push_back(scalar("input_lengths", length));
  inputs.push_back(scalar("request_output_len", num_tokens));
  if (rule.has_input) inputs.push_back(flag("exclude_input_in_output", true));
  return inputs;
}

// The generated tokens of a reply to a call that was made of `ids_`.
StatusOr<std::vector<int32_t>> DraftLoop::tokens_of(const std::vector<Output>& outputs,
                                                    const PromptRule& rule) const {
  ASSIGN_OR_RETURN(const auto ids, ints(outputs, "output_ids"));
  ASSIGN_OR_RETURN(const int32_t length, one_int(outputs, "sequence_length"));
  const size_t begin = rule.is_repeated() ? ids_.size() : 0;
  if (length < 0 || static_cast<size_t>(length) > ids.size() ||
      static_cast<size_t>(length) < begin) {
    return internal_error("sequence_length is {} for {} output_ids and {} of the prompt", length,
                          ids.size(), begin);
  }
  return std::vector<int32_t>(ids.begin() + static_cast<ptrdiff_t>(begin), ids.begin() + length);
}

// Drafts with logits end where end ids become allowed: both models ban them at the same positions.
int32_t DraftLoop::draft_length() const {
  const int32_t most = std::min(draft_options_.num_drafts, num_left() - 1);
  return draft_options_.with_logits && min_left() > 0 ? std::min(most, min_left()) : most;
}

// Without logits the draft call has no end id, which would cut the draft; with logits end ids are
// tokens like others.
std::vector<Output> DraftLoop::draft_inputs() const {
  const bool may_end = draft_options_.with_logits && min_left() == 0;
  auto inputs = this->inputs(draft_length(), draft_rule_);
  std::erase_if(inputs, [&](const Output& input) {
    return std::ranges::find(kTargetOnly, input.name) != std::end(kTargetOnly) ||
           (may_end && input.name == "end_id");
  });
  if (!may_end) inputs.push_back(scalar("min_length", draft_length()));
  if (draft_options_.with_logits) inputs.push_back(flag("return_generation_logits", true));
  return inputs;
}

Status DraftLoop::take_draft(const std::vector<Output>& outputs) {
  ASSIGN_OR_RETURN(draft_, tokens_of(outputs, draft_rule_));
  if (static_cast<int32_t>(draft_.size()) > draft_length()) {
    return internal_error("the draft model sent {} tokens, {} were asked for", draft_.size(),
                          draft_length());
  }
  return draft_options_.with_logits && !draft_.empty() ? take_logits(outputs) : ok();
}

// Takes the draft's rows, the first ones, of a [1, 1, rows, vocab] tensor.
Status DraftLoop::take_logits(const std::vector<Output>& outputs) {
  const Output* logits = find_output(outputs, "generation_logits");
  const auto length = static_cast<int64_t>(draft_.size());
  if (logits == nullptr || logits->shape.size() != 4 || logits->shape[2] < length)
    return internal_error("the draft model sent no 'generation_logits' for its {} tokens", length);
  const int64_t vocab = logits->shape[3];
  const size_t bytes =
      static_cast<size_t>(length * vocab) * TRITONSERVER_DataTypeByteSize(logits->datatype);
  draft_logits_ =
      Output{"draft_logits", logits->datatype, {1, length, vocab}, logits->bytes.substr(0, bytes)};
  return ok();
}

std::vector<Output> DraftLoop::target_inputs() const {
  const auto length = static_cast<int32_t>(draft_.size());
  auto inputs = this->inputs(length + 1, target_rule_);
  if (length > 0) inputs.push_back(make_output("draft_input_ids", {1, length}, draft_));
  if (draft_logits_) inputs.push_back(*draft_logits_);
  if (min_left() > 0) inputs.push_back(scalar("min_length", min_left()));
  return inputs;
}

// An output shorter than requested has ended: end ids are not part of it.
Status DraftLoop::take_tokens(std::vector<Output> outputs) {
  ASSIGN_OR_RETURN(const auto tokens, tokens_of(outputs, target_rule_));
  if (tokens.size() > draft_.size() + 1) {
    return internal_error("the generating model sent {} tokens, {} were asked for", tokens.size(),
                          draft_.size() + 1);
  }
  const auto mismatch = std::ranges::mismatch(draft_, tokens);
  num_tested_ += static_cast<int32_t>(draft_.size());
  num_held_ += static_cast<int32_t>(mismatch.in1 - draft_.begin());
  ids_.insert(ids_.end(), tokens.begin(), tokens.end());
  is_over_ = tokens.size() <= draft_.size() || num_left() <= 0 || ends_with_stop_word();
  draft_.clear();
  draft_logits_.reset();
  if (first_.empty()) first_ = outputs;
  last_ = std::move(outputs);
  return ok();
}

bool DraftLoop::ends_with_stop_word() const {
  return std::ranges::any_of(stop_words_, [&](const auto& word) {
    return static_cast<int32_t>(word.size()) <= num_generated() &&
           std::equal(word.rbegin(), word.rend(), ids_.rbegin());
  });
}

std::vector<Output> DraftLoop::outputs(bool with_prompt) const {
  const size_t begin = with_prompt ? 0 : num_prompt_;
  const std::vector<int32_t> ids(ids_.begin() + static_cast<ptrdiff_t>(begin), ids_.end());
  const auto length = static_cast<int32_t>(ids.size());
  std::vector<Output> outputs = last_;
  const auto put = [&](std::string_view name, auto value) {
    for (Output& output : outputs) {
      if (output.name == name && output.bytes.size() == sizeof(value)) {
        std::memcpy(output.bytes.data(), &value, sizeof(value));
      }
    }
  };
  for (Output& output : outputs) {
    if (output.name == "output_ids") output = make_output(output.name, {1, 1, length}, ids);
  }
  put("sequence_length", length);
  put("num_input_tokens", static_cast<int32_t>(num_prompt_));
  put("num_output_tokens", num_generated());
  put("total_draft_tokens", num_tested_);
  put("total_accepted_draft_tokens", num_held_);
  put("acceptance_rate",
      num_tested_ == 0 ? 0.0f : static_cast<float>(num_held_) / static_cast<float>(num_tested_));
  for (const char* name : {"arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns"}) {
    const Output* first = find_output(first_, name);
    for (Output& output : outputs) {
      if (first != nullptr && output.name == name) output = *first;
    }
  }
  return outputs;
}

}  // namespace nereid::backend
