// What it gains to prepare the next step while the device computes: decode speed with and without
// overlap, by turns on the same requests.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/testing/source_dir.h"
#include "stopwatch.h"

namespace nereid::bench {
namespace {

struct Options {
  std::string model = source_dir() + "/models/quickstart";
  std::string device = "cpu";
  std::vector<int32_t> batches = {1, 8, 32};
  int32_t new_tokens = 128;
  int32_t repeats = 9;
  int32_t threads = 1;
};

StatusOr<double> tokens_per_s(Executor& executor, int32_t batch, int32_t new_tokens,
                              uint64_t seed) {
  std::vector<Request> requests(static_cast<size_t>(batch));
  for (int32_t i = 0; i < batch; ++i) {
    requests[i].input_token_ids = random_tokens(executor, 16, seed + static_cast<uint64_t>(i));
    requests[i].max_tokens = new_tokens;
    requests[i].sampling.top_k = 40;
    requests[i].sampling.seed = seed;
  }
  const Time start = now();
  RETURN_IF_ERROR(run_timed(executor, std::move(requests)).status());
  return batch * new_tokens / seconds(now() - start);
}

Status measure(const Options& o) {
  ExecutorConfig config;
  config.device = o.device;
  config.num_threads = o.threads;
  config.kv_cache.enable_block_reuse = false;
  config.kv_cache.max_tokens = 16384;
  config.max_batch_size = *std::ranges::max_element(o.batches);
  ASSIGN_OR_RETURN(const auto with, Executor::create(o.model, config));
  config.enable_overlap = false;
  ASSIGN_OR_RETURN(const auto without, Executor::create(o.model, config));
  for (const int32_t batch : o.batches) {
    std::vector<double> on, off, gain;
    for (int32_t repeat = 0; repeat <= o.repeats; ++repeat) {
      const uint64_t seed = 1000 * static_cast<uint64_t>(repeat);
      ASSIGN_OR_RETURN(const double a, tokens_per_s(*with, batch, o.new_tokens, seed));
      ASSIGN_OR_RETURN(const double b, tokens_per_s(*without, batch, o.new_tokens, seed));
      if (repeat == 0) continue;  // warms up
      on.push_back(a);
      off.push_back(b);
      gain.push_back(a / b);
    }
    fmt::print("batch {:3}: {:8.0f} tok/s with overlap, {:8.0f} without; median gain {:+.1f} %\n",
               batch, median(on), median(off), (median(gain) - 1) * 100);
  }
  return ok();
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Options o;
  CLI::App app("decode speed with and without overlap of host and device work, medians");
  app.add_option("--model", o.model, "model directory")->capture_default_str();
  app.add_option("--device", o.device, "cpu or cuda:N")->capture_default_str();
  app.add_option("--batch", o.batches, "batch sizes")->delimiter(',')->capture_default_str();
  app.add_option("--new-tokens", o.new_tokens, "of each request")->capture_default_str();
  app.add_option("--repeats", o.repeats, "pairs of runs for each batch")->capture_default_str();
  app.add_option("--threads", o.threads, "compute threads; the host's work needs a core, too")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const nereid::Status status = nereid::bench::measure(o);
  if (!status.ok()) fmt::print(stderr, "overlap: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
