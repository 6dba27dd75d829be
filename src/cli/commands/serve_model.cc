#include "cli/commands/serve_model.h"

#include <fmt/ranges.h>

#include "backend/parameters/lora_modules.h"
#include "backend/parameters/parameters.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/flags/missing_path.h"
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

// Template values of speculation.
TemplateValues values_of_drafts(const ExecutorConfig& config) {
  std::error_code error;
  const std::string draft_model = std::filesystem::absolute(config.draft_model, error).string();
  const auto number = [](int64_t value) { return std::to_string(value); };
  const auto lookahead = [&](int32_t value) {
    return config.speculation == "lookahead" ? number(value) : "";
  };
  return {{"speculation", config.speculation},
          {"draft_model", config.draft_model.empty() ? "" : escape_text(draft_model)},
          {"max_draft_len", number(config.max_draft_len)},
          {"medusa_choices", escape_text(config.medusa_choices)},
          {"eagle_choices", escape_text(config.eagle_choices)},
          {"eagle_tree_top_k", number(config.eagle_tree_top_k)},
          {"eagle_tree_depth", number(config.eagle_tree_depth)},
          {"lookahead_window_size", lookahead(config.lookahead.window_size)},
          {"lookahead_ngram_size", lookahead(config.lookahead.ngram_size)},
          {"lookahead_verification_set_size", lookahead(config.lookahead.verification_set_size)},
          {"ngram_pool_size", number(config.ngram_pool_size)},
          {"typical_acceptance", fmt::format("{}", config.typical_acceptance)}};
}

// Template values of the model's folder and of flags with a default.
TemplateValues values_of_flags(const ServeOptions& options,
                               const std::filesystem::path& tokenizer) {
  const ExecutorConfig& config = options.model.executor;
  std::error_code error;
  const std::string dir = std::filesystem::absolute(options.model.model_dir, error).string();
  const std::string tokenizer_dir =
      tokenizer.empty() ? "" : std::filesystem::absolute(tokenizer, error).string();
  const auto number = [](int64_t value) { return std::to_string(value); };
  const auto flag = [](bool value) -> std::string { return value ? "true" : "false"; };
  const KvCacheConfig& kv = config.kv_cache;
  return {{"triton_max_batch_size", number(config.max_batch_size)},
          {"triton_backend", "tensorrtllm"},
          {"decoupled_mode", "true"},
          {"max_queue_delay_microseconds", "0"},
          {"encoder_input_features_data_type", "TYPE_FP16"},
          {"prompt_embedding_table_data_type", "TYPE_FP16"},
          {"engine_dir", escape_text(dir)},
          {"tokenizer_dir", escape_text(tokenizer_dir)},
          {"max_seq_len", config.max_sequence_length > 0 ? number(config.max_sequence_length)
                                                         : ""},  // the executor's default
          {"device", escape_text(config.device)},
          {"isa", escape_text(config.isa)},
          {"weights", config.weights},
          {"head_weights", config.head_weights},
          {"random_weights", flag(config.random_weights)},
          {"num_threads", number(config.num_threads)},
          {"memory_bytes", number(config.memory_bytes)},
          {"max_tokens_in_paged_kv_cache", kv.max_tokens ? number(*kv.max_tokens) : ""},
          {"tokens_per_block", number(kv.tokens_per_block)},
          {"enable_kv_cache_reuse", flag(kv.enable_block_reuse)},
          {"logits_datatype", "TYPE_FP32"},
          {"batch_scheduler_policy", options.model.scheduler_policy},
          {"context_chunking_policy", options.model.chunking_policy},
          {"pause_policy", options.model.pause_policy},
          {"enable_chunked_context", flag(config.scheduler.enable_chunked_context)},
          {"enable_overlap", flag(config.enable_overlap)},
          {"exit_on_device_failure", flag(config.exit_on_device_failure)},
          {"device_timeout_secs", number(config.device_timeout_secs)},
          {"deterministic", flag(config.deterministic)},
          {"max_beam_width", number(config.max_beam_width)},
          {"kv_cache_type", options.model.kv_cache_type},
          {"sink_token_length", number(kv.sink_token_length)},
          {"kv_cache_host_memory_bytes", number(kv.host_cache_bytes)},
          {"max_batch_size", number(config.max_batch_size)},
          {"max_num_tokens", number(config.max_num_tokens)},
          {"max_queue_size", number(config.max_queue_size)},
          {"max_logits_bytes", number(config.max_logits_bytes)},
          {"exclude_input_in_output", "true"},
          {"forced_kernels", escape_text(fmt::format("{}", fmt::join(config.forced_kernels, ",")))},
          {"cache_dir", escape_text(config.cache_dir.string())},
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
  TemplateValues values = values_of_flags(options, tokenizer);
  values.merge(values_of_drafts(config));
  // Parameters without a flag here keep the templates' defaults.
  for (const char* backend :
       {"preprocessing", "tensorrtllm", "postprocessing", "tensorrt_llm_bls"}) {
    for (const auto& parameter : backend::parameters_of(backend)) {
      values.emplace(parameter.placeholder, "");
    }
  }
  ASSIGN_OR_RETURN(const std::string modules, lora_modules(options));
  if (options.enable_lora || !options.lora_load_dir.empty() || !modules.empty()) {
    std::error_code error;
    const auto load_dir = std::filesystem::absolute(options.lora_load_dir, error).string();
    values["enable_lora"] = "true";
    values["lora_modules"] = escape_text(modules);
    if (!options.lora_load_dir.empty()) values["lora_load_dir"] = escape_text(load_dir);
    values["lora_cache_max_adapter_size"] = std::to_string(options.max_lora_rank);
  }
  const KvCacheConfig& kv = config.kv_cache;
  if (kv.max_attention_window > 0) {
    values["max_attention_window_size"] = std::to_string(kv.max_attention_window);
  }
  if (kv.memory_fraction) {
    values["kv_cache_free_gpu_mem_fraction"] = fmt::format("{}", *kv.memory_fraction);
  }
  return values;
}

}  // namespace nereid::cli
