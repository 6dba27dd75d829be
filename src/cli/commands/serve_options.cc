#include "cli/commands/serve_options.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>

namespace nereid::cli {
namespace {

void declare_ports(CLI::App& command, ServeOptions& options) {
  auto& http = options.process.http;
  command.add_option("--host", http.host, "address to listen on; 0.0.0.0 = every one")
      ->capture_default_str();
  command.add_option("--http-port,--port", http.http_port, "HTTP port; 0 = any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command
      .add_option("--metrics-port", http.metrics_port,
                  "Prometheus port; 0 = any free one, -1 = off")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  command
      .add_option("--grpc-port", options.process.grpc.port,
                  "gRPC port (KServe v2, health, reflection); 0 = any free one, -1 = off")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  command.add_option("--http-thread-count", http.threads, "threads that serve HTTP")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

void declare_limits(CLI::App& command, ServeOptions& options) {
  auto& http = options.process.http;
  command.add_option("--http-max-input-size", http.max_body_bytes, "largest HTTP body, in bytes")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option("--grpc-max-message-bytes", options.process.grpc.max_message_bytes,
                  "largest gRPC request message")
      ->check(CLI::Range(1, INT32_MAX))
      ->capture_default_str();
  command
      .add_option("--client-memory-bytes", options.process.client_memory_bytes,
                  "requests and replies held for clients of HTTP and gRPC together")
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 50))
      ->capture_default_str();
  command.add_flag("--allow-client-shm", options.process.allow_client_shm,
                   "clients may name shared memory of this machine");
}

void declare_access(CLI::App& command, ServeOptions& options) {
  AccessFlags& access = options.access;
  command.add_option("--api-key", options.process.api_keys,
                     "callers of HTTP and gRPC must show it (Authorization: Bearer KEY); may be "
                     "repeated");
  command.add_option(
      "--api-key-file", options.process.api_key_file,
      "a key, or sha256:<hex> of one, on each line, and its limits; read again on change");
  command.add_option("--admin-key", options.process.admin_keys,
                     "key of an administrator, who may change log and trace settings and load "
                     "adapters; may be repeated");
  command.add_option("--http-restricted-api", access.http_groups,
                     "API,..:K=V: APIs that need header K with value V; may be repeated");
  command.add_option("--grpc-restricted-protocol", access.grpc_groups,
                     "API,..:K=V: rpcs that need metadata triton-grpc-protocol-K with value V; may "
                     "be repeated");
  command.add_option("--http-cors-origin", access.origins,
                     "web pages of it may use the HTTP port; * = of any; may be repeated");
  command.add_option("--allowed-host", access.hosts,
                     "name that clients may call the server by (header Host), beside localhost and "
                     "the address of --host; * = any; may be repeated");
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
  CLI::Option* const enable = command.get_option("--enable-lora");
  CLI::Option* const load =
      command
          .add_option("--lora-load-dir", options.lora_load_dir,
                      "/v1/load_lora_adapter may load adapters from folders inside this one")
          ->check(CLI::ExistingDirectory);
  command.get_option("--max-lora-rank")
      ->check([with, enable, load](const std::string&) -> std::string {
        return with->count() + enable->count() + load->count() > 0
                   ? ""
                   : "needs --lora, --lora-load-dir or --enable-lora";
      });
}

void declare_openai(CLI::App& command, front::OpenAiOptions& openai) {
  command
      .add_option("--tool-call-parser", openai.tool_parser,
                  "how the model writes tool calls: auto (as its chat template teaches) | none | "
                  "a format's name")
      ->capture_default_str();
  command.add_flag("--ollama", openai.ollama,
                   "answer Ollama's /api/chat, /api/generate, /api/tags and /api/show too");
  command.add_flag(
      "--strict-fields", openai.strict_fields,
      "refuse OpenAI requests with fields that are not known; default: a Warning header");
  command.add_flag("--trust-request-chat-template", openai.request_templates,
                   "requests may bring a chat_template of their own");
  command
      .add_option("--response-store-bytes", openai.response_store_bytes,
                  "answers of /v1/responses kept for later requests; 0 = none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 50))
      ->capture_default_str();
  command
      .add_option("--reasoning-parser", openai.reasoning_parser,
                  "how the model sets reasoning apart from answers: auto | none | a format's name")
      ->capture_default_str();
  command
      .add_option("--generation-config", openai.generation_config,
                  "sampling options that a request leaves out: none (OpenAI's defaults) | auto "
                  "(those of the checkpoint's generation_config.json)")
      ->capture_default_str();
  command
      .add_option("--pooling", openai.pooling,
                  "embeddings of a text are made of: auto (as the checkpoint's files for "
                  "sentence-transformers say, else last) | last (its last token) | mean")
      ->capture_default_str();
}

}  // namespace

void declare_serve_flags(CLI::App& command, ServeOptions& options) {
  options.model.declare(command);
  declare_ports(command, options);
  declare_limits(command, options);
  declare_access(command, options);
  declare_lora(command, options);
  declare_openai(command, options.process.http.openai);
  command.add_option("--model-name,--served-model-name", options.model_name,
                     "model id of the OpenAI endpoints; default: the folder's name");
  command.add_flag("--any-model-name", options.process.http.openai.any_model_name,
                   "requests that name a model which is not there get the served one");
  command
      .add_option("--exit-timeout-secs", options.exit_timeout_seconds,
                  "how long running requests may take to finish after SIGTERM")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command.add_option("--tokenizer", options.tokenizer,
                     "folder of the tokenizer's files; default: the model's own");
  command.add_option("--chat-template", options.chat_template,
                     "a Jinja file, or the template itself; default: the tokenizer's own");
  options.process.backend_dir = default_backend_dir();
  command
      .add_option("--backend-directory", options.process.backend_dir,
                  "where libtriton_*.so are found")
      ->capture_default_str();
  command.add_option("--port-file", options.port_file,
                     "write http=PORT, metrics=PORT and grpc=PORT here when ready");
}

}  // namespace nereid::cli
