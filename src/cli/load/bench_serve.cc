// nereid bench-serve: measures any running server with OpenAI's API.
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <cmath>
#include <memory>

#include "base/file.h"
#include "cli/commands/commands.h"
#include "cli/flags/options.h"
#include "cli/load/report.h"

namespace nereid::cli {
namespace {

struct BenchServeOptions {
  LoadOptions load;
  std::string url, endpoint = "completions", extra_body = "{}", dataset, tokenizer, report_json;
  std::vector<std::string> goodput;
  std::vector<double> percentiles = {50, 90, 95, 99};
  int64_t num_requests = 0, input_len = 512, output_len = 128, num_warmups = 0;
  double range_ratio = 0;
  bool no_stream = false, prompt_ids = false;
};

StatusOr<std::shared_ptr<const text::Tokenizer>> tokenizer_of(const BenchServeOptions& options) {
  if (options.tokenizer.empty()) return std::shared_ptr<const text::Tokenizer>();
  return text::Tokenizer::load(options.tokenizer);
}

// Random prompts with lengths in [len * (1 - ratio), len * (1 + ratio)].
StatusOr<std::vector<BenchRequest>> random_requests(const BenchServeOptions& options) {
  ASSIGN_OR_RETURN(const auto tokenizer, tokenizer_of(options));
  const int64_t count = options.num_requests > 0 ? options.num_requests : 100;
  const auto lengths = [&](int64_t length, uint64_t lane) {
    const double spread = static_cast<double>(length) * options.range_ratio;
    const auto low = static_cast<int64_t>(std::ceil(static_cast<double>(length) - spread));
    const auto high = static_cast<int64_t>(std::floor(static_cast<double>(length) + spread));
    return uniform_lengths(count, std::max<int64_t>(1, low), std::max<int64_t>(1, high),
                           options.load.seed, lane);
  };
  const auto inputs = lengths(options.input_len, 1), outputs = lengths(options.output_len, 2);
  std::vector<BenchRequest> requests;
  for (int64_t i = 0; i < count; ++i) {
    BenchRequest request{.task_id = i, .output_tokens = outputs[i]};
    const auto lane = static_cast<uint64_t>(i) + 3;
    if (options.prompt_ids) {
      request.input_ids = random_ids(inputs[i], tokenizer->vocab_size(), options.load.seed, lane);
    } else {
      request.prompt = random_text(inputs[i], tokenizer.get(), options.load.seed, lane);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

StatusOr<std::vector<BenchRequest>> requests_of(const BenchServeOptions& options) {
  if (options.dataset.empty()) return random_requests(options);
  ASSIGN_OR_RETURN(std::vector<BenchRequest> requests, read_dataset(options.dataset));
  if (options.num_requests > 0 && options.num_requests < static_cast<int64_t>(requests.size()))
    requests.resize(static_cast<size_t>(options.num_requests));
  if (options.load.endpoint == Endpoint::kChat)
    for (const BenchRequest& request : requests)
      if (request.prompt.empty())
        return invalid_argument("{}: --endpoint chat needs prompts of text, not input_ids",
                                options.dataset);
  return requests;
}

Status finish(BenchServeOptions& options) {
  ASSIGN_OR_RETURN(options.load.url, front::parse_url(options.url));
  if (options.load.url.is_tls) {
    ASSIGN_OR_RETURN(options.load.tls, front::TlsClient::create(""));
  }
  options.load.endpoint = options.endpoint == "chat" ? Endpoint::kChat : Endpoint::kCompletions;
  options.load.streaming = !options.no_stream;
  if (options.prompt_ids && options.load.endpoint == Endpoint::kChat)
    return invalid_argument("--prompt-ids: chat takes text; allowed with --endpoint completions");
  if (options.prompt_ids && options.tokenizer.empty())
    return invalid_argument("--prompt-ids: needs --tokenizer, whose ids are drawn");
  ASSIGN_OR_RETURN(const json::value extra, parse_json(options.extra_body));
  if (!extra.is_object()) return invalid_argument("--extra-body: is not a JSON object");
  options.load.extra_body = extra.get_object();
  for (const double percent : options.percentiles)
    if (!(percent >= 0 && percent <= 100))
      return invalid_argument("--percentiles: {} is not in [0, 100]", percent);
  return ok();
}

Status bench_serve(BenchServeOptions& options) {
  RETURN_IF_ERROR(finish(options));
  ASSIGN_OR_RETURN(const Slo slo, parse_slo(options.goodput));
  ASSIGN_OR_RETURN(const std::vector<BenchRequest> requests, requests_of(options));
  if (options.load.model.empty()) {
    ASSIGN_OR_RETURN(options.load.model, first_model(options.load));
  }
  if (options.num_warmups > 0) {
    std::vector<BenchRequest> first;
    for (int64_t i = 0; i < options.num_warmups; ++i)
      first.push_back(requests[static_cast<size_t>(i) % requests.size()]);
    LoadOptions warmup = options.load;
    warmup.requests_per_s = 0;
    run_load(warmup, first);
  }
  const std::vector<Outcome> outcomes = run_load(options.load, requests);
  json::object report = load_report(outcomes, slo, options.percentiles);
  report["model"] = options.load.model;
  report["endpoint"] = options.endpoint;
  report["request_rate"] = options.load.requests_per_s;
  report["max_concurrency"] = options.load.max_concurrency;
  report["num_prompts"] = static_cast<int64_t>(requests.size());
  fmt::print("{}", load_report_text(report));
  if (!options.report_json.empty())
    RETURN_IF_ERROR(write_file_atomic(options.report_json, json::serialize(report) + "\n"));
  if (report.at("completed").get_int64() == 0)
    return unavailable("no request was completed: {}", outcomes.front().error);
  return ok();
}

void declare_requests(CLI::App& command, BenchServeOptions& options) {
  command.add_option("--dataset", options.dataset,
                     "file with a JSON object a line: prompt or input_ids, output_tokens; default: "
                     "random requests");
  command
      .add_option("--num-requests,--num-prompts", options.num_requests,
                  "number of requests; 0 = the whole dataset, or 100 random ones")
      ->check(CLI::Range(0, 10'000'000))
      ->capture_default_str();
  command.add_option("--input-len", options.input_len, "tokens of a random prompt")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--output-len", options.output_len, "max_tokens of a random request")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command
      .add_option("--range-ratio", options.range_ratio,
                  "random lengths are within this share of --input-len and --output-len")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command.add_option(
      "--tokenizer", options.tokenizer,
      "model folder, for random prompts of exactly --input-len tokens; default: as many words");
  command.add_flag("--prompt-ids", options.prompt_ids, "send token ids instead of text");
  command.add_option("--seed", options.load.seed, "seed of random prompts, lengths and arrivals")
      ->capture_default_str();
}

}  // namespace

void add_bench_serve(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("bench-serve", "measure any running server with OpenAI's API");
  auto options = std::make_shared<BenchServeOptions>();
  LoadOptions& load = options->load;
  command->add_option("url", options->url, "address of the server, http[s]://HOST:PORT")
      ->required();
  command->add_option("--endpoint", options->endpoint, "route to measure: completions | chat")
      ->check(CLI::IsMember({"completions", "chat"}))
      ->capture_default_str();
  command->add_option("--model", load.model,
                      "model name in requests; default: the first one that the server lists");
  command->add_option("--api-key", load.api_key, "API key, sent as Authorization: Bearer KEY");
  command
      ->add_option(
          "--request-rate", load.requests_per_s,
          "requests a second, at random times (Poisson); 0 = as fast as --max-concurrency allows")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command
      ->add_option("--max-concurrency,--concurrency", load.max_concurrency,
                   "most requests in flight; 0 = 2048")
      ->check(CLI::Range(int64_t{0}, kMaxLoadThreads))
      ->capture_default_str();
  declare_requests(*command, *options);
  command->add_flag("--no-stream", options->no_stream, "request whole answers instead of streams");
  command->add_flag("--ignore-eos", load.ignore_eos,
                    "request answers of full length (field ignore_eos, an extension)");
  command->add_option(
      "--extra-body", options->extra_body,
      "JSON object whose members are added to every request, such as {\"top_k\": 20}");
  command
      ->add_option("--num-warmups", options->num_warmups, "requests sent before the measured ones")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  command->add_option("--timeout", load.timeout_s, "seconds after which a request counts as failed")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  command->add_option("--goodput", options->goodput,
                      "limits such as ttft:500 tpot:50 e2el:2000 in ms: report the rate of "
                      "requests within all of them");
  command
      ->add_option("--percentiles", options->percentiles,
                   "percentiles in the report, comma separated")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--report-json", options->report_json,
                      "also write the report as JSON to this file");
  command->callback([options, &exit_code] {
    if (const Status status = bench_serve(*options); !status.ok()) exit_code = fail(status);
  });
}

}  // namespace nereid::cli
