// nereid bench: prefill and decode speed of a model on this machine, with the machine's
// own limits beside.
#include "cli/commands/bench.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/queue.h"
#include "base/rng.h"
#include "cli/commands/commands.h"
#include "cli/flags/options.h"
#include "cli/process/launched.h"
#include "exec/measure.h"
#include "kernels/open.h"
#include "kernels/roofline.h"
#include "runtime/engine_limits.h"
#include "runtime/model_instance.h"
#include "runtime/ranks.h"

namespace nereid::cli {
namespace {

struct BenchOptions {
  ModelOptions model;
  std::vector<int32_t> batches = {1, 2, 4, 8, 16, 32};
  int32_t requests = 0;
  int32_t prompt_tokens = 512;
  int32_t new_tokens = 128;
  int32_t repeats = 3;
  std::string step_trace;  // output file; empty: none
  std::string dtype;       // weights' type; empty: as --weights
  bool profile = false;
};

// Arrival times of one request's tokens.
struct Timeline {
  std::vector<Time> tokens;
  Status status;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The input of a case: the prompt, or what the encoder of an encoder-decoder model reads.
void set_prompt(const Executor& executor, const BenchCase& what, uint64_t seed, int32_t index,
                Request& request) {
  const auto number = [&](int64_t i) {
    return philox(seed, static_cast<uint64_t>(i), static_cast<uint64_t>(index))[0];
  };
  const EncoderFacts encoder = executor.encoder();
  std::vector<TokenId> ids(encoder.feature_width > 0 ? 0 : static_cast<size_t>(what.prompt_tokens));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<TokenId>(number(static_cast<int64_t>(i)) %
                                  static_cast<uint32_t>(executor.vocab_size()));
  if (encoder.max_length == 0) {
    request.input_token_ids = std::move(ids);
    return;
  }
  EncoderInput& input = request.encoder_input.emplace();
  input.token_ids = std::move(ids);
  input.features.resize(static_cast<size_t>(2 * what.prompt_tokens * encoder.feature_width));
  for (size_t i = 0; i < input.features.size(); ++i)
    input.features[i] = static_cast<float>(number(static_cast<int64_t>(i)) % 2048) / 1024 - 1;
  request.input_token_ids = encoder.decoder_prompt();
  if (request.input_token_ids.empty()) request.input_token_ids = {0};
}

StatusOr<std::vector<Timeline>> run_requests(Executor& executor, const BenchCase& what,
                                             uint64_t seed) {
  struct Shared {
    std::mutex mutex;
    std::vector<Timeline> lines;
    Queue<int> done;
  };
  auto shared = std::make_shared<Shared>();
  shared->lines.resize(what.batch);
  for (int32_t i = 0; i < what.batch; ++i) {
    Request request;
    set_prompt(executor, what, seed, i, request);
    request.max_tokens = what.new_tokens;
    request.streaming = true;
    request.sampling.top_k = 1;
    const auto on_response = [shared, i](Response response) {
      const Time at = now();
      std::lock_guard lock(shared->mutex);
      Timeline& line = shared->lines[i];
      for (const SequenceOutput& output : response.outputs)
        line.tokens.insert(line.tokens.end(), output.token_ids.size(), at);
      if (!response.status.ok()) line.status = response.status;
      if (response.is_final) shared->done.push(i);
    };
    RETURN_IF_ERROR(executor.enqueue(std::move(request), on_response).status());
  }
  for (int32_t i = 0; i < what.batch; ++i) shared->done.take();
  std::lock_guard lock(shared->mutex);
  for (const Timeline& line : shared->lines) {
    RETURN_IF_ERROR(line.status);
    if (line.tokens.size() != static_cast<size_t>(what.new_tokens))
      return internal_error("a request gave {} of {} tokens", line.tokens.size(), what.new_tokens);
  }
  return std::move(shared->lines);
}

}  // namespace

StatusOr<BenchResult> run_case(Executor& executor, const BenchCase& what, uint64_t seed) {
  const Time start = now();
  ASSIGN_OR_RETURN(const std::vector<Timeline> lines, run_requests(executor, what, seed));
  Time last_first = start, first_last = lines[0].tokens.back(), last = start;
  for (const Timeline& line : lines) {
    last_first = std::max(last_first, line.tokens.front());
    first_last = std::min(first_last, line.tokens.back());
    last = std::max(last, line.tokens.back());
  }
  int64_t decoded = 0;
  std::vector<double> gaps;
  for (const Timeline& line : lines)
    for (size_t i = 1; i < line.tokens.size(); ++i) {
      if (line.tokens[i] <= last_first || line.tokens[i] > first_last) continue;
      ++decoded;
      gaps.push_back(seconds(line.tokens[i] - line.tokens[i - 1]));
    }
  BenchResult result{.what = what};
  result.prefill_tokens_per_s =
      double(what.prompt_tokens) * what.batch / seconds(last_first - start);
  result.output_tokens_per_s = double(what.new_tokens) * what.batch / seconds(last - start);
  const double window = seconds(first_last - last_first);
  result.decode_tokens_per_s = window > 0 ? decoded / window : 0;
  result.step_seconds = median(std::move(gaps));
  return result;
}

std::string step_timeline(std::span<const IterationStats> steps) {
  json::array events;
  const auto add = [&](json::object event) {
    event["pid"] = 1;
    events.push_back(std::move(event));
  };
  add({{"ph", "M"}, {"name", "process_name"}, {"args", {{"name", "nereid bench"}}}});
  for (const IterationStats& s : steps) {
    const double end =
        std::chrono::duration<double, std::micro>(s.timestamp - steps[0].timestamp).count();
    const double duration = 1e3 * s.iter_latency_ms;
    const char* const name = s.num_ctx_tokens == 0     ? "decode"
                             : s.num_gen_requests == 0 ? "prompts"
                                                       : "prompts + decode";
    json::object args = {{"step", s.iter},
                         {"prompt_tokens", s.num_ctx_tokens},
                         {"prompts", s.num_context_requests},
                         {"decoding", s.num_gen_requests}};
    add({{"ph", "X"},
         {"tid", 1},
         {"name", name},
         {"ts", end - duration},
         {"dur", duration},
         {"args", std::move(args)}});
    args = {{"active", s.num_active_requests}, {"queued", s.num_queued_requests}};
    add({{"ph", "C"}, {"name", "requests"}, {"ts", end}, {"args", std::move(args)}});
    args = {{"used", s.kv_used_blocks}};
    add({{"ph", "C"}, {"name", "KV blocks"}, {"ts", end}, {"args", std::move(args)}});
  }
  return json::serialize(events) + "\n";
}

void reset_peak_rss() {
  std::ofstream("/proc/self/clear_refs") << "5";  // Linux: resets VmHWM
}

int64_t peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int64_t kib = 0; word == "VmHWM:" && status >> kib) return kib * 1024;
  return 0;
}

namespace {

// Bytes of weights that a step reads at the rate of one device: of all ranks on a CPU, of the
// largest one on GPUs.
double read_bytes(const Executor& executor, const DeviceInfo& device) {
  std::map<int32_t, int64_t> by_rank;
  for (const MemoryUse& use : executor.memory())
    if (use.what == "weights") by_rank[use.rank] += use.bytes;
  int64_t sum = 0, most = 0;
  for (const auto& [rank, bytes] : by_rank) sum += bytes, most = std::max(most, bytes);
  return static_cast<double>(device.kind == DeviceKind::kCpu ? sum : most);
}

Status check_fits(const BenchOptions& options, const Executor& executor) {
  if (const EncoderFacts encoder = executor.encoder(); encoder.max_length > 0) {
    if (options.prompt_tokens > encoder.max_length)
      return invalid_argument("--prompt-tokens {} exceeds the {} positions of the model's encoder",
                              options.prompt_tokens, encoder.max_length);
    if (2 + options.new_tokens <= executor.max_sequence_length()) return ok();
    return invalid_argument("--new-tokens {} exceeds the {} positions of the model's decoder",
                            options.new_tokens, executor.max_sequence_length());
  }
  if (options.prompt_tokens + options.new_tokens <= executor.max_sequence_length()) return ok();
  return invalid_argument("--prompt-tokens {} and --new-tokens {} exceed the model's {} positions",
                          options.prompt_tokens, options.new_tokens,
                          executor.max_sequence_length());
}

void print_machine(const DeviceInfo& info, const kernels::Roofline& roofline, double weight_bytes) {
  fmt::print("{} ({}), {} compute units, reads {:.1f} GB/s", info.name, info.id(), info.num_units,
             roofline.read_bytes_per_s / 1e9);
  for (const auto& [kernel, per_s] : roofline.flops_by_kernel)
    fmt::print(", {} {:.0f} GFLOP/s", kernel, per_s / 1e9);
  fmt::print("; weights {:.1f} MB\n", weight_bytes / 1e6);
}

// Prints the load of each layer's experts (--expert-load).
void print_expert_load(const Executor& executor) {
  for (const ExpertLoad& load : executor.expert_load()) {
    const int64_t sum = std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0});
    const auto most = std::ranges::max_element(load.tokens);
    if (sum == 0) continue;
    const auto even = static_cast<double>(sum) / static_cast<double>(load.tokens.size());
    fmt::print(
        "experts of layer {}: most tokens to expert {}, {:.2f} times an even share; {} of {} got "
        "none\n",
        load.layer, most - load.tokens.begin(), static_cast<double>(*most) / even,
        std::ranges::count(load.tokens, 0), load.tokens.size());
  }
}

// Prints the time of bare steps of each batch size and of a prompt, kernel call by kernel call.
Status print_profile(const BenchOptions& options, const kernels::Roofline& roofline) {
  constexpr int32_t kSteps = 20, kPromptSteps = 3;
  ASSIGN_OR_RETURN(const runtime::ModelInstance model,
                   runtime::open_model(options.model.model_dir, options.model.executor));
  exec::StepLimits limits{.read_bytes_per_s = roofline.read_bytes_per_s};
  for (const auto& [kernel, per_s] : roofline.flops_by_kernel) limits.flops_per_s[kernel] = per_s;
  for (const int32_t batch : options.batches) {
    const int32_t rows = std::min(batch, model.runner->limits().max_rows);
    ASSIGN_OR_RETURN(const exec::StepCost cost,
                     exec::measure_steps(*model.runner, {rows, options.prompt_tokens}, kSteps));
    const auto bytes = static_cast<double>(cost.bytes());
    fmt::print(
        "a step of {} sequences after {} tokens: {:.3f} ms, reads {:.2f} GB, {:.1f}% of the read "
        "rate; its calls one by one:\n{}",
        rows, options.prompt_tokens, cost.seconds * 1e3, bytes / 1e9,
        100 * bytes / cost.seconds / roofline.read_bytes_per_s, cost.table(limits));
    std::fflush(stdout);
  }
  const int32_t tokens = std::min(options.prompt_tokens, model.runner->limits().max_tokens);
  ASSIGN_OR_RETURN(
      const exec::StepCost cost,
      exec::measure_steps(*model.runner, {.context = 0, .tokens_per_row = tokens}, kPromptSteps));
  fmt::print("a step of a prompt's first {} tokens: {:.3f} ms; its calls one by one:\n{}", tokens,
             cost.seconds * 1e3, cost.table(limits));
  return ok();
}

Status bench(BenchOptions& options) {
  if (!options.dtype.empty()) options.model.executor.weights = options.dtype;
  RETURN_IF_ERROR(options.model.finish());
  ExecutorConfig& config = options.model.executor;
  config.kv_cache.enable_block_reuse = false;
  if (!options.step_trace.empty()) config.iter_stats_max_iterations = 1 << 20;
  if (options.requests > 0)
    options.batches = {options.requests};
  else
    config.max_batch_size = std::max(
        config.max_batch_size, *std::max_element(options.batches.begin(), options.batches.end()));
  ASSIGN_OR_RETURN(const auto launched, join_launched_processes());
  RETURN_IF_ERROR(runtime::apply_engine_limits(options.model.model_dir, config).status());
  ASSIGN_OR_RETURN(
      kernels::OpenedDevice opened,
      kernels::open_device(runtime::first_device(config), {config.num_threads, config.isa}));
  ASSIGN_OR_RETURN(const kernels::Roofline roofline, kernels::measure_roofline(*opened.device));
  const DeviceInfo info = opened.device->info();
  opened.device.reset();
  reset_peak_rss();  // the probe's own memory is not the model's
  ASSIGN_OR_RETURN(auto executor, Executor::create(options.model.model_dir, config));
  RETURN_IF_ERROR(check_fits(options, *executor));
  if (options.profile && executor->encoder().max_length > 0)
    return unsupported("--profile: not for encoder-decoder models, whose steps need an encoder");

  const double weight_bytes = read_bytes(*executor, info);
  print_machine(info, roofline, weight_bytes);
  fmt::print("{:>6} {:>7} {:>6} {:>14} {:>14} {:>14} {:>10} {:>12}\n", "batch", "prompt", "new",
             "prefill tok/s", "decode tok/s", "output tok/s", "step ms", "% of read");
  std::optional<ProgressBar> bar;
  bar.emplace("bench", std::ssize(options.batches) * options.repeats, ProgressUnit::kCount);
  for (const int32_t batch : options.batches) {
    std::vector<double> prefill, decode, output, step;
    for (int32_t repeat = 0; repeat < options.repeats; ++repeat, bar->add(1)) {
      ASSIGN_OR_RETURN(
          const BenchResult result,
          run_case(*executor, {batch, options.prompt_tokens, options.new_tokens}, 1 + repeat));
      prefill.push_back(result.prefill_tokens_per_s);
      decode.push_back(result.decode_tokens_per_s);
      output.push_back(result.output_tokens_per_s);
      step.push_back(result.step_seconds);
    }
    const double step_seconds = median(step);
    bar->hide();
    fmt::print(
        "{:>6} {:>7} {:>6} {:>14.1f} {:>14.1f} {:>14.1f} {:>10.3f} {:>11.1f}%\n", batch,
        options.prompt_tokens, options.new_tokens, median(prefill), median(decode), median(output),
        step_seconds * 1e3,
        step_seconds > 0 ? 100 * weight_bytes / step_seconds / roofline.read_bytes_per_s : 0.0);
    std::fflush(stdout);
  }
  bar.reset();
  if (!options.step_trace.empty())
    RETURN_IF_ERROR(
        write_file_atomic(options.step_trace, step_timeline(executor->latest_iteration_stats())));
  fmt::print(
      "% of read: weight bytes over step time, as a share of the measured read rate\npeak RSS "
      "{:.1f} MiB\n",
      peak_rss_bytes() / 1048576.0);
  print_expert_load(*executor);
  if (!options.profile) return ok();
  executor.reset();
  return print_profile(options, roofline);
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("bench", "measure prefill and decode speed of a model on this machine");
  auto options = std::make_shared<BenchOptions>();
  options->model.log_level = "warn";
  options->model.declare(*command);
  command->add_option("--batch", options->batches, "batch sizes, comma separated")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      ->add_option("--requests", options->requests,
                   "send this many requests at once instead of the batches; as many run together "
                   "as --max-batch-size and memory allow")
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--prompt-tokens", options->prompt_tokens,
                   "tokens of each prompt; of an encoder-decoder model the positions of its "
                   "encoder's input (of sound 20 ms each)")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_option("--new-tokens", options->new_tokens, "tokens to generate for each request")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "runs of each case; medians are printed")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--step-trace", options->step_trace,
                      "write a timeline of the steps to this file, for ui.perfetto.dev");
  command->add_option("--dtype", options->dtype, "the same as --weights: bf16 | int8 | int4 | fp8")
      ->check(CLI::IsMember({"bf16", "int8", "int4", "fp8"}))
      ->excludes("--weights");
  command->add_flag(
      "--profile", options->profile,
      "also print the time of each kind of kernel call in a step, and the bytes that it reads");
  command->callback([options, &exit_code] {
    if (const Status status = bench(*options); !status.ok()) exit_code = fail(status);
  });
}

}  // namespace nereid::cli
