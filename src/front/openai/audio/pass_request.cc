#include "front/openai/audio/pass_request.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "tensor/dtype.h"

namespace nereid::front {
namespace {

constexpr char kPromptInput[] = "decoder_input_ids";

// Equal for equal passes, so that a recording has the same transcript each time.
uint64_t seed_of(const speech::Pass& pass) {
  return static_cast<uint64_t>(pass.seek) * 101 +
         static_cast<uint64_t>(std::lround(pass.temperature * 100));
}

// `convert`: from a float to the stored number.
template <class Convert>
std::string bytes_of(std::span<const float> values, Convert convert) {
  constexpr size_t kSize = sizeof(convert(0.0f));
  std::string out(values.size() * kSize, '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = convert(values[i]);
    std::memcpy(out.data() + i * kSize, &value, kSize);
  }
  return out;
}

// Inputs with the leading 1 of the batch.
class PassInputs {
 public:
  PassInputs(const ModelInfo& engine, InferenceSpec& spec) : engine_(engine), spec_(spec) {}

  template <class T>
  void list(const char* name, const std::vector<T>& values, bool optional = false) {
    if (engine_.input(name) != nullptr)
      spec_.inputs.push_back(make_tensor(name, {1, std::ssize(values)}, values));
    else if (!optional && status_.ok())
      status_ = unsupported(
          "speech needs the input '{}', which the configuration of model '{}' does not have", name,
          engine_.name);
  }
  template <class T>
  void scalar(const char* name, T value, bool optional = false) {
    list(name, std::vector<T>{value}, optional);
  }
  Status features(const ServedSpeech& speech, std::span<const float> values) {
    Tensor tensor = {
        kFeaturesInput, speech.feature_type, {1, speech.model.window_frames, speech.num_mels}, {}};
    if (tensor.type == TRITONSERVER_TYPE_FP16)
      tensor.bytes = bytes_of(values, to_f16);
    else if (tensor.type == TRITONSERVER_TYPE_BF16)
      tensor.bytes = bytes_of(values, to_bf16);
    else if (tensor.type == TRITONSERVER_TYPE_FP32)
      tensor.bytes = bytes_of(values, [](float x) { return x; });
    else
      return unsupported("model '{}': {} is {}, expected FP32, FP16 or BF16", engine_.name,
                         kFeaturesInput, TRITONSERVER_DataTypeString(tensor.type));
    spec_.inputs.push_back(std::move(tensor));
    return ok();
  }
  const Status& status() const { return status_; }

 private:
  const ModelInfo& engine_;
  InferenceSpec& spec_;
  Status status_;
};

// Single tokens as a list of words; see engine_request.cc.
void add_banned(const std::vector<int32_t>& ids, const ModelInfo& engine, InferenceSpec& spec) {
  if (ids.empty() || engine.input("bad_words_list") == nullptr) return;
  std::vector<int32_t> values = ids;
  for (size_t i = 0; i < ids.size(); ++i) values.push_back(static_cast<int32_t>(i + 1));
  spec.inputs.push_back(make_tensor("bad_words_list", {1, 2, std::ssize(ids)}, values));
}

void add_rules(const speech::TokenRules& rules, const ModelInfo& engine, InferenceSpec& spec,
               PassInputs& inputs) {
  add_banned(rules.suppressed, engine, spec);
  if (!rules.suppressed_first.empty())
    inputs.list(kSuppressFirstInput, rules.suppressed_first, /*optional=*/true);
  if (rules.has_timestamps())
    inputs.list(kRulesInput, std::vector<int32_t>{rules.first_timestamp, rules.no_timestamps,
                                                  rules.end, rules.most_first_timestamp});
}

Status add_attention(const InferenceReply& reply, const speech::Pass& pass,
                     speech::PassResult& result) {
  const Tensor* const scores = reply.output(kAlignmentOutput);
  const Tensor* const log_probs = reply.output("prompt_log_probs");
  if (log_probs != nullptr) {
    ASSIGN_OR_RETURN(result.log_probs, elements<float>(*log_probs));
  }
  if (scores == nullptr) return ok();
  if (scores->shape.size() != 4 || scores->shape[2] != std::ssize(pass.prompt))
    return internal_error("{} is not [1, heads, {}, positions]", kAlignmentOutput,
                          pass.prompt.size());
  result.attention.num_heads = scores->shape[1];
  result.attention.num_tokens = scores->shape[2];
  result.attention.num_positions = scores->shape[3];
  ASSIGN_OR_RETURN(result.attention.scores, elements<float>(*scores));
  return ok();
}

// Adds the log-probability of the end of text, which a beam search gives as part of the sum only:
// cum_log_probs - sum of the tokens' log-probabilities.
Status add_end(const InferenceReply& reply, speech::PassResult& result) {
  const Tensor* const sums = reply.output("cum_log_probs");
  if (sums == nullptr) return ok();
  ASSIGN_OR_RETURN(const std::vector<float> sum, elements<float>(*sums));
  if (sum.size() != 1) return internal_error("a search gave {} sums, expected 1", sum.size());
  result.log_probs.resize(result.tokens.size());
  double rest = sum[0];
  for (const float x : result.log_probs) rest -= static_cast<double>(x);
  result.log_probs.push_back(static_cast<float>(std::min(rest, 0.0)));
  return ok();
}

}  // namespace

StatusOr<InferenceSpec> pass_request(const ServedSpeech& speech, const ModelInfo& engine,
                                     const speech::Features& features, const speech::Pass& pass) {
  InferenceSpec spec;
  spec.model = engine.name;
  spec.parameters.push_back({"nereid_usage", true});
  PassInputs inputs(engine, spec);
  RETURN_IF_ERROR(inputs.features(speech, features.window(pass.seek, pass.num_frames, pass.behind,
                                                          speech.model.window_frames)));
  const auto frames = static_cast<int32_t>(speech.model.window_frames);
  inputs.scalar("encoder_output_lengths", frames / 2, /*optional=*/true);
  inputs.scalar("input_lengths", frames, /*optional=*/true);
  inputs.list(kPromptInput, pass.prompt);
  inputs.scalar("request_output_len", static_cast<int32_t>(std::max<int64_t>(pass.max_tokens, 1)));
  inputs.scalar("exclude_input_in_output", uint8_t{1}, /*optional=*/true);
  inputs.scalar("end_id", speech.model.vocabulary.end);
  if (pass.kind == speech::PassKind::kAlign) {
    inputs.scalar("num_prompt_log_probs", int32_t{0});
    inputs.list(kAlignmentInput, speech.alignment_heads);
  } else {
    inputs.scalar("return_log_probs", uint8_t{1});
  }
  if (pass.num_beams > 1) {
    inputs.scalar("beam_width", static_cast<int32_t>(pass.num_beams));
    inputs.scalar("num_return_sequences", int32_t{1});
    inputs.scalar("len_penalty", 1.0f);  // hypotheses are ranked by their mean
    inputs.scalar("early_stopping", uint8_t{1});
  }
  if (pass.temperature > 0) {
    inputs.scalar("temperature", static_cast<float>(pass.temperature));
    inputs.scalar("runtime_top_k", int32_t{0});
    inputs.scalar("runtime_top_p", 1.0f);
    inputs.scalar("random_seed", seed_of(pass));
  }  // else greedy: without top_k, whose log-probabilities are those of the kept tokens
  // Thresholds are those of log-probabilities that no temperature has changed.
  if (pass.temperature > 0 || pass.kind == speech::PassKind::kScoreOne)
    inputs.scalar("raw_log_probs", uint8_t{1}, /*optional=*/true);
  if (!pass.allowed.empty()) inputs.list("allowed_token_ids", pass.allowed);
  add_rules(pass.rules, engine, spec, inputs);
  RETURN_IF_ERROR(inputs.status());
  return spec;
}

Status add_reply(const InferenceReply& reply, const speech::Pass& pass,
                 speech::PassResult& result) {
  if (pass.kind == speech::PassKind::kAlign) return add_attention(reply, pass, result);
  if (const Tensor* const ids = reply.output("output_ids")) {
    ASSIGN_OR_RETURN(std::vector<int32_t> tokens, elements<int32_t>(*ids));
    if (const Tensor* const lengths = reply.output("sequence_length")) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> length, elements<int32_t>(*lengths));
      if (length.size() == 1 && length[0] >= 0 && static_cast<size_t>(length[0]) < tokens.size())
        tokens.resize(static_cast<size_t>(length[0]));
    }
    result.tokens.insert(result.tokens.end(), tokens.begin(), tokens.end());
    if (std::ssize(result.tokens) > pass.max_tokens)
      return internal_error("the model gave {} tokens, {} were asked for", result.tokens.size(),
                            pass.max_tokens);
  }
  // The log-probabilities of all tokens so far.
  if (const Tensor* const log_probs = reply.output("output_log_probs")) {
    ASSIGN_OR_RETURN(result.log_probs, elements<float>(*log_probs));
  }
  return pass.num_beams > 1 ? add_end(reply, result) : ok();
}

}  // namespace nereid::front
