// Command line and runs of trtllm-bench; see trtllm_bench.h. Flags and report:
// TensorRT-LLM's bench package.
#include "cli/tools/trtllm_bench.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>

#include <fmt/ranges.h>

#include "base/file.h"
#include "base/json_members.h"
#include "base/log.h"
#include "cli/flags/arg_table.h"
#include "cli/load/bench_report.h"
#include "cli/load/dataset.h"
#include "cli/process/launched.h"
#include "cli/tools/prepare_dataset.h"
#include "cli/tools/tools.h"
#include "convert/engine_dir.h"
#include "kernels/open.h"
#include "runtime/engine_limits.h"
#include "runtime/ranks.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::cli {
namespace {

using enum ArgKind;
using enum config::Use;

// Flags before the subcommand.
constexpr ArgFlag kGroupFlags[] = {
    {"--model,-m", kText, kActed, "", "", "the model's folder, or its name beside --model_path"},
    {"--model_path", kText, kActed, "", "", "folder of the model"},
    {"--workspace,-w", kText, kIgnored, "", "/tmp", "engines are in the cache folder"},
    {"--log_level", kChoice, kActed, "internal_error|error|warning|info|verbose|debug|trace",
     "warning", "least severe messages that are logged"},
    {"--revision,--hf_revision", kText, kIgnored, "", "", "the model is a folder here"},
};

constexpr ArgFlag kSharedFlags[] = {
    {"--engine_dir", kText, kActed, "", "", "engine directory; default: --model_path, or --model"},
    {"--device", kText, kActed, "", "auto", "auto, cpu or cuda:N"},
    {"--threads", kInteger, kActed, "", "0", "CPU compute threads; 0: one for each core", "",
     in(0, INT32_MAX)},
    {"--backend", kChoice, kIgnored, "pytorch|tensorrt|_autodeploy", "pytorch",
     "there is one backend"},
    {"--extra_llm_api_options,--config", kText, kOnly, "", "", "YAML file with options"},
    {"--kv_cache_free_gpu_mem_fraction", kNumber, kActed, "", "",
     "KV cache as a share of the memory free after weights and buffers; default: a smaller share"},
    {"--max_seq_len", kInteger, kActed, "", "0",
     "most tokens of a sequence; 0: the model's maximum", "", in(0, INT32_MAX)},
    {"--dataset", kText, kActed, "", "", "file of JSON lines; default: standard input"},
    {"--num_requests", kInteger, kActed, "", "0",
     "number of requests, from the dataset's start; 0: all", "", in(0, INT32_MAX)},
    {"--warmup", kInteger, kActed, "", "2", "requests that run first and are not counted", "",
     in(0, INT32_MAX)},
    {"--beam_width", kInteger, kActed, "", "1", "width of beam search", "", in(1, 16)},
    {"--report_json", kText, kActed, "", "", "write the report as JSON to this file"},
    {"--iteration_log", kText, kActed, "", "", "write a JSON line for each step to this file"},
    {"--modality", kText, kOnly, "", "", "images, videos"},
    {"--max_input_len", kInteger, kIgnored, "", "4096", "limit for prompts with images"},
    {"--tp,-tp", kInteger, kActed, "", "1", "ranks that share matrices", "", in(1, io::kMaxRanks)},
    {"--pp,-pp", kInteger, kActed, "", "1", "ranks that share layers", "", in(1, io::kMaxRanks)},
    {"--ep", kInteger, kActed, "", "1", "groups of ranks that share experts", "",
     in(1, io::kMaxRanks)},
    {"--cluster_size", kInteger, kOnly, "", "1", "devices that share experts"},
};

constexpr ArgFlag kThroughputFlags[] = {
    {"--max_batch_size", kInteger, kActed, "", "0",
     "sequences in a step; 0: the engine's limit, or 32", "", in(0, 1 << 20)},
    {"--max_num_tokens", kInteger, kActed, "", "0",
     "tokens in a step; 0: the engine's limit, or 2048", "", in(0, 1 << 20)},
    {"--eos_id", kInteger, kActed, "", "-1", "token that ends an output; -1: none does"},
    {"--concurrency", kInteger, kActed, "", "-1", "most requests in flight; below 1: all"},
    {"--streaming", kFlag, kActed, "", "", "stream tokens, and report their times"},
    {"--scheduler_policy", kChoice, kActed, "guaranteed_no_evict|max_utilization|static_batch",
     "guaranteed_no_evict", "which waiting sequences start, by free KV cache"},
    {"--output_json", kText, kActed, "", "",
     "write the outputs' texts by request number to this file"},
    {"--request_json", kText, kActed, "", "",
     "write each request's times and token counts to this file"},
    {"--enable_chunked_context", kFlag, kIgnored, "", "", "long prompts are always divided"},
    {"--target_input_len", kInteger, kIgnored, "", "", "input length that an engine is tuned for"},
    {"--target_output_len", kInteger, kIgnored, "", "",
     "output length that an engine is tuned for"},
};

constexpr ArgFlag kLatencyFlags[] = {
    {"--concurrency", kInteger, kActed, "", "1", "most requests in flight"},
    {"--medusa_choices", kText, kOnly, "", "", "YAML file"},
};

std::vector<ArgFlag> table_of(std::span<const ArgFlag> own) {
  std::vector<ArgFlag> out(std::begin(kGroupFlags), std::end(kGroupFlags));
  out.insert(out.end(), std::begin(kSharedFlags), std::end(kSharedFlags));
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

// The index of the subcommand: the first word that is no flag of the group and no flag's value.
size_t subcommand_at(const std::vector<std::string>& arguments) {
  size_t i = 0;
  while (i < arguments.size() && arguments[i].starts_with('-'))
    i += arguments[i].find('=') == std::string::npos && arguments[i] != "-h" &&
                 arguments[i] != "--help"
             ? 2
             : 1;
  return std::min(i, arguments.size());
}

// Sets the model's folder and the loading options.
Status take_model(const Args& args, BenchPlan& plan) {
  plan.model_name = args.text("--model");
  plan.model_dir = args.given("--model_path") ? args.text("--model_path") : plan.model_name;
  plan.is_engine = args.given("--engine_dir");
  plan.model.model_dir = plan.is_engine ? args.text("--engine_dir") : plan.model_dir;
  std::error_code error;
  if (!std::filesystem::exists(plan.model.model_dir, error))
    return not_found(
        "'{}' is no folder or file here; models are not fetched by name: give "
        "--model_path or --engine_dir",
        plan.model.model_dir.string().substr(0, 200));
  return ok();
}

Status take_executor(const Args& args, bool is_latency, BenchPlan& plan) {
  ModelOptions& model = plan.model;
  ExecutorConfig& config = model.executor;
  config.device = args.text("--device");
  config.num_threads = static_cast<int32_t>(args.integer("--threads"));
  config.tensor_parallel = args.text("--tp");
  config.pipeline_parallel = static_cast<int32_t>(args.integer("--pp"));
  config.expert_parallel = static_cast<int32_t>(args.integer("--ep"));
  config.max_sequence_length = static_cast<int32_t>(args.integer("--max_seq_len"));
  config.max_beam_width = static_cast<int32_t>(args.integer("--beam_width"));
  // Random prompts are not found again, and warming up must not help.
  config.kv_cache.enable_block_reuse = false;
  if (args.given("--kv_cache_free_gpu_mem_fraction")) {
    const double fraction = args.number("--kv_cache_free_gpu_mem_fraction");
    if (!(fraction > 0 && fraction <= 1))
      return invalid_argument("argument --kv_cache_free_gpu_mem_fraction: {} is not in (0, 1]",
                              fraction);
    config.kv_cache.memory_fraction = fraction;
  }
  model.log_level = log_level_of(args.text("--log_level"));
  plan.scheduling_policy = is_latency ? "guaranteed_no_evict" : args.text("--scheduler_policy");
  RETURN_IF_ERROR(
      config::parse(*config::find(config::engine_options(config), "scheduler.capacity_policy"),
                    plan.scheduling_policy));
  if (is_latency) {
    config.max_batch_size = config.max_beam_width;
    config.max_num_tokens = 0;
  } else {
    config.max_batch_size = static_cast<int32_t>(args.integer("--max_batch_size"));
    config.max_num_tokens = static_cast<int32_t>(args.integer("--max_num_tokens"));
  }
  return ok();
}

void take_load(const Args& args, bool is_latency, BenchPlan& plan) {
  plan.load = {.concurrency = std::max<int64_t>(0, args.integer("--concurrency")),
               .streaming = is_latency || args.is_on("--streaming"),
               .beam_width = plan.model.executor.max_beam_width};
  plan.dataset = args.text("--dataset");
  plan.num_requests = args.integer("--num_requests");
  plan.warmup = args.integer("--warmup");
  plan.report_json = args.text("--report_json");
  plan.iteration_log = args.text("--iteration_log");
  if (!plan.iteration_log.empty()) plan.model.executor.iter_stats_max_iterations = 1 << 20;
  if (is_latency) return;
  if (args.integer("--eos_id") >= 0)
    plan.load.end_id = static_cast<TokenId>(args.integer("--eos_id"));
  plan.output_json = args.text("--output_json");
  plan.request_json = args.text("--request_json");
}

StatusOr<std::vector<BenchRequest>> read_requests(const BenchPlan& plan,
                                                  const text::Tokenizer& tokenizer) {
  StatusOr<std::vector<BenchRequest>> requests =
      plan.dataset.empty()
          ? parse_dataset(std::string(std::istreambuf_iterator<char>(std::cin), {}))
          : read_dataset(plan.dataset);
  if (!requests.ok())
    return plan.dataset.empty() ? annotate(requests.status(), "standard input") : requests.status();
  if (plan.num_requests > 0 && plan.num_requests < std::ssize(*requests))
    requests->resize(static_cast<size_t>(plan.num_requests));
  for (BenchRequest& request : *requests)
    if (request.input_ids.empty()) {
      ASSIGN_OR_RETURN(request.input_ids, tokenizer.encode(request.prompt));
    }
  return requests;
}

Status check_fits(const std::vector<BenchRequest>& requests, const Executor& executor) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t length = std::ssize(requests[i].input_ids) + requests[i].output_tokens;
    if (length > executor.max_sequence_length())
      return invalid_argument(
          "request {} has {} tokens of input and output; a sequence has at "
          "most {}",
          i, length, executor.max_sequence_length());
  }
  return ok();
}

// A string of the model's config.json, or of its "pretrained_config".
std::string of_config(const std::filesystem::path& dir, std::string_view key) {
  const StatusOr<json::value> config = read_json_file(dir / "config.json");
  if (!config.ok()) return "";
  const json::value& inner = member_or_null(*config, "pretrained_config");
  return text_member(inner.is_object() ? inner : *config, key);
}

StatusOr<BenchSetup> setup_of(const BenchPlan& plan, Executor& executor) {
  ExecutorConfig config = plan.model.executor;
  RETURN_IF_ERROR(runtime::apply_engine_limits(plan.model.model_dir, config).status());
  ASSIGN_OR_RETURN(
      kernels::OpenedDevice opened,
      kernels::open_device(runtime::first_device(config), {config.num_threads, config.isa}));
  const DeviceInfo info = opened.device->info();
  BenchSetup setup = {.model = plan.model_name,
                      .model_path = plan.model_dir,
                      .engine_dir = plan.is_engine ? plan.model.model_dir.string() : "",
                      .dtype = of_config(plan.model.model_dir, "torch_dtype"),
                      .max_sequence_length = executor.max_sequence_length(),
                      .device_name = info.name,
                      .device_bytes = info.memory_bytes,
                      .scheduling_policy = plan.scheduling_policy,
                      .kv_cache_fraction = plan.model.executor.kv_cache.memory_fraction.value_or(0),
                      .dataset = plan.dataset.empty() ? "stdin" : plan.dataset,
                      .streaming = plan.load.streaming};
  ASSIGN_OR_RETURN(const io::Mapping mapping, runtime::mapping_of(plan.model.model_dir, config));
  setup.tp = mapping.tp, setup.pp = mapping.pp, setup.ep = mapping.ep;
  if (setup.dtype.empty()) setup.dtype = of_config(plan.model.model_dir, "dtype");
  return setup;
}

json::array request_list(const std::vector<RequestRecord>& records,
                         const text::Tokenizer& tokenizer) {
  const auto ns = [](double s) { return static_cast<int64_t>(s * 1e9); };
  json::array out;
  for (const RequestRecord& record : records)
    out.push_back(
        json::object{{"id", out.size()},
                     {"num_input_tokens", record.input_tokens},
                     {"num_output_tokens", record.output_tokens},
                     {"start_timestamp", ns(record.begin_s)},
                     {"first_token_timestamp", ns(record.first_s)},
                     {"end_timestamp", ns(record.end_s)},
                     {"time_to_first_token", ns(record.ttft_s())},
                     {"intertoken_latency", record.tpot_s() * 1e9},
                     {"end_to_end_latency", ns(record.latency_s())},
                     {"output", tokenizer.decode(record.token_ids, /*skip_special_tokens=*/true)},
                     {"output_tokens", record.token_ids.size()}});
  return out;
}

json::object output_texts(const std::vector<RequestRecord>& records,
                          const text::Tokenizer& tokenizer) {
  json::object out;
  for (size_t i = 0; i < records.size(); ++i)
    out[std::to_string(i)] = tokenizer.decode(records[i].token_ids, /*skip_special_tokens=*/true);
  return out;
}

Status write_json(const std::string& path, const json::value& value) {
  return path.empty() ? ok() : write_file_atomic(path, json::serialize(value) + "\n");
}

Status run_bench(BenchPlan& plan) {
  RETURN_IF_ERROR(plan.model.finish());
  if (!plan.ignored.empty())
    log_warn("these flags have no effect here: {}", fmt::join(plan.ignored, " "));
  std::filesystem::path tokenizer_dir = plan.model_dir;
  if (!text::Tokenizer::has_files(tokenizer_dir)) {
    ASSIGN_OR_RETURN(tokenizer_dir, convert::tokenizer_dir(plan.model.model_dir));
  }
  ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::load(tokenizer_dir));
  ASSIGN_OR_RETURN(const auto launched, join_launched_processes());
  ASSIGN_OR_RETURN(const std::vector<BenchRequest> requests, read_requests(plan, *tokenizer));
  plan.model.executor.max_queue_size =
      std::max(plan.model.executor.max_queue_size, static_cast<int32_t>(requests.size()));
  ASSIGN_OR_RETURN(const auto executor,
                   Executor::create(plan.model.model_dir, plan.model.executor));
  RETURN_IF_ERROR(check_fits(requests, *executor));
  std::vector<BenchRequest> first;
  for (int64_t i = 0; i < std::min<int64_t>(plan.warmup, 1 << 16); ++i)
    first.push_back(requests[static_cast<size_t>(i) % requests.size()]);
  RETURN_IF_ERROR(run_on_executor(*executor, first, plan.load).status());
  executor->latest_iteration_stats();  // drops the warm-up's
  ASSIGN_OR_RETURN(const std::vector<RequestRecord> records,
                   run_on_executor(*executor, requests, plan.load));

  const std::vector<IterationStats> steps = executor->latest_iteration_stats();
  ASSIGN_OR_RETURN(BenchSetup setup, setup_of(plan, *executor));
  if (!steps.empty()) {
    setup.max_batch_size = steps.back().max_batch_size;
    setup.max_num_tokens = steps.back().max_num_tokens;
  }
  const json::object report = bench_report(setup, records);
  fmt::print("{}", bench_report_text(report));
  RETURN_IF_ERROR(write_json(plan.report_json, report));
  RETURN_IF_ERROR(write_json(plan.output_json, output_texts(records, *tokenizer)));
  RETURN_IF_ERROR(write_json(plan.request_json, request_list(records, *tokenizer)));
  if (plan.iteration_log.empty()) return ok();
  std::string lines;
  for (const IterationStats& step : steps) lines += to_json(step) + "\n";
  return write_file_atomic(plan.iteration_log, lines);
}

}  // namespace

StatusOr<BenchPlan> plan_trtllm_bench(const std::vector<std::string>& arguments) {
  const size_t at = subcommand_at(arguments);
  const std::string subcommand = at < arguments.size() ? arguments[at] : "";
  std::vector<std::string> rest(arguments.begin(), arguments.begin() + static_cast<ptrdiff_t>(at));
  const std::vector<std::string> own(
      arguments.begin() + static_cast<ptrdiff_t>(std::min(at + 1, arguments.size())),
      arguments.end());
  BenchPlan plan;
  if (subcommand == "prepare-dataset") {
    ASSIGN_OR_RETURN(const Args group, Args::parse({"trtllm-bench", kGroupFlags}, rest));
    const std::string& path = group.text(group.given("--model_path") ? "--model_path" : "--model");
    if (!path.empty()) plan.for_dataset = {"--tokenizer", path};
    plan.for_dataset.insert(plan.for_dataset.end(), own.begin(), own.end());
    return plan;
  }
  const bool is_latency = subcommand == "latency";
  if (subcommand == "build")
    return unsupported(
        "subcommand 'build' is not supported: engines are built on first use, or by "
        "trtllm-build; allowed: throughput, latency, prepare-dataset");
  if (!is_latency && subcommand != "throughput" && !subcommand.empty())
    return invalid_argument(
        "No such command '{}' (choose from 'throughput', 'latency', "
        "'prepare-dataset')",
        subcommand.substr(0, 80));
  const std::vector<ArgFlag> flags =
      is_latency ? table_of(kLatencyFlags) : table_of(kThroughputFlags);
  const ArgTable table = {"trtllm-bench [throughput|latency|prepare-dataset]", flags};
  rest.insert(rest.end(), own.begin(), own.end());
  ASSIGN_OR_RETURN(const Args args, Args::parse(table, rest));
  if (args.wants_help() || subcommand.empty()) {
    if (!args.wants_help()) return invalid_argument("Missing command");
    plan.help = help_text(table);
    return plan;
  }
  if (!args.given("--model")) return invalid_argument("Missing option '-m' / '--model'");
  RETURN_IF_ERROR(take_model(args, plan));
  RETURN_IF_ERROR(take_executor(args, is_latency, plan));
  take_load(args, is_latency, plan);
  plan.ignored = args.ignored();
  return plan;
}

int trtllm_bench_main(int argc, char** argv) {
  StatusOr<BenchPlan> plan = plan_trtllm_bench({argv + std::min(argc, 1), argv + argc});
  Status status = plan.status();
  if (status.ok()) {
    if (!plan->help.empty()) {
      fmt::print("{}", plan->help);
      return 0;
    }
    if (!plan->for_dataset.empty()) return run_prepare_dataset(plan->for_dataset);
    status = run_bench(*plan);
    if (status.ok()) return 0;
  }
  fmt::print(stderr, "trtllm-bench: error: {}\n", message(status));
  return !plan.ok() && absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace nereid::cli
