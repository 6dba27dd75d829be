// Loads tokenizer, template and limits of the served model; see language_model.h.
#include "front/openai/language_model.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "backend/parameters/parameters.h"
#include "base/gguf.h"
#include "base/json_members.h"
#include "base/log.h"
#include "config/option.h"
#include "front/openai/pooling.h"
#include "front/openai/requests/sampling_defaults.h"

namespace nereid::front {
namespace {

// A parameter of the configuration; -1 when it is no number.
int64_t read_number(const json::value& config, std::string_view key) {
  const std::string text = config_parameter(config, key);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

StatusOr<int64_t> read_max_seq_len(const json::value& config) {
  const int64_t value = read_number(config, "max_seq_len");
  if (value < 2) {
    return internal_error("model '{}': parameter max_seq_len is '{}', expected an integer above 1",
                          config_text(config, "name"), config_parameter(config, "max_seq_len"));
  }
  return value;
}

bool read_decoupled(const json::value& config) {
  return flag_member(object_member(config, "model_transaction_policy"), "decoupled");
}

// "eos_token_id" of a configuration and of a nested text configuration: each one id or several.
std::vector<int32_t> eos_ids_of(const json::value& root) {
  std::vector<int32_t> out;
  for (const char* key : {"text_config", "pretrained_config"})
    if (const json::value* inner = member(root, key)) {
      const std::vector<int32_t> more = eos_ids_of(*inner);
      out.insert(out.end(), more.begin(), more.end());
    }
  const json::value* ids = member(root, "eos_token_id");
  if (ids == nullptr) return out;
  const auto add = [&out](const json::value& v) {
    if (v.is_int64() && v.get_int64() >= 0 && v.get_int64() <= INT32_MAX) {
      out.push_back(static_cast<int32_t>(v.get_int64()));
    }
  };
  if (ids->is_array()) {
    for (const json::value& v : ids->get_array()) add(v);
  } else {
    add(*ids);
  }
  return out;
}

// The end tokens in all of the model's files.
std::vector<int32_t> read_eos_ids(const std::filesystem::path& dir, const LanguageModel& model) {
  std::vector<int32_t> ids;
  const auto add = [&ids](int32_t id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  if (is_gguf_path(dir)) {
    const StatusOr<json::object> metadata = read_gguf_metadata(dir);
    if (metadata.ok())
      for (const int32_t id : gguf_end_ids(*metadata)) add(id);
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    std::error_code ec;
    if (!std::filesystem::exists(dir / name, ec)) continue;
    const StatusOr<json::value> root = read_json_file(dir / name);
    if (!root.ok()) continue;
    for (const int32_t id : eos_ids_of(*root)) add(id);
  }
  if (model.chat_template) {
    const auto id = model.tokenizer->token_id(model.chat_template->special_token("eos_token"));
    if (id) add(*id);
  }
  return ids;
}

// Finds the formats of tool calls and reasoning.
void find_formats(const OpenAiOptions& options, LanguageModel& model) {
  const auto mentions = [&](std::string_view sign) {
    return model.chat_template && model.chat_template->mentions(sign);
  };
  model.tool_format = options.tool_parser == "auto" ? tool_format_of_template(mentions)
                                                    : find_tool_format(options.tool_parser);
  model.reasoning_format = options.reasoning_parser == "auto"
                               ? reasoning_format_of_template(mentions)
                               : find_reasoning_format(options.reasoning_parser);
  if (!model.chat_template) return;
  log_info("tool calls: '{}', reasoning: '{}'",
           model.tool_format ? model.tool_format->name : "none",
           model.reasoning_format ? model.reasoning_format->name : "none");
  if (!model.tool_format && options.tool_parser == "auto")
    log_info("tool calls stay text: the chat template shows tools in a format without a parser");
}

// Reads the engine's configuration and metadata.
Status read_engine(TRITONSERVER_Server* server, LanguageModel& model) {
  ASSIGN_OR_RETURN(model.engine, model_info(server, model.engine_name, -1));
  ASSIGN_OR_RETURN(const json::value engine_config, model_config(server, model.engine_name));
  ASSIGN_OR_RETURN(model.max_seq_len, read_max_seq_len(engine_config));
  model.embedding_size = std::max<int64_t>(0, read_number(engine_config, "embedding_size"));
  model.encoder_positions = std::max<int64_t>(0, read_number(engine_config, "encoder_positions"));
  model.num_labels = std::max<int64_t>(0, read_number(engine_config, "num_labels"));
  model.max_num_sequences = std::max<int64_t>(0, read_number(engine_config, "max_num_sequences"));
  model.decoupled = read_decoupled(engine_config);
  constexpr char kExcludesInput[] = "exclude_input_in_output";  // an input, else a parameter
  model.repeats_prompt =
      model.engine->input(kExcludesInput) == nullptr &&
      !config::parse_bool(config_parameter(engine_config, kExcludesInput)).value_or(false);
  ASSIGN_OR_RETURN(model.adapters,
                   backend::parse_lora_modules(config_parameter(engine_config, "lora_modules")));
  const std::string load_dir = config_parameter(engine_config, "lora_load_dir");
  if (!backend::is_unset(load_dir)) model.lora_load_dir = load_dir;
  return ok();
}

}  // namespace

const backend::LoraModule* LanguageModel::adapter(std::string_view requested) const {
  const auto found = std::ranges::find(adapters, requested, &backend::LoraModule::name);
  return found == adapters.end() ? nullptr : &*found;
}

StatusOr<std::shared_ptr<const LanguageModel>> load_language_model(TRITONSERVER_Server* server,
                                                                   const ModelNames& names,
                                                                   const OpenAiOptions& options) {
  auto model = std::make_shared<LanguageModel>();
  model->id = names.id;
  model->engine_name = names.engine;
  model->default_max_tokens = options.default_max_tokens;
  RETURN_IF_ERROR(read_engine(server, *model));
  const auto text_config = model_config(server, names.text);
  if (options.tokenizer_dir.empty() && text_config.status().code() == absl::StatusCode::kNotFound)
    return unsupported(
        "this server has no tokenizer (no model '{}'), so it cannot take or return text: send "
        "token ids to model '{}', POST /v2/models/{}/generate",
        names.text, names.engine, names.engine);
  if (options.tokenizer_dir.empty()) RETURN_IF_ERROR(text_config.status());
  const std::filesystem::path dir = options.tokenizer_dir.empty()
                                        ? config_parameter(*text_config, "tokenizer_dir")
                                        : options.tokenizer_dir;
  if (dir.empty()) {
    return internal_error("model '{}' has no parameter tokenizer_dir", names.text);
  }
  ASSIGN_OR_RETURN(model->tokenizer, text::Tokenizer::load(dir));
  model->decoder_prompts = text::DecoderPrompts::load(dir, model->tokenizer);
  for (int32_t id = 0; id < model->tokenizer->vocab_size(); ++id) {
    model->max_token_bytes =
        std::max(model->max_token_bytes, model->tokenizer->token_bytes(id).size());
  }
  StatusOr<text::ChatTemplate> chat = text::load_chat_template(dir);
  if (chat.ok()) {
    model->chat_template = *std::move(chat);
  } else {
    log_info("no chat completions: {}", message(chat.status()));
  }
  find_formats(options, *model);
  ASSIGN_OR_RETURN(const json::value engine_config, model_config(server, model->engine_name));
  model->speech =
      load_speech(engine_config, *model->engine, dir, model->tokenizer, model->max_seq_len);
  model->pictures = load_pictures(engine_config, *model->engine, dir, *model->tokenizer);
  if (options.ollama) model->facts = read_model_facts(dir);
  model->takes_templates = options.request_templates;
  model->infill = find_fill_middle_tokens(
      [&](std::string_view token) { return model->tokenizer->token_id(token).has_value(); });
  model->pooling = options.pooling == "auto" ? pooling_of(dir) : options.pooling;
  model->eos_ids = read_eos_ids(dir, *model);
  if (options.generation_config == "auto") {
    ASSIGN_OR_RETURN(const GenerationDefaults defaults, read_generation_defaults(dir));
    model->defaults = defaults.sampling;
    if (model->default_max_tokens == 0) model->default_max_tokens = defaults.max_tokens;
  }
  if (!options.tokenizer_dir.empty()) return model;
  const std::string loaded = config_parameter(*text_config, "tokenizer_hash");
  if (!loaded.empty() && loaded != text::Tokenizer::files_hash(dir)) {
    return unavailable(
        "the tokenizer's files in {} have changed since model '{}' was loaded: load it again",
        dir.string(), names.text);
  }
  return model;
}

}  // namespace nereid::front
