// Flags of Triton's OpenAI front end; see openai_frontend.h. Source:
// python/openai/openai_frontend/main.py of the Triton server.
#include "cli/triton/openai_frontend.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/ranges.h>

#include "base/log.h"
#include "cli/flags/arg_table.h"
#include "cli/tools/tools.h"
#include "cli/triton/tritonserver.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::cli {
namespace {

using enum ArgKind;
using enum config::Use;

constexpr ArgFlag kFrontendFlags[] = {
    {"--model-repository", kText, kActed, "", "", "folder of the models; required"},
    {"--tokenizer", kText, kActed, "", "",
     "folder with tokenizer and chat template; default: the preprocessing model's"},
    {"--backend", kChoice, kOnly, "vllm|tensorrtllm", "tensorrtllm", "backend of the models"},
    {"--lora-separator", kText, kOnly, "", "", "separator of a model's and an adapter's name"},
    {"--tritonserver-log-verbose-level", kInteger, kActed, "", "0", "above 0: log debug messages"},
    {"--host", kText, kActed, "", "0.0.0.0", "address to listen on"},
    {"--tool-call-parser", kText, kActed, "", "none",
     "format of the model's tool calls: llama3, mistral, auto (the one in its chat template) or "
     "another one of `nereid serve --tool-call-parser`"},
    {"--max-tool-call-parse-bytes", kInteger, kIgnored, "", "", "a call has at most 128 KiB here"},
    {"--chat-template", kText, kOnly, "", "", "the tokenizer's folder has it"},
    {"--default-max-tokens", kInteger, kActed, "", "16",
     "new tokens of requests without a limit; fewer where the context has less room", "",
     in(1, INT32_MAX)},
    {"--model-control-mode", kChoice, kActed, "none|explicit", "none",
     "explicit: --load-model and clients choose the loaded models"},
    {"--load-model", kList, kActed, "", "",
     "models to load at the start, with --model-control-mode explicit"},
    {"--openai-port", kInteger, kActed, "", "9000", "port of OpenAI's API and the metrics"},
    {"--uvicorn-log-level", kChoice, kIgnored, "debug|info|warning|error|critical|trace", "info",
     "--tritonserver-log-verbose-level sets the log level"},
    {"--openai-restricted-api", kList, kActed, "", "",
     "APIS KEY VALUE: these APIs (inference, health, metrics, separated by commas) need header KEY "
     "with VALUE"},
    {"--http-max-input-size", kInteger, kActed, "", "67108864", "largest body, in bytes"},
    {"--enable-kserve-frontends", kFlag, kActed, "", "",
     "also open KServe's ports for HTTP and gRPC"},
    {"--no-ui", kFlag, kActed, "", "", "turns off the web page that browsers get at /"},
    {"--kserve-http-port", kInteger, kActed, "", "8000", "with --enable-kserve-frontends", "",
     in(0, 65535)},
    {"--kserve-grpc-port", kInteger, kActed, "", "8001", "with --enable-kserve-frontends"},
};
const ArgTable kFrontendTable{"openai_frontend", kFrontendFlags};

// "inference,metrics KEY VALUE" as a value of --http-restricted-api.
StatusOr<std::string> restriction(const std::string& list) {
  const std::vector<std::string> words = config::split(list, ' ');
  if (words.size() != 3)
    return invalid_argument("argument --openai-restricted-api: expected 3 arguments, got {}",
                            words.size());
  std::string apis;
  for (const std::string& api : config::split(words[0], ',')) {
    if (api != "inference" && api != "health" && api != "metrics")
      return unsupported(
          "--openai-restricted-api: '{}' is not supported yet; allowed: inference, "
          "health, metrics",
          api.substr(0, 80));
    apis += fmt::format("{}{}", apis.empty() ? "" : ",", api == "metrics" ? "statistics" : api);
  }
  return fmt::format("{}:{}={}", apis, words[1], words[2]);
}

StatusOr<std::vector<std::string>> triton_words(const Args& args) {
  const std::string& host = args.text("--host");
  std::vector<std::string> words = {"--metrics-port=0"};
  const auto add = [&](const char* flag, const std::string& value) {
    words.push_back(fmt::format("--{}={}", flag, value));
  };
  add("model-repository", args.text("--model-repository"));
  add("http-address", host);
  add("http-port", args.text("--openai-port"));
  add("http-max-input-size", args.text("--http-max-input-size"));
  add("model-control-mode", args.text("--model-control-mode"));
  for (const std::string& model : config::split(args.text("--load-model"), ' '))
    add("load-model", model);
  if (args.integer("--tritonserver-log-verbose-level") > 0)
    add("log-verbose", args.text("--tritonserver-log-verbose-level"));
  if (args.is_on("--enable-kserve-frontends")) {
    add("grpc-address", host);
    add("grpc-port", args.text("--kserve-grpc-port"));
  } else {
    add("allow-grpc", "false");
  }
  if (args.given("--openai-restricted-api")) {
    ASSIGN_OR_RETURN(const std::string group, restriction(args.text("--openai-restricted-api")));
    add("http-restricted-api", group);
  }
  return words;
}

Status take_openai(const Args& args, front::HttpOptions& http) {
  http.allow_kserve = false;
  const std::string& parser = args.text("--tool-call-parser");
  http.openai.tool_parser = parser == "llama3" ? "llama3_json" : parser;
  http.openai.default_max_tokens = args.integer("--default-max-tokens");
  http.openai.fastapi_errors = true;
  http.openai.strict_fields = true;
  http.openai.web_page = !args.is_on("--no-ui");
  http.openai.tokenizer_dir = args.text("--tokenizer");
  std::error_code error;
  if (!http.openai.tokenizer_dir.empty() && !text::Tokenizer::has_files(http.openai.tokenizer_dir))
    return not_found(
        "argument --tokenizer: '{}' is no folder with a tokenizer here; tokenizers "
        "are not fetched by name",
        http.openai.tokenizer_dir.substr(0, 200));
  return ok();
}

}  // namespace

StatusOr<FrontendPlan> plan_openai_frontend(const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(const Args args, Args::parse(kFrontendTable, arguments));
  FrontendPlan plan;
  plan.wants_help = args.wants_help();
  if (plan.wants_help) return plan;
  if (!args.given("--model-repository"))
    return invalid_argument("the following arguments are required: --model-repository");
  ASSIGN_OR_RETURN(const std::vector<std::string> words, triton_words(args));
  ASSIGN_OR_RETURN(plan.options, parse_triton_flags(words));
  plan.options.port_flags = {"--openai-port", "--host", "--kserve-http-port", "--kserve-grpc-port",
                             "--host"};
  plan.options.allow_metrics = false;  // no metrics port of its own: the OpenAI port has them
  RETURN_IF_ERROR(take_openai(args, plan.options.http));
  if (args.is_on("--enable-kserve-frontends"))
    plan.options.kserve_http_port = static_cast<int>(args.integer("--kserve-http-port"));
  plan.ignored = args.ignored();
  return plan;
}

int openai_frontend_main(int argc, char** argv) {
  const auto plan = plan_openai_frontend({argv + std::min(argc, 1), argv + argc});
  if (!plan.ok()) {
    fmt::print(stderr, "openai_frontend: error: {}\n", message(plan.status()));
    return absl::IsInvalidArgument(plan.status()) ? 2 : 1;
  }
  if (plan->wants_help) {
    fmt::print("{}", help_text(kFrontendTable));
    return 0;
  }
  if (!plan->ignored.empty())
    log_warn("these options have no effect here: {}", fmt::join(plan->ignored, " "));
  // Log lines of the original's web server, for which scripts wait.
  fmt::print(stderr, "INFO:     Started server process [{}]\n", ::getpid());
  fmt::print(stderr, "INFO:     Waiting for application startup.\n");
  return serve_repository(plan->options, [&plan](int port) {
    fmt::print(stderr, "INFO:     Application startup complete.\n");
    fmt::print(stderr, "INFO:     Uvicorn running on http://{}:{} (Press CTRL+C to quit)\n",
               plan->options.http.host, port);
  });
}

}  // namespace nereid::cli
