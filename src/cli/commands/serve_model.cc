#include "cli/commands/serve_model.h"

#include <fmt/ranges.h>

#include "backend/parameters/lora_modules.h"
#include "backend/parameters/parameters.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/flags/missing_path.h"
#include "config/engine_options.h"
#include "convert/engine_dir.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::cli {
namespace {

// Links a tokenizer's files in `to`, with another chat template.
Status with_chat_template(const std::filesystem::path& from, const std::string& chat_template,
                          const std::filesystem::path& to) {
  std::error_code error;
  std::string text = chat_template;
  if (std::filesystem::is_regular_file(chat_template, error)) {
    ASSIGN_OR_RETURN(text, read_file(chat_template, size_t{1} << 20));
  } else if (text.find('{') == text.npos) {
    return invalid_argument("--chat-template: '{}' is neither a file nor a template",
                            text.substr(0, 200));
  }
  if (!std::filesystem::is_directory(from, error)) {
    return unsupported("--chat-template: {} is no folder; give one with --tokenizer",
                       from.string());
  }
  std::filesystem::create_directories(to, error);
  for (std::filesystem::directory_iterator it(from, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name == "chat_template.jinja" || name == "chat_template.json" || it->is_directory(error))
      continue;
    std::filesystem::create_symlink(std::filesystem::absolute(it->path()), to / name, error);
    if (error) break;
  }
  if (error) return unavailable("{}: {}", to.string(), error.message());
  return write_file_atomic(to / "chat_template.jinja", text);
}

}  // namespace

StatusOr<std::filesystem::path> find_tokenizer(const ServeOptions& options,
                                               const std::filesystem::path& scratch) {
  std::filesystem::path dir = options.tokenizer;
  if (dir.empty()) {
    ASSIGN_OR_RETURN(dir, convert::tokenizer_dir(options.model.model_dir));
  } else if (const Status there = check_exists("--tokenizer", dir.string()); !there.ok()) {
    return there;
  } else if (!text::Tokenizer::has_files(dir)) {
    return invalid_argument("--tokenizer: {} has no tokenizer files", dir.string());
  }
  if (!dir.empty() && text::Tokenizer::has_files(dir)) {
    // Reports a faulty tokenizer once, before the model is loaded.
    RETURN_IF_ERROR(text::Tokenizer::load(dir).status());
    if (!options.chat_template.empty()) {
      RETURN_IF_ERROR(with_chat_template(dir, options.chat_template, scratch));
      dir = scratch;
    }
    const Status chat = text::load_chat_template(dir).status();
    if (chat.ok()) return dir;
    if (!absl::IsNotFound(chat)) return chat;
    log_warn("{}: there is no chat template: no /v1/chat/completions; --chat-template gives one",
             dir.string());
    return dir;
  }
  if (!options.chat_template.empty()) {
    return invalid_argument(
        "--chat-template: the model has no tokenizer; give one with --tokenizer");
  }
  log_warn(
      "{} has no tokenizer files: only the model '{}' is served, which takes and gives token ids; "
      "there are no text models and no OpenAI endpoints",
      dir.string(), kTokenModel);
  return std::filesystem::path();
}

namespace {

// The adapters as "name=DIR;name=DIR", the template's form.
StatusOr<std::string> lora_modules(const ServeOptions& options) {
  std::string text;
  for (const std::string& module : options.lora) {
    if (module.find(';') != std::string::npos)
      return invalid_argument("--lora: '{}' has a ';'", module);
    ASSIGN_OR_RETURN(const auto parsed, backend::parse_lora_modules(module));
    if (parsed.empty() || parsed[0].name == options.model_name)
      return invalid_argument("--lora: '{}' is not name=DIR with a name other than the model's",
                              module);
    std::error_code error;
    const auto folder = std::filesystem::absolute(parsed[0].folder, error);
    text += fmt::format("{}{}={}", text.empty() ? "" : ";", parsed[0].name, folder.string());
  }
  RETURN_IF_ERROR(backend::parse_lora_modules(text).status());
  return text;
}

// The options of the engine that have a flag; others keep the template's defaults.
TemplateValues values_of_options(ExecutorConfig config) {
  std::error_code error;
  if (!config.draft_model.empty())
    config.draft_model = std::filesystem::absolute(config.draft_model, error);
  TemplateValues values;
  for (const config::Option& option : config::engine_options(config)) {
    if (!*option.flag || !*option.parameter) continue;
    // The backend refuses these without lookahead.
    const bool is_moot = std::string_view(option.name).starts_with("lookahead.") &&
                         config.speculation != "lookahead";
    values[*option.placeholder ? option.placeholder : option.parameter] =
        is_moot ? "" : escape_text(config::text_of(option));
  }
  return values;
}

TemplateValues values_of_model(const ServeOptions& options,
                               const std::filesystem::path& tokenizer) {
  std::error_code error;
  const std::string dir = std::filesystem::absolute(options.model.model_dir, error).string();
  const std::string tokenizer_dir =
      tokenizer.empty() ? "" : std::filesystem::absolute(tokenizer, error).string();
  return {{"triton_max_batch_size", std::to_string(options.model.executor.max_batch_size)},
          {"triton_backend", "tensorrtllm"},
          {"decoupled_mode", "true"},
          {"max_queue_delay_microseconds", "0"},
          {"encoder_input_features_data_type", "TYPE_FP16"},
          {"prompt_embedding_table_data_type", "TYPE_FP16"},
          {"logits_datatype", "TYPE_FP32"},
          {"engine_dir", escape_text(dir)},
          {"tokenizer_dir", escape_text(tokenizer_dir)},
          {"exclude_input_in_output", "true"},
          {"preprocessing_instance_count", "1"},
          {"postprocessing_instance_count", "1"},
          {"bls_instance_count", "1"}};
}

}  // namespace

StatusOr<TemplateValues> template_values(const ServeOptions& options,
                                         const std::filesystem::path& tokenizer) {
  const ExecutorConfig& config = options.model.executor;
  ASSIGN_OR_RETURN(const io::ModelFacts facts, convert::read_facts(options.model.model_dir));
  if (config.max_sequence_length > facts.max_positions) {
    return invalid_argument("--max-seq-len: {} is more than the {} that the model allows",
                            config.max_sequence_length, facts.max_positions);
  }
  ASSIGN_OR_RETURN(const std::string modules, lora_modules(options));
  ExecutorConfig engine = config;
  engine.enable_lora |= !options.lora_load_dir.empty() || !modules.empty();
  TemplateValues values = values_of_options(std::move(engine));
  values.merge(values_of_model(options, tokenizer));
  values["lora_modules"] = escape_text(modules);
  if (!options.lora_load_dir.empty()) {
    std::error_code error;
    values["lora_load_dir"] =
        escape_text(std::filesystem::absolute(options.lora_load_dir, error).string());
  }
  // Parameters without a flag here keep the templates' defaults.
  for (const char* backend :
       {"preprocessing", "tensorrtllm", "postprocessing", "tensorrt_llm_bls"}) {
    for (const auto& parameter : backend::parameters_of(backend)) {
      values.emplace(parameter.placeholder, "");
    }
  }
  return values;
}

}  // namespace nereid::cli
