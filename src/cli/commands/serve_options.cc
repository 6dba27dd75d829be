#include "cli/commands/serve_options.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>

#include "cli/flags/declare_flags.h"

namespace nereid::cli {
namespace {

using config::add_group;
using config::field;
using config::Options;

constexpr double kMaxPort = 65535;

std::string folder_problem(const std::string& name) { return CLI::ExistingDirectory(name); }

void add_ports(Options& options, ServeOptions& o) {
  front::HttpOptions& http = o.process.http;
  add_group(
      options, "Ports",
      {{.name = "host",
        .field = field(http.host),
        .help = "address to listen on; 0.0.0.0 = every one"},
       {.name = "http_port",
        .field = field(http.http_port),
        .help = "HTTP port; 0 = any free one",
        .range = {0, kMaxPort},
        .flag = "--http-port,--port"},
       {.name = "metrics_port",
        .field = field(http.metrics_port),
        .help = "Prometheus port; 0 = any free one, -1 = off",
        .range = {-1, kMaxPort}},
       {.name = "grpc_port",
        .field = field(o.process.grpc.port),
        .help = "gRPC port (KServe v2, health, reflection); 0 = any free one, -1 = off",
        .range = {-1, kMaxPort}},
       {.name = "http_thread_count",
        .field = field(http.threads),
        .help = "threads that serve HTTP",
        .range = {1, 256},
        .default_text = "one for each core, 2 to 8"},
       {.name = "port_file",
        .field = field(o.port_file),
        .help = "file that gets http=PORT, metrics=PORT and grpc=PORT when all ports answer"}});
}

void add_request_limits(Options& options, ServeOptions& o) {
  ServerProcessOptions& process = o.process;
  add_group(options, "Memory of requests",
            {{.name = "http_max_input_size",
              .field = field(process.http.max_body_bytes),
              .help = "largest HTTP body, in bytes",
              .range = {1, int64_t{1} << 40},
              .is_bytes = true},
             {.name = "grpc_max_message_bytes",
              .field = field(process.grpc.max_message_bytes),
              .help = "largest gRPC request message",
              .range = {1, INT32_MAX},
              .is_bytes = true},
             {.name = "client_memory_bytes",
              .field = field(process.client_memory_bytes),
              .help = "requests and replies held for clients of HTTP and gRPC together",
              .range = {1 << 20, int64_t{1} << 50},
              .is_bytes = true},
             {.name = "allow_client_shm",
              .field = field(process.allow_client_shm),
              .help = "clients may name shared memory of this machine"}});
}

void add_keys(Options& options, ServeOptions& o) {
  ServerProcessOptions& process = o.process;
  add_group(options, "Access",
            {{.name = "api_key",
              .field = field(process.api_keys),
              .help = "callers of HTTP and gRPC must show it (Authorization: Bearer KEY); may be "
                      "repeated",
              .is_secret = true},
             {.name = "api_key_file",
              .field = field(process.api_key_file),
              .help = "a key, or sha256:<hex> of one, on each line, and its limits; read again on "
                      "change"},
             {.name = "admin_key",
              .field = field(process.admin_keys),
              .help = "key of an administrator, who may change log and trace settings and load "
                      "adapters; may be repeated",
              .is_secret = true},
             {.name = "http_restricted_api",
              .field = field(o.access.http_groups),
              .help = "API,..:K=V: APIs that need header K with value V; may be repeated",
              .is_secret = true},
             {.name = "grpc_restricted_protocol",
              .field = field(o.access.grpc_groups),
              .help = "API,..:K=V: rpcs that need metadata triton-grpc-protocol-K with value V; "
                      "may be repeated",
              .is_secret = true}});
}

void add_origins_and_tls(Options& options, ServeOptions& o) {
  AccessFlags& access = o.access;
  add_group(options, "Access",
            {{.name = "http_cors_origin",
              .field = field(access.origins),
              .help = "origin whose web pages may use the HTTP port; * = any; may be repeated"},
             {.name = "allowed_host",
              .field = field(access.hosts),
              .help = "name that clients may call the server by (header Host), beside localhost "
                      "and the address of `host`; * = any; may be repeated"},
             {.name = "tls_server_cert",
              .field = field(access.tls.server_cert),
              .help = "PEM: every port speaks TLS with this certificate; read again on change, as "
                      "are the other two"},
             {.name = "tls_server_key",
              .field = field(access.tls.server_key),
              .help = "private key of --tls-server-cert, PEM"},
             {.name = "tls_root_cert",
              .field = field(access.tls.root_cert),
              .help = "PEM: clients must show a certificate that it has signed"}});
}

void add_names(Options& options, ServeOptions& o) {
  add_group(options, "Adapters (LoRA)",
            {{.name = "lora",
              .field = field(o.lora),
              .help = "name=DIR: a LoRA adapter, a PEFT folder, which OpenAI requests name as "
                      "their model; may be repeated"},
             {.name = "lora_load_dir",
              .field = field(o.lora_load_dir),
              .help = "/v1/load_lora_adapter may load adapters from folders inside this one",
              .problem = folder_problem}});
  add_group(options, "Model and text",
            {{.name = "model_name",
              .field = field(o.model_name),
              .help = "model id of the OpenAI endpoints",
              .flag = "--model-name,--served-model-name",
              .default_text = "the folder's name"},
             {.name = "any_model_name",
              .field = field(o.process.http.openai.any_model_name),
              .help = "requests that name a model which is not there get the served one"},
             {.name = "tokenizer",
              .field = field(o.tokenizer),
              .help = "folder of the tokenizer's files",
              .default_text = "the model's own"},
             {.name = "chat_template",
              .field = field(o.chat_template),
              .help = "a Jinja file, or the template itself",
              .default_text = "the tokenizer's own"}});
}

void add_openai(Options& options, ServeOptions& o) {
  front::OpenAiOptions& openai = o.process.http.openai;
  add_group(options, "APIs",
            {{.name = "tool_call_parser",
              .field = field(openai.tool_parser),
              .help = "how the model writes tool calls: auto (as its chat template teaches) | none "
                      "| a format's name"},
             {.name = "reasoning_parser",
              .field = field(openai.reasoning_parser),
              .help = "how the model sets reasoning apart from answers: auto | none | a format's "
                      "name"},
             {.name = "generation_config",
              .field = field(openai.generation_config),
              .help = "sampling options that a request leaves out: none (OpenAI's defaults) | auto "
                      "(those of the checkpoint's generation_config.json)"},
             {.name = "default_max_tokens",
              .field = field(openai.default_max_tokens),
              .help = "max_tokens of OpenAI requests that give none, at most what the context has "
                      "room for; 0 = that",
              .range = {0, INT32_MAX}},
             {.name = "pooling",
              .field = field(openai.pooling),
              .help = "embeddings of a text are made of: auto (as the checkpoint's files for "
                      "sentence-transformers say, else last) | last (its last token) | mean"},
             {.name = "allow_media_domain",
              .field = field(openai.media_domains),
              .help = "host from which pictures that requests name by URL are fetched, HOST or "
                      "HOST:PORT; without it only data URLs are taken; may be repeated"},
             {.name = "strict_fields",
              .field = field(openai.strict_fields),
              .help = "OpenAI requests with unknown fields are refused; otherwise they get a "
                      "Warning header"},
             {.name = "trust_request_chat_template",
              .field = field(openai.request_templates),
              .help = "requests may bring a chat_template of their own"},
             {.name = "response_store_bytes",
              .field = field(openai.response_store_bytes),
              .help = "answers of /v1/responses kept for later requests; 0 = none",
              .range = {0, int64_t{1} << 50},
              .is_bytes = true},
             {.name = "ollama",
              .field = field(openai.ollama),
              .help = "Ollama's API (/api/chat, /api/generate and so on) is answered too"},
             {.name = "ui",
              .field = field(o.ui),
              .help = "browsers get a web page with chats and live figures at /",
              .flag = "--no-ui"}});
}

void add_hosts(Options& options, HostFlags& hosts) {
  add_group(
      options, "Several hosts",
      {{.name = "hosts",
        .field = field(hosts.hosts),
        .help = "processes that run the model, one for each rank: this one and others, `nereid "
                "worker`, that join it; 0 = LWS_GROUP_SIZE, else 1",
        .range = {0, runtime::kMaxHosts}},
       {.name = "join_address",
        .field = field(hosts.address),
        .help = "HOST:PORT where this process accepts the others (nereid worker --join HOST:PORT)"},
       {.name = "join_token_file",
        .field = field(hosts.join.token_file),
        .help = "file with the secret text that all processes of the group share",
        .must_exist = true},
       {.name = "join_exchange",
        .field = field(hosts.exchange),
        .help = "how ranks exchange data: through shared memory if all processes are on this host, "
                "else TCP (auto) | TCP",
        .words = "auto|tcp"},
       {.name = "join_timeout_secs",
        .field = field(hosts.join.timeout_seconds),
        .help = "the start fails if the other processes have not joined after so long",
        .range = {1, 86400}},
       {.name = "join_tls_cert",
        .field = field(hosts.join.tls.cert),
        .help = "certificate of this process, PEM; with it the connections between the processes "
                "are TLS",
        .must_exist = true},
       {.name = "join_tls_key",
        .field = field(hosts.join.tls.key),
        .help = "private key of --join-tls-cert, PEM",
        .must_exist = true},
       {.name = "join_tls_root",
        .field = field(hosts.join.tls.root),
        .help =
            "root certificate, PEM, that must have signed the certificates of the other processes",
        .must_exist = true}});
}

void add_process(Options& options, ServeOptions& o) {
  add_group(options, "Process",
            {{.name = "exit_timeout_secs",
              .field = field(o.exit_timeout_seconds),
              .help = "how long running requests may take to finish after SIGTERM",
              .range = {0, 86400}},
             {.name = "backend_directory",
              .field = field(o.process.backend_dir),
              .help = "where libtriton_*.so are found",
              .default_text = "backends, beside the program's folder"}});
}

// A rank that nothing uses is a mistake of the command line.
void check_lora_flags(CLI::App& command) {
  const CLI::Option* const with = command.get_option("--lora");
  const CLI::Option* const enable = command.get_option("--enable-lora");
  const CLI::Option* const load = command.get_option("--lora-load-dir");
  command.get_option("--max-lora-rank")
      ->check([with, enable, load](const std::string&) -> std::string {
        return with->count() + enable->count() + load->count() > 0
                   ? ""
                   : "needs --lora, --lora-load-dir or --enable-lora";
      });
}

}  // namespace

Options server_options(ServeOptions& o) {
  Options options;
  add_ports(options, o);
  add_names(options, o);
  add_openai(options, o);
  add_keys(options, o);
  add_origins_and_tls(options, o);
  add_request_limits(options, o);
  add_hosts(options, o.hosts);
  add_process(options, o);
  return options;
}

void declare_serve_flags(CLI::App& command, ServeOptions& options) {
  options.process.backend_dir = default_backend_dir();
  options.model.server = server_options(options);
  options.model.declare(command);
  declare_flags(command, options.model.server);
  check_lora_flags(command);
}

}  // namespace nereid::cli
