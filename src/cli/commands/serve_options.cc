#include "cli/commands/serve_options.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>

namespace nereid::cli {
namespace {

void declare_ports(CLI::App& command, ServeOptions& options) {
  auto& http = options.process.http;
  command
      .add_option("--host", http.host,
                  "address to listen on; 0.0.0.0 = all addresses of this machine")
      ->capture_default_str();
  command.add_option("--http-port,--port", http.http_port, "HTTP port; 0 = any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command
      .add_option("--metrics-port", http.metrics_port,
                  "port of the Prometheus metrics page; 0 = any free one, -1 = off")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  command
      .add_option("--grpc-port", options.process.grpc.port,
                  "gRPC port (KServe v2, health, reflection); 0 = any free one, -1 = off")
      ->check(CLI::Range(-1, 65535))
      ->capture_default_str();
  command
      .add_option("--http-thread-count", http.threads,
                  "HTTP event loops, each on a thread of its own")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

void declare_limits(CLI::App& command, ServeOptions& options) {
  auto& http = options.process.http;
  command
      .add_option("--http-max-input-size", http.max_body_bytes,
                  "largest HTTP request body, in bytes")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option("--grpc-max-message-bytes", options.process.grpc.max_message_bytes,
                  "largest gRPC request message, in bytes")
      ->check(CLI::Range(1, INT32_MAX))
      ->capture_default_str();
  command
      .add_option("--client-memory-bytes", options.process.client_memory_bytes,
                  "most bytes of requests and replies in memory, HTTP and gRPC together; beyond, "
                  "large requests are refused with 503")
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 50))
      ->capture_default_str();
  command.add_flag("--allow-client-shm", options.process.allow_client_shm,
                   "let clients of this machine pass tensors in shared memory");
}

void declare_access(CLI::App& command, ServeOptions& options) {
  AccessFlags& access = options.access;
  command.add_option(
      "--api-key", options.process.api_keys,
      "key that HTTP and gRPC requests must have (Authorization: Bearer KEY); may be repeated");
  command.add_option("--api-key-file", options.process.api_key_file,
                     "file with a key, or sha256:<hex> of one, on each line, followed by its "
                     "limits, such as requests_per_minute=60; read again on change");
  command.add_option("--admin-key", options.process.admin_keys,
                     "key of an administrator, which allows to change log and trace settings and "
                     "to load adapters; may be repeated");
  command.add_option("--http-restricted-api", access.http_groups,
                     "API,..:K=V: requests to these APIs need header K with value V, such as "
                     "model-repository:admin-key=SECRET; may be repeated");
  command.add_option("--grpc-restricted-protocol", access.grpc_groups,
                     "API,..:K=V: rpcs of these APIs need metadata triton-grpc-protocol-K with "
                     "value V; may be repeated");
  command.add_option("--http-cors-origin", access.origins,
                     "origin of web pages that may use the HTTP port, such as https://example.com; "
                     "* = any; may be repeated");
  command.add_option("--allowed-host", access.hosts,
                     "value of the Host header that is accepted beside localhost and the address "
                     "of --host; * = any; may be repeated");
  command.add_option("--tls-server-cert", access.tls.server_cert,
                     "PEM file: all ports use TLS with this certificate; read again on change, "
                     "like the other two files");
  command.add_option("--tls-server-key", access.tls.server_key,
                     "PEM file: the certificate's private key");
  command.add_option("--tls-root-cert", access.tls.root_cert,
                     "PEM file: clients must present a certificate signed by this one");
}

void declare_lora(CLI::App& command, ServeOptions& options) {
  CLI::Option* const with =
      command.add_option("--lora", options.lora,
                         "name=DIR: a LoRA adapter (PEFT folder) that OpenAI requests select by "
                         "this model name; may be repeated");
  CLI::Option* const enable =
      command.add_flag("--enable-lora", options.enable_lora,
                       "accept LoRA adapters in requests (input lora_weights)");
  CLI::Option* const load =
      command
          .add_option("--lora-load-dir", options.lora_load_dir,
                      "folder below which /v1/load_lora_adapter may load adapters")
          ->check(CLI::ExistingDirectory);
  command
      .add_option("--max-lora-rank", options.max_lora_rank,
                  "largest rank of an adapter; each adapter slot takes device memory for it")
      ->check(CLI::Range(1, 512))
      ->capture_default_str()
      ->check([with, enable, load](const std::string&) -> std::string {
        return with->count() + enable->count() + load->count() > 0
                   ? ""
                   : "needs --lora, --lora-load-dir or --enable-lora";
      });
}

void declare_openai(CLI::App& command, front::OpenAiOptions& openai) {
  command
      .add_option("--tool-call-parser", openai.tool_parser,
                  "format of the model's tool calls: auto (the one in its chat template) | none | "
                  "a format's name, such as hermes")
      ->capture_default_str();
  command.add_flag(
      "--ollama", openai.ollama,
      "add Ollama's routes: /api/chat, /api/generate, /api/tags, /api/show and others");
  command.add_flag(
      "--strict-fields", openai.strict_fields,
      "refuse OpenAI requests with unknown fields; default: answer them with a Warning header");
  command.add_flag("--trust-request-chat-template", openai.request_templates,
                   "accept a chat_template in requests");
  command
      .add_option("--response-store-bytes", openai.response_store_bytes,
                  "bytes of answers of /v1/responses kept for later requests; 0 = none are kept")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 50))
      ->capture_default_str();
  command
      .add_option("--reasoning-parser", openai.reasoning_parser,
                  "format of the model's reasoning: auto (the one in its chat template) | none | a "
                  "format's name, such as qwen3")
      ->capture_default_str();
  command
      .add_option("--generation-config", openai.generation_config,
                  "sampling options that a request does not set: none (OpenAI's defaults) | auto "
                  "(those of the checkpoint's generation_config.json)")
      ->capture_default_str();
  command
      .add_option("--pooling", openai.pooling,
                  "embedding of a text: auto (the method in the checkpoint's sentence-transformers "
                  "files, else last) | last (state of the last token) | mean (of all tokens)")
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
                   "answer requests for an unknown model with the served one");
  command
      .add_option("--exit-timeout-secs", options.exit_timeout_seconds,
                  "seconds that running requests may take to finish after SIGTERM")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command.add_option("--tokenizer", options.tokenizer,
                     "folder of the tokenizer's files; default: the model's folder");
  command.add_option("--chat-template", options.chat_template,
                     "chat template: a Jinja file, or its text; default: the tokenizer's");
  options.process.backend_dir = default_backend_dir();
  command
      .add_option("--backend-directory", options.process.backend_dir,
                  "folder of the backends libtriton_*.so")
      ->capture_default_str();
  command.add_option(
      "--port-file", options.port_file,
      "file that gets lines http=PORT, metrics=PORT and grpc=PORT once the server is ready");
}

}  // namespace nereid::cli
