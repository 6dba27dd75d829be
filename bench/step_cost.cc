// Time of bare steps of a model on a device, without scheduler: beside what memory allows, and call
// by call.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/testing/source_dir.h"
#include "convert/engine_cache.h"
#include "exec/adapter_pool.h"
#include "exec/measure.h"
#include "exec/rank_group.h"
#include "exec/step_message.h"
#include "io/engine_file.h"
#include "kernels/open.h"
#include "kernels/roofline.h"
#include "runtime/ranks.h"

namespace nereid::bench {
namespace {

struct Options {
  std::string model = source_dir() + "/models/quickstart";
  std::string device = "cpu";
  std::string cache_dir;
  std::vector<int32_t> batches = {1, 8, 64};
  int32_t context = 1024;
  int32_t tokens = 1;
  std::vector<int32_t> prompts = {0};
  int32_t steps = 50;
  int32_t max_tokens = 8192;
  int32_t block_tokens = 32;
  int32_t adapters = 0, adapter_rank = 16;
  std::vector<std::string> kernels;
  std::string kv_type = "bf16", weights = "auto", head_weights = "auto", expert_weights = "auto",
              sampling = "greedy";
  bool random_weights = false, profile = false;
  ExecutorConfig ranks;  // tensor_parallel, pipeline_parallel, expert_parallel, devices
};

size_t bytes_of(const exec::Runner& runner, std::string_view what) {
  size_t sum = 0;
  for (const exec::MemoryItem& item : runner.memory())
    if (item.what == what) sum += item.bytes;
  return sum;
}

// Of an adapter that has every module.
std::vector<exec::LoraMatrixInfo> all_matrices(std::span<const io::AdapterModule> modules,
                                               int32_t rank) {
  std::vector<exec::LoraMatrixInfo> matrices;
  for (int32_t i = 0; i < std::ssize(modules); ++i) matrices.push_back({i, rank, 1.0f});
  return matrices;
}

// Fills all places with adapters of made-up weights for every module, part by part.
Status load_adapters(std::span<const io::AdapterModule> modules, exec::Runner& runner) {
  const exec::RunnerLimits& limits = runner.limits();
  const auto matrices = all_matrices(modules, limits.max_adapter_rank);
  int64_t num_weights = 0;
  for (const io::AdapterModule& m : modules) num_weights += limits.max_adapter_rank * (m.k + m.n);
  std::vector<std::byte> message;
  for (int32_t i = 0; i < limits.num_adapters; ++i)
    for (int64_t first = 0; first < num_weights;) {
      const int64_t count = std::min(num_weights - first, exec::max_load_weights(limits));
      exec::StepMessage step;
      step.adapter_loads = {{.adapter = i,
                             .num_matrices = static_cast<int32_t>(matrices.size()),
                             .first_page = i,
                             .num_weights = static_cast<int32_t>(count),
                             .first_weight = first}};
      step.adapter_matrices = matrices;
      step.adapter_weights.assign(static_cast<size_t>(count), to_bf16(0.001f));
      exec::encode(step, message);
      ASSIGN_OR_RETURN(exec::Ticket ticket, runner.launch(message));
      RETURN_IF_ERROR(runner.wait(ticket).status());
      first += count;
    }
  return ok();
}

// How rows draw their tokens.
std::optional<kernels::SampleParams> sampling_of(std::string_view name) {
  if (name == "none") return std::nullopt;
  kernels::SampleParams params;  // greedy
  if (name == "top_p") params.top_p = 0.95f;
  if (name == "top_k") params.top_k = 50;
  return params;
}

// For all batches of the options.
StatusOr<exec::RunnerLimits> limits_of(const Options& o, const std::filesystem::path& engine) {
  exec::RunnerLimits limits;
  const int32_t longest = *std::max_element(o.prompts.begin(), o.prompts.end());
  limits.max_rows = *std::max_element(o.batches.begin(), o.batches.end()) + (longest > 0 ? 1 : 0);
  limits.max_tokens = std::max(o.max_tokens, limits.max_rows);
  limits.max_sequence_length = std::max(o.context + o.tokens, longest);
  limits.block_tokens = o.block_tokens;
  if (o.adapters > 0) {  // each has a page
    ASSIGN_OR_RETURN(const auto file, io::EngineFile::open(engine));
    const auto& modules = file.plan().modules;
    limits.num_adapters = limits.num_adapter_pages = o.adapters;
    limits.max_adapter_rank = o.adapter_rank;
    limits.adapter_page_numbers =
        exec::adapter_numbers(modules, all_matrices(modules, o.adapter_rank));
  }
  limits.kv_type = o.kv_type == "fp8"    ? DType::kF8E4M3
                   : o.kv_type == "int8" ? DType::kI8
                                         : DType::kBF16;
  for (int32_t& blocks : limits.num_blocks.of)
    blocks = limits.max_rows * ((limits.max_sequence_length - 1) / limits.block_tokens + 1);
  return limits;
}

// A model on its devices.
struct Opened {
  std::vector<kernels::OpenedDevice> devices;
  std::filesystem::path engine;  // of the first rank
  Health health{[] { return std::string("the ranks"); }};
  std::unique_ptr<exec::Runner> runner;
};

Status open(const Options& o, Opened& out) {
  ExecutorConfig config = o.ranks;
  config.device = o.device;
  ASSIGN_OR_RETURN(io::Mapping mapping, runtime::read_mapping(config));
  ASSIGN_OR_RETURN(out.devices, runtime::open_devices(config, mapping.world()));
  std::vector<const kernels::OpenedDevice*> devices;
  std::vector<std::filesystem::path> engines;
  for (const kernels::OpenedDevice& opened : out.devices) {
    mapping.rank = static_cast<int32_t>(devices.size());
    convert::BuildOptions build;
    build.cache_dir = o.cache_dir;
    build.random_weights = o.random_weights;
    build.measure_on = opened.device.get();
    build.compile.forced = o.kernels;
    build.compile.adapters = o.adapters > 0;
    build.compile.mapping = mapping;
    RETURN_IF_ERROR(
        convert::read_weight_formats(o.weights, o.head_weights, o.expert_weights, build.compile));
    ASSIGN_OR_RETURN(engines.emplace_back(), convert::ensure_engine(o.model, opened.registry,
                                                                    opened.device->info(), build));
    devices.push_back(&opened);
  }
  out.engine = engines[0];
  ASSIGN_OR_RETURN(const exec::RunnerLimits limits, limits_of(o, out.engine));
  if (mapping.is_single()) {
    ASSIGN_OR_RETURN(out.runner, exec::make_runner(out.engine, *out.devices[0].device,
                                                   out.devices[0].registry, limits));
    return ok();
  }
  ASSIGN_OR_RETURN(auto comms, runtime::join_ranks(config, mapping, devices));
  std::vector<exec::RankGroup::Rank> ranks;
  for (size_t r = 0; r < devices.size(); ++r) {
    ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(engines[r]));
    Device& device = *devices[r]->device;
    ASSIGN_OR_RETURN(auto runner, exec::make_runner(std::move(file), device, devices[r]->registry,
                                                    limits, {}, std::move(comms[r])));
    ranks.push_back({std::move(runner), &device, device.info().kind != DeviceKind::kCpu});
  }
  out.runner = std::make_unique<exec::RankGroup>(std::move(ranks), out.health);
  return ok();
}

Status measure(const Options& o) {
  Opened model;
  RETURN_IF_ERROR(open(o, model));
  const auto& path = model.engine;
  const kernels::OpenedDevice& opened = model.devices[0];
  const auto& runner = model.runner;
  const exec::RunnerLimits& limits = runner->limits();
  ASSIGN_OR_RETURN(const kernels::Roofline roofline, kernels::measure_roofline(*opened.device));
  if (o.adapters > 0) {
    ASSIGN_OR_RETURN(const auto file, io::EngineFile::open(path));
    RETURN_IF_ERROR(load_adapters(file.plan().modules, *runner));
  }
  const auto weights = static_cast<double>(bytes_of(*runner, "weights"));
  const auto cache = static_cast<double>(bytes_of(*runner, "KV cache"));
  fmt::print("{} {} {:.0f} GB/s; weights {:.2f} GB, {} positions of KV cache {:.2f} GB\n",
             opened.device->info().name,
             opened.device->info().kind == DeviceKind::kCpu ? "reads" : "copies",
             roofline.read_bytes_per_s / 1e9, weights / 1e9,
             int64_t{limits.max_rows} * limits.max_sequence_length, cache / 1e9);
  exec::StepLimits limits_of_device{.read_bytes_per_s = roofline.read_bytes_per_s};
  for (const auto& [kernel, per_s] : roofline.flops_by_kernel)
    limits_of_device.flops_per_s[kernel] = per_s;
  for (const int32_t batch : o.batches)
    for (const int32_t prompt : o.prompts) {
      ASSIGN_OR_RETURN(
          const exec::StepCost cost,
          exec::measure_steps(
              *runner, {batch, o.context, o.tokens, prompt, o.adapters, sampling_of(o.sampling)},
              o.steps));
      const auto bytes = static_cast<double>(cost.bytes()) / std::ssize(model.devices);
      const double least = bytes / roofline.read_bytes_per_s;
      fmt::print("batch {:>4}, {} tokens after {}", batch, o.tokens, o.context);
      if (prompt > 0) fmt::print(", beside a prompt of {}", prompt);
      fmt::print(
          ": {:.3f} ms, {:.1f} tokens/s; {:.2f} GB a device read once: {:.3f} ms, {:.2f} of it "
          "reached\n",
          cost.seconds * 1e3, (batch * o.tokens + prompt) / cost.seconds, bytes / 1e9, least * 1e3,
          least / cost.seconds);
      if (o.profile) fmt::print("{}", cost.table(limits_of_device));
      std::fflush(stdout);
    }
  return ok();
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Options o;
  CLI::App app("time of bare steps, medians");
  app.add_option("--model", o.model, "model directory")->capture_default_str();
  app.add_option("--device", o.device, "cpu or cuda:N")->capture_default_str();
  app.add_option("--devices", o.ranks.devices, "of the ranks, as for nereid serve");
  app.add_option("--tp", o.ranks.tensor_parallel, "tensor ranks")->capture_default_str();
  app.add_option("--pp", o.ranks.pipeline_parallel, "stages")->capture_default_str();
  app.add_option("--ep", o.ranks.expert_parallel, "expert ranks")->capture_default_str();
  app.add_option("--cache-dir", o.cache_dir, "where built engines are kept");
  app.add_option("--batch", o.batches, "sequences")->delimiter(',')->capture_default_str();
  app.add_option("--context", o.context, "cached positions of each")->capture_default_str();
  app.add_option("--tokens", o.tokens, "new tokens of each; more than 1 = prefill")
      ->capture_default_str();
  app.add_option("--prompt-beside", o.prompts,
                 "tokens of a prompt that one more row begins in the same step; 0: no such row")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--max-tokens", o.max_tokens, "tokens of a step")->capture_default_str();
  app.add_option("--block-tokens", o.block_tokens, "positions of a block")->capture_default_str();
  app.add_option("--kv-cache-type", o.kv_type, "bf16 | int8 | fp8")
      ->check(CLI::IsMember({"bf16", "int8", "fp8"}))
      ->capture_default_str();
  app.add_option("--weights", o.weights, "auto | int8 | int4 | w8a8 | fp8")->capture_default_str();
  app.add_option("--head-weights", o.head_weights, "likewise, of the head")->capture_default_str();
  app.add_option("--expert-weights", o.expert_weights, "likewise, of experts, or mxfp4");
  app.add_option("--sampling", o.sampling, "how a token of each row is drawn")
      ->check(CLI::IsMember({"none", "greedy", "top_p", "top_k"}))
      ->capture_default_str();
  app.add_option("--kernel", o.kernels, "force a kernel, op:name; may be repeated");
  app.add_option("--adapters", o.adapters, "LoRA adapters that the rows have in turn; 0 = none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--adapter-rank", o.adapter_rank, "of each")->capture_default_str();
  app.add_option("--steps", o.steps, "steps for each figure")->capture_default_str();
  app.add_flag("--random-weights", o.random_weights, "a config.json without weights is enough");
  app.add_flag("--profile", o.profile, "call by call, each waited for");
  CLI11_PARSE(app, argc, argv);
  const nereid::Status status = nereid::bench::measure(o);
  if (!status.ok()) fmt::print(stderr, "step_cost: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
