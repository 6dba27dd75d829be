#include "front/openai/engine_request.h"

#include <random>
#include <span>
#include <utility>

namespace nereid::front {
namespace {

constexpr char kExcludeInput[] = "exclude_input_in_output";
constexpr float kUsualPriority = 0.5f;  // default of requests

uint64_t random_seed() {
  thread_local std::mt19937_64 engine{std::random_device{}()};
  return engine();
}

// Builds inputs in the layout of the engine's metadata.
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
      if (!optional) refuse_absent(name);
      return;
    }
    if (info->shape.size() == shape.size() + 1) shape.insert(shape.begin(), 1);
    spec_.inputs.push_back(make_tensor(name, std::move(shape), values));
  }
  template <class T>
  void scalar(const char* name, T value, bool optional = false) {
    add(name, {1}, std::vector<T>{value}, optional);
  }
  // Omitted while it has its neutral value, so that engines without the input work.
  template <class T>
  void unless(T neutral, const char* name, T value) {
    if (value != neutral) scalar(name, value);
  }
  void text(const char* name, const std::vector<std::string>& values, bool optional = false) {
    const TensorInfo* info = engine_.input(name);
    if (values.empty()) return;
    if (info == nullptr) {
      if (!optional) refuse_absent(name);
      return;
    }
    std::vector<int64_t> shape = {static_cast<int64_t>(values.size())};
    if (info->shape.size() == 2) shape.insert(shape.begin(), 1);
    std::string bytes;
    for (const std::string& value : values) append_string_element(bytes, value);
    spec_.inputs.push_back({name, TRITONSERVER_TYPE_BYTES, std::move(shape), std::move(bytes)});
  }
  void rows(const char* name, const PromptRows& rows) {
    if (engine_.input(name) == nullptr) {
      refuse_absent(name);
      return;
    }
    const std::span<const std::byte> bytes = std::as_bytes(std::span(rows.values));
    spec_.inputs.push_back({name,
                            TRITONSERVER_TYPE_BF16,
                            {1, rows.size(), rows.width},
                            {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  // The rows of all pictures, one after the other.
  void patches(int64_t num_rows, const std::vector<PicturePtr>& pictures) {
    if (engine_.input(kPatchesInput) == nullptr) {
      refuse_absent(kPatchesInput);
      return;
    }
    const int64_t width = pictures.front()->patches.width;
    std::string bytes;
    bytes.reserve(static_cast<size_t>(num_rows * width) * sizeof(float));
    for (const PicturePtr& picture : pictures) {
      const std::span<const std::byte> values = std::as_bytes(std::span(picture->patches.values));
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size());
    }
    spec_.inputs.push_back(
        {kPatchesInput, TRITONSERVER_TYPE_FP32, {1, num_rows, width}, std::move(bytes)});
  }
  // Sent in any case if the engine declares it; an engine without the input behaves so anyway.
  template <class T>
  void always(T neutral, const char* name, T value) {
    scalar(name, value, /*optional=*/value == neutral);
  }
  DataType type(const char* name) const {
    const TensorInfo* info = engine_.input(name);
    return info == nullptr ? TRITONSERVER_TYPE_INVALID : info->type;
  }
  const std::string& engine_name() const { return engine_.name; }
  void refuse(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  void refuse_absent(const char* name) {
    refuse(unsupported(
        "the option needs the input '{}', which the configuration of model '{}' does not have: "
        "leave the option out, or add the input to config.pbtxt",
        name, engine_.name));
  }

  const ModelInfo& engine_;
  InferenceSpec& spec_;
  Status status_;
};

using Words = std::vector<std::vector<int32_t>>;

// [2, n]: ids of all words, then their inclusive ends, padded with -1 (the backend's
// word list format).
void add_words(Inputs& inputs, const char* name, const Words& words) {
  if (words.empty()) return;
  std::vector<int32_t> ids, ends;
  for (const auto& word : words) {
    ids.insert(ids.end(), word.begin(), word.end());
    ends.push_back(static_cast<int32_t>(ids.size()));
  }
  const size_t width = ids.size();
  ends.resize(width, -1);
  ids.insert(ids.end(), ends.begin(), ends.end());
  inputs.add(name, {2, static_cast<int64_t>(width)}, ids);
}

// End id, stop ids and, where one call runs several sequences, stop texts: such a sequence cannot
// be cancelled alone, so the engine must end it.
void add_endings(Inputs& inputs, const LanguageModel& model, const SamplingOptions& s) {
  Words words;
  for (const int32_t id : s.stop_token_ids) words.push_back({id});
  if (!s.ignore_eos && !model.eos_ids.empty()) {
    inputs.scalar("end_id", model.eos_ids[0]);
    for (size_t i = 1; i < model.eos_ids.size(); ++i) words.push_back({model.eos_ids[i]});
  } else {
    inputs.scalar("end_id", int32_t{-1});
  }
  add_words(inputs, "stop_words_list", words);
  if (s.best_of > 1 && !s.use_beam_search) inputs.text("stop_strings", s.stop);
  inputs.unless(0, "min_length", static_cast<int32_t>(s.min_tokens));
}

void add_draws(Inputs& inputs, const SamplingOptions& s, size_t prompt_length) {
  if (s.temperature == 0) {
    inputs.scalar("runtime_top_k", int32_t{1});
  } else {
    inputs.scalar("temperature", static_cast<float>(s.temperature));
    inputs.scalar("runtime_top_k", static_cast<int32_t>(s.top_k));
    inputs.scalar("runtime_top_p", static_cast<float>(s.top_p));
    inputs.unless(0.0f, "runtime_top_p_min", static_cast<float>(s.top_p_min));
    inputs.unless(0.0f, "min_p", static_cast<float>(s.min_p));
    inputs.scalar("random_seed", s.seed ? *s.seed : random_seed());
    // Penalties before the temperature, as in OpenAI's API.
    inputs.scalar("temperature_last", uint8_t{1}, /*optional=*/true);
  }
  inputs.unless(1.0f, "repetition_penalty", static_cast<float>(s.repetition_penalty));
  inputs.unless(0.0f, "presence_penalty", static_cast<float>(s.presence_penalty));
  inputs.unless(0.0f, "frequency_penalty", static_cast<float>(s.frequency_penalty));
  if (s.presence_penalty != 0 || s.frequency_penalty != 0) {
    const auto ignored = s.prompt_ignore_length.value_or(static_cast<int64_t>(prompt_length));
    // The TensorRT-LLM backend's own templates lack it: penalties count the prompt there.
    inputs.scalar("prompt_ignore_length", static_cast<int32_t>(ignored),
                  /*optional=*/s.prompt_ignore_length.value_or(0) == 0);
  }
  if (s.logit_bias.empty()) return;
  std::vector<int32_t> ids;
  std::vector<float> values;
  for (const auto& [id, bias] : s.logit_bias) {
    ids.push_back(id);
    values.push_back(bias);
  }
  const auto count = static_cast<int64_t>(ids.size());
  inputs.add("logit_bias_ids", {count}, ids);
  inputs.add("logit_bias_values", {count}, values);
}

void add_sequences(Inputs& inputs, const SamplingOptions& s) {
  if (!s.use_beam_search) {
    inputs.unless(1, "num_return_sequences", static_cast<int32_t>(s.n));
    if (s.best_of > s.n) inputs.scalar("best_of", static_cast<int32_t>(s.best_of));
    return;
  }
  inputs.unless(1, "beam_width", static_cast<int32_t>(s.best_of));
  // Without it all beams are returned.
  inputs.always(static_cast<int32_t>(s.best_of), "num_return_sequences", static_cast<int32_t>(s.n));
  inputs.scalar("len_penalty", static_cast<float>(s.length_penalty));
  if (inputs.type("early_stopping") == TRITONSERVER_TYPE_INT32) {
    inputs.scalar("early_stopping", static_cast<int32_t>(s.early_stopping));
  } else if (s.early_stopping <= 1) {
    inputs.always(uint8_t{1}, "early_stopping", static_cast<uint8_t>(s.early_stopping));
  } else {
    inputs.refuse(invalid_argument(
        "'early_stopping': \"never\" needs a model '{}' whose input early_stopping is INT32",
        inputs.engine_name()));
  }
}

}  // namespace

namespace {

void add_prompt(Inputs& inputs, const std::vector<int32_t>& prompt, const SamplingOptions& s) {
  const auto length = static_cast<int64_t>(prompt.size());
  inputs.add("input_ids", {length}, prompt);
  inputs.scalar("input_lengths", static_cast<int32_t>(length));
  if (!s.decoder_prompt.empty())
    inputs.add("decoder_input_ids", {std::ssize(s.decoder_prompt)}, s.decoder_prompt);
  if (s.priority) inputs.always(kUsualPriority, "priority", static_cast<float>(*s.priority));
  if (s.lora_task_id) inputs.scalar("lora_task_id", *s.lora_task_id);
  if (!s.lora_folder.empty()) inputs.text("lora_path", {s.lora_folder});
  if (!s.cache_salt.empty()) inputs.text("cache_salt", {s.cache_salt});
}

}  // namespace

namespace {

void add_pictures(Inputs& inputs, const PromptPictures& prompt) {
  const auto count = std::ssize(prompt.spans);
  int64_t num_rows = 0;
  std::vector<int32_t> grids, spans, tiles;
  for (const PicturePtr& picture : prompt.pictures) {
    num_rows += picture->patches.rows;
    for (const auto& grid : vision::grids_of(picture->patches))
      grids.insert(grids.end(), grid.begin(), grid.end());
    const auto layout = vision::layout_of(picture->patches);
    if (picture->patches.has_layout()) tiles.insert(tiles.end(), layout.begin(), layout.end());
  }
  for (const vision::TokenSpan& span : prompt.spans)
    spans.insert(spans.end(), span.begin(), span.end());
  inputs.patches(num_rows, prompt.pictures);
  inputs.add(kGridsInput, {count, 3}, grids);
  inputs.add(kSpansInput, {count, 2}, spans);
  if (!tiles.empty()) inputs.add(kTilesInput, {count, 4}, tiles);
}

}  // namespace

StatusOr<InferenceSpec> pooling_request(const LanguageModel& model,
                                        const std::vector<int32_t>& prompt,
                                        const SamplingOptions& s, const std::string& pooling) {
  InferenceSpec spec;
  spec.model = model.engine_name;
  spec.parameters.push_back({"nereid_usage", true});
  Inputs inputs(*model.engine, spec);
  add_prompt(inputs, prompt, s);
  inputs.scalar("request_output_len", int32_t{0});
  inputs.text("pooling", {pooling});
  RETURN_IF_ERROR(inputs.status());
  return spec;
}

StatusOr<InferenceSpec> engine_request(const LanguageModel& model,
                                       const std::vector<int32_t>& prompt, const PromptInputs& more,
                                       int64_t max_tokens, const SamplingOptions& s,
                                       bool streaming) {
  InferenceSpec spec;
  spec.model = model.engine_name;
  spec.parameters.push_back({"nereid_usage", true});
  Inputs inputs(*model.engine, spec);
  add_prompt(inputs, prompt, s);
  if (more.rows) inputs.rows("prompt_embeds", *more.rows);
  if (more.pictures) add_pictures(inputs, *more.pictures);
  inputs.scalar("request_output_len", static_cast<int32_t>(max_tokens));
  inputs.scalar("streaming", static_cast<uint8_t>(streaming));
  inputs.scalar(kExcludeInput, uint8_t{1}, /*optional=*/true);
  add_sequences(inputs, s);
  add_endings(inputs, model, s);
  add_words(inputs, "bad_words_list", s.bad_word_ids);
  add_draws(inputs, s, prompt.size());
  if (!s.allowed_token_ids.empty())
    inputs.add("allowed_token_ids", {std::ssize(s.allowed_token_ids)}, s.allowed_token_ids);
  if (s.log_probs) {
    inputs.scalar("return_log_probs", uint8_t{1});
    // Beams are ranked by the processed probabilities, and report those.
    if (!s.use_beam_search) inputs.scalar("raw_log_probs", uint8_t{1}, /*optional=*/true);
    inputs.unless(0, "num_top_log_probs", static_cast<int32_t>(s.num_top_log_probs));
  }
  if (s.num_prompt_log_probs)
    inputs.scalar("num_prompt_log_probs", static_cast<int32_t>(*s.num_prompt_log_probs));
  if (s.guide) {
    inputs.text("guided_decoding_guide_type", {s.guide->type});
    if (!s.guide->text.empty()) inputs.text("guided_decoding_guide", {s.guide->text});
  }
  if (s.reasoning) {
    inputs.text("reasoning_close", {s.reasoning->close});
    if (!s.reasoning->open.empty()) inputs.text("reasoning_open", {s.reasoning->open});
    inputs.always(uint8_t{0}, "reasoning_begun", static_cast<uint8_t>(s.reasoning->begun));
    if (const auto most = s.reasoning->max_tokens)
      inputs.scalar("max_reasoning_tokens", static_cast<int32_t>(*most));
  }
  RETURN_IF_ERROR(inputs.status());
  return spec;
}

}  // namespace nereid::front
