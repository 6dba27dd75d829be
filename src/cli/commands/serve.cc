// nereid serve: a model folder becomes endpoints.
#include "cli/commands/serve.h"

#include <signal.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "backend/parameters/lora_modules.h"
#include "backend/parameters/parameters.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/scratch_dir.h"
#include "cli/commands/commands.h"
#include "cli/flags/access_flags.h"
#include "cli/flags/options.h"
#include "cli/process/process_signals.h"
#include "cli/process/server_process.h"
#include "cli/repository/repository.h"
#include "convert/engine_dir.h"
#include "runtime/engine_limits.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace nereid::cli {
namespace {

struct AccessFlags {
  std::vector<std::string> http_groups, grpc_groups, origins;
  front::TlsOptions tls;
};

struct ServeOptions {
  ModelOptions model;
  std::string model_name;
  std::string port_file;
  ServerProcessOptions process;
  AccessFlags access;
  bool enable_lora = false;
  std::vector<std::string> lora;  // name=DIR
  std::filesystem::path lora_load_dir;
  int32_t max_lora_rank = 64;
  std::filesystem::path tokenizer;  // empty: the model's own
  std::string chat_template;        // a file or the text; empty: the tokenizer's
  std::function<void(const std::string& url)> when_ready;
  int32_t exit_timeout_seconds = 30;
};

// A tokenizer's files by links in `to`, with another chat template.
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

// Where the tokenizer's files are, `scratch` where another chat template is asked for; empty when
// the model has none. InvalidArgument: its chat template does not parse, or --tokenizer has no
// files.
StatusOr<std::filesystem::path> find_tokenizer(const ServeOptions& options,
                                               const std::filesystem::path& scratch) {
  std::filesystem::path dir = options.tokenizer;
  if (dir.empty()) {
    ASSIGN_OR_RETURN(dir, convert::tokenizer_dir(options.model.model_dir));
  } else if (!text::Tokenizer::has_files(dir)) {
    return invalid_argument("--tokenizer: {} has no tokenizer files", dir.string());
  }
  if (!dir.empty() && text::Tokenizer::has_files(dir)) {
    if (!options.chat_template.empty()) {
      RETURN_IF_ERROR(with_chat_template(dir, options.chat_template, scratch));
      dir = scratch;
    }
    const Status chat = text::load_chat_template(dir).status();
    if (chat.ok()) return dir;
    if (!absl::IsNotFound(chat)) return chat;
    log_warn("{}: there is no chat template: no /v1/chat/completions", dir.string());
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

// "name=DIR;name=DIR" for the template.
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

// Those that the model's folder and the flags with a default set.
TemplateValues values_of_flags(const ServeOptions& options,
                               const std::filesystem::path& tokenizer) {
  const ExecutorConfig& config = options.model.executor;
  std::error_code error;
  const std::string dir = std::filesystem::absolute(options.model.model_dir, error).string();
  const std::string tokenizer_dir =
      tokenizer.empty() ? "" : std::filesystem::absolute(tokenizer, error).string();
  const std::string draft_model = std::filesystem::absolute(config.draft_model, error).string();
  const auto number = [](int64_t value) { return std::to_string(value); };
  const auto flag = [](bool value) -> std::string { return value ? "true" : "false"; };
  const auto lookahead = [&](int32_t value) {
    return config.speculation == "lookahead" ? number(value) : "";
  };
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
                                                         : ""},  // the executor's
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
          {"speculation", config.speculation},
          {"draft_model", config.draft_model.empty() ? "" : escape_text(draft_model)},
          {"max_draft_len", number(config.max_draft_len)},
          {"medusa_choices", escape_text(config.medusa_choices)},
          {"eagle_choices", escape_text(config.eagle_choices)},
          {"eagle_tree_top_k", number(config.eagle_tree_top_k)},
          {"eagle_tree_depth", number(config.eagle_tree_depth)},
          {"lookahead_window_size", lookahead(config.lookahead.window_size)},
          {"lookahead_ngram_size", lookahead(config.lookahead.ngram_size)},
          {"lookahead_verification_set_size", lookahead(config.lookahead.verification_set_size)},
          {"typical_acceptance", fmt::format("{}", config.typical_acceptance)},
          {"enable_overlap", flag(config.enable_overlap)},
          {"exit_on_device_failure", flag(config.exit_on_device_failure)},
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

// What the templates need to know about this model and these flags; empty = the template's default.
StatusOr<TemplateValues> template_values(const ServeOptions& options,
                                         const std::filesystem::path& tokenizer) {
  const ExecutorConfig& config = options.model.executor;
  ASSIGN_OR_RETURN(const io::ModelFacts facts, convert::read_facts(options.model.model_dir));
  if (config.max_sequence_length > facts.max_positions) {
    return invalid_argument("--max-seq-len: {} is more than the {} that the model allows",
                            config.max_sequence_length, facts.max_positions);
  }
  TemplateValues values = values_of_flags(options, tokenizer);
  // Those without a flag here keep the templates' defaults.
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

// "http://localhost:8000"
std::string url_of(const ServeOptions& options, int port) {
  const std::string& host = options.process.http.host;
  return fmt::format("{}://{}:{}", options.process.http.tls.enabled ? "https" : "http",
                     host == "0.0.0.0" ? "localhost" : host, port);
}

void print_addresses(const ServeOptions& options, const ServerProcess& process, bool has_text,
                     double seconds) {
  const std::string http = url_of(options, process.http_port());
  log_info("ready in {:.2f} s", seconds);
  if (has_text) {
    log_info("OpenAI      {}/v1  (model '{}')", http, options.model_name);
  }
  log_info("KServe v2   {}/v2  (models {})", http,
           has_text ? "ensemble, tensorrt_llm_bls, tensorrt_llm" : kTokenModel);
  if (process.grpc_port() >= 0) {
    log_info("gRPC        {}:{}", options.process.grpc.host, process.grpc_port());
  }
  if (process.metrics_port() >= 0) {
    log_info("metrics     {}/metrics", url_of(options, process.metrics_port()));
  }
  if (!has_text) {
    log_info(
        "try:  curl {}/v2/models/{}/generate -d '{{\"input_ids\": [1, 2, 3], "
        "\"input_lengths\": 3, \"request_output_len\": 8}}'",
        http, kTokenModel);
    return;
  }
  log_info(
      "try:  curl {}/v1/chat/completions -H 'Content-Type: application/json' -d "
      "'{{\"model\": \"{}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'",
      http, options.model_name);
}

// What the flags about access say, for HTTP, metrics and gRPC alike.
Status set_access(const AccessFlags& flags, ServerProcessOptions& process) {
  for (const std::string& group : flags.http_groups) {
    RETURN_IF_ERROR(restrict_http(process.http, group));
  }
  for (const std::string& group : flags.grpc_groups) {
    RETURN_IF_ERROR(restrict_grpc(process.grpc, group));
  }
  for (const std::string& origin : flags.origins) {
    RETURN_IF_ERROR(add_cors_origin(process.http, origin));
  }
  front::TlsOptions tls = flags.tls;
  tls.enabled = !(tls.server_cert + tls.server_key + tls.root_cert).empty();
  tls.is_mutual = !tls.root_cert.empty();
  tls.flags = "tls";
  process.http.tls = process.grpc.tls = tls;
  process.http.metrics_use_tls = tls.enabled;
  return ok();
}

Status serve(ServeOptions& options) {
  const Time start = now();
  RETURN_IF_ERROR(options.model.finish());
  RETURN_IF_ERROR(set_access(options.access, options.process));
  if (options.model_name.empty())
    options.model_name =
        std::filesystem::weakly_canonical(options.model.model_dir).filename().string();

  // Before any thread starts, so that all inherit the mask and only this one takes the signals.
  const sigset_t signals = block_stop_signals();
  print_stack_on_crash();

  ASSIGN_OR_RETURN(const ScratchDir repository, ScratchDir::create());
  const auto remove_repository = [&repository] {
    std::error_code error;
    std::filesystem::remove_all(repository.path(), error);
  };
  std::optional<OnSignal> end_on_signal(std::in_place, signals, [&](int signal) {
    remove_repository();
    end_by(signal);
  });
  // Beside the model's versions, where no model is looked for.
  ASSIGN_OR_RETURN(const std::filesystem::path tokenizer,
                   find_tokenizer(options, repository.path() / kTokenModel / "tokenizer"));
  const bool has_text = !tokenizer.empty();
  RETURN_IF_ERROR(
      runtime::apply_engine_limits(options.model.model_dir, options.model.executor).status());
  ASSIGN_OR_RETURN(const TemplateValues values, template_values(options, tokenizer));
  RETURN_IF_ERROR(write_repository(repository.path(), values, has_text));

  options.process.repository = repository.path();
  options.process.exit_timeout = std::chrono::seconds(options.exit_timeout_seconds);
  options.process.http.openai.model_name = options.model_name;
  options.process.grpc.host = options.process.http.host;
  ASSIGN_OR_RETURN(auto process, ServerProcess::start(options.process));
  end_on_signal.reset();
  print_addresses(options, *process, has_text, seconds(now() - start));
  if (!options.port_file.empty())
    RETURN_IF_ERROR(write_file_atomic(
        options.port_file, fmt::format("http={}\nmetrics={}\ngrpc={}\n", process->http_port(),
                                       process->metrics_port(), process->grpc_port())));
  if (options.when_ready) options.when_ready(url_of(options, process->http_port()));

  int received = 0;
  sigwait(&signals, &received);
  log_info("signal {}: finishing running requests (at most {} s)", received,
           options.exit_timeout_seconds);
  StopDeadline deadline(options.process.exit_timeout, remove_repository);
  // A second signal: what runs ends now.
  const OnSignal hurry(signals, [&deadline](int) { deadline.hurry(); });
  process->stop(deadline);
  process.reset();  // within the deadline, too
  log_info("stopped");
  return ok();
}

void declare_access(CLI::App& command, ServeOptions& options) {
  AccessFlags& access = options.access;
  command.add_option("--api-key", options.process.api_keys,
                     "callers of HTTP and gRPC must show it (Authorization: Bearer KEY); may be "
                     "repeated");
  command.add_option(
      "--api-key-file", options.process.api_key_file,
      "a key, or sha256:<hex> of one, on each line, and its limits; read again on change");
  command.add_option("--http-restricted-api", access.http_groups,
                     "API,..:K=V: APIs that need header K with value V; may be repeated");
  command.add_option("--grpc-restricted-protocol", access.grpc_groups,
                     "API,..:K=V: rpcs that need metadata triton-grpc-protocol-K with value V; may "
                     "be repeated");
  command.add_option("--http-cors-origin", access.origins,
                     "web pages of it may use the HTTP port; * = of any; may be repeated");
  command.add_option("--tls-server-cert", access.tls.server_cert,
                     "PEM: every port speaks TLS with this certificate; read again on change, as "
                     "are the other two");
  command.add_option("--tls-server-key", access.tls.server_key, "PEM, the certificate's key");
  command.add_option("--tls-root-cert", access.tls.root_cert,
                     "PEM: clients must show a certificate that it has signed");
}

void declare_lora(CLI::App& command, ServeOptions& options) {
  CLI::Option* const with =
      command.add_option("--lora", options.lora,
                         "name=DIR: a LoRA adapter, a PEFT folder, which OpenAI requests name as "
                         "their model; may be repeated");
  CLI::Option* const enable = command.add_flag("--enable-lora", options.enable_lora,
                                               "requests may bring adapters (lora_weights)");
  CLI::Option* const load =
      command
          .add_option("--lora-load-dir", options.lora_load_dir,
                      "/v1/load_lora_adapter may load adapters from folders inside this one")
          ->check(CLI::ExistingDirectory);
  command
      .add_option("--max-lora-rank", options.max_lora_rank,
                  "largest rank of an adapter; the device has memory for it in each place")
      ->check(CLI::Range(1, 512))
      ->capture_default_str()
      ->check([with, enable, load](const std::string&) -> std::string {
        return with->count() + enable->count() + load->count() > 0
                   ? ""
                   : "needs --lora, --lora-load-dir or --enable-lora";
      });
}

}  // namespace

namespace {

void declare_serve(CLI::App& app, int& exit_code,
                   std::function<void(const std::string& url)> when_ready) {
  CLI::App* command =
      app.add_subcommand("serve", "serve a model over HTTP: Triton and OpenAI endpoints");
  auto options = std::make_shared<ServeOptions>();
  options->when_ready = std::move(when_ready);
  options->model.declare(*command);
  auto& http = options->process.http;
  command->add_option("--host", http.host, "address to listen on; 0.0.0.0 = every one")
      ->capture_default_str();
  command->add_option("--http-port,--port", http.http_port, "HTTP port; 0 = any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command
      ->add_option("--metrics-port", http.metrics_port,
                   "Prometheus port; 0 = any free one, -1 = off")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  command
      ->add_option("--grpc-port", options->process.grpc.port,
                   "gRPC port (KServe v2, health, reflection); 0 = any free one, -1 = off")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  command->add_option("--http-max-input-size", http.max_body_bytes, "largest HTTP body, in bytes")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command
      ->add_option("--grpc-max-message-bytes", options->process.grpc.max_message_bytes,
                   "largest gRPC request message")
      ->check(CLI::Range(1, INT32_MAX))
      ->capture_default_str();
  command
      ->add_option("--client-memory-bytes", options->process.client_memory_bytes,
                   "requests and replies held for clients of HTTP and gRPC together")
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 50))
      ->capture_default_str();
  declare_access(*command, *options);
  declare_lora(*command, *options);
  command->add_flag("--allow-client-shm", options->process.allow_client_shm,
                    "clients may name shared memory of this machine");
  command->add_option("--http-thread-count", http.threads, "threads that serve HTTP")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option(
      "--tool-call-parser", http.openai.tool_parser,
      "how the model writes tool calls: auto (as its chat template teaches) | none | "
      "a format's name");
  command->add_flag("--ollama", http.openai.ollama,
                    "answer Ollama's /api/chat, /api/generate, /api/tags and /api/show too");
  command->add_flag(
      "--strict-fields", http.openai.strict_fields,
      "refuse OpenAI requests with fields that are not known; default: a Warning header");
  command->add_flag("--trust-request-chat-template", http.openai.request_templates,
                    "requests may bring a chat_template of their own");
  command
      ->add_option("--response-store-bytes", http.openai.response_store_bytes,
                   "answers of /v1/responses kept for later requests; 0 = none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 50))
      ->capture_default_str();
  command->add_option("--reasoning-parser", http.openai.reasoning_parser,
                      "how it sets reasoning apart from answers: auto | none | a format's name");
  command->add_option("--generation-config", http.openai.generation_config,
                      "sampling options that a request leaves out: none (OpenAI's defaults) | auto "
                      "(those of the checkpoint's generation_config.json)");
  command->add_option("--pooling", http.openai.pooling,
                      "embeddings of a text are made of: auto (as the checkpoint's files for "
                      "sentence-transformers say, else last) | last (its last token) | mean");
  command->add_option("--model-name,--served-model-name", options->model_name,
                      "model id of the OpenAI endpoints; default: the folder's name");
  command
      ->add_option("--exit-timeout-secs", options->exit_timeout_seconds,
                   "how long running requests may take to finish after SIGTERM")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command->add_option("--tokenizer", options->tokenizer,
                      "folder of the tokenizer's files; default: the model's own");
  command->add_option("--chat-template", options->chat_template,
                      "a Jinja file, or the template itself; default: the tokenizer's own");
  options->process.backend_dir = default_backend_dir();
  command
      ->add_option("--backend-directory", options->process.backend_dir,
                   "where libtriton_*.so are found")
      ->capture_default_str();
  command->add_option("--port-file", options->port_file,
                      "write http=PORT, metrics=PORT and grpc=PORT here when ready");
  command->callback([options, &exit_code] {
    if (const Status status = serve(*options); !status.ok()) exit_code = fail(status);
  });
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) { declare_serve(app, exit_code, {}); }

int serve_main(const std::vector<std::string>& words,
               const std::function<void(const std::string& url)>& when_ready) {
  CLI::App app{"", "nereid"};
  int exit_code = 0;
  declare_serve(app, exit_code, when_ready);
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 takes them
  reversed.emplace_back("serve");
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return exit_code;
}

}  // namespace nereid::cli
