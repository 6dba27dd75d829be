// Time to first token of a long prompt: fresh, and when an earlier request had the same beginning.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/testing/source_dir.h"
#include "stopwatch.h"

namespace nereid::bench {
namespace {

struct Options {
  std::string model = source_dir() + "/models/quickstart";
  std::string device = "cpu";
  int32_t prefix = 2000;
  int32_t suffix = 24;
  int32_t repeats = 11;
  int32_t threads = 0;
  bool random_weights = false;
};

StatusOr<Timing> time_one(Executor& executor, std::vector<TokenId> prompt) {
  std::vector<Request> requests(1);
  requests[0].input_token_ids = std::move(prompt);
  requests[0].max_tokens = 4;
  ASSIGN_OR_RETURN(const auto timings, run_timed(executor, std::move(requests)));
  return timings[0];
}

Status measure(const Options& o) {
  ExecutorConfig config;
  config.device = o.device;
  config.num_threads = o.threads;
  config.random_weights = o.random_weights;
  ASSIGN_OR_RETURN(const auto executor, Executor::create(o.model, config));
  std::vector<double> fresh, shared;
  int32_t reused = 0;
  for (int32_t repeat = 0; repeat < o.repeats; ++repeat) {
    const uint64_t seed = 3 * static_cast<uint64_t>(repeat);
    const std::vector<TokenId> prefix = random_tokens(*executor, o.prefix, seed);
    for (const bool again : {false, true}) {
      std::vector<TokenId> prompt = prefix;
      const auto suffix = random_tokens(*executor, o.suffix, seed + 1 + again);
      prompt.insert(prompt.end(), suffix.begin(), suffix.end());
      ASSIGN_OR_RETURN(const Timing timing, time_one(*executor, std::move(prompt)));
      (again ? shared : fresh).push_back(timing.first_token_seconds * 1e3);
      if (again) reused = timing.metrics.reused_blocks;
    }
  }
  fmt::print(
      "prompt of {} + {} tokens, {} repeats: first token after {:.2f} ms fresh, {:.2f} ms with the "
      "prefix cached ({} blocks reused); {:.1f} times faster\n",
      o.prefix, o.suffix, o.repeats, median(fresh), median(shared), reused,
      median(fresh) / median(shared));
  return ok();
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Options o;
  CLI::App app("time to first token with and without a cached prefix, medians");
  app.add_option("--model", o.model, "model directory")->capture_default_str();
  app.add_option("--device", o.device, "cpu or cuda:N")->capture_default_str();
  app.add_option("--prefix", o.prefix, "shared tokens")->capture_default_str();
  app.add_option("--suffix", o.suffix, "tokens of each prompt's own")->capture_default_str();
  app.add_option("--repeats", o.repeats, "pairs of requests")->capture_default_str();
  app.add_option("--threads", o.threads, "compute threads; 0 = one per core")
      ->capture_default_str();
  app.add_flag("--random-weights", o.random_weights, "a config.json without weights is enough");
  CLI11_PARSE(app, argc, argv);
  const nereid::Status status = nereid::bench::measure(o);
  if (!status.ok()) fmt::print(stderr, "kv_reuse: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
