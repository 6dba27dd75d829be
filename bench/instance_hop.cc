// Cost of instances and orchestrator mode: choosing an instance, and messages to a rank's process
// and back.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/testing/source_dir.h"
#include "runtime/instances/instance_router.h"
#include "stopwatch.h"

namespace nereid::bench {
namespace {

struct Options {
  std::string model = source_dir() + "/models/quickstart";
  int32_t tokens = 128, repeats = 41, threads = 1;
};

// Microseconds to choose among `num_instances` for a prompt of `num_tokens`, half of it seen
// before.
double routing_time(size_t num_instances, int32_t num_tokens) {
  constexpr int kRequests = 2000;
  constexpr int64_t kBlock = 32;
  runtime::InstanceRouter router;
  std::vector<runtime::InstanceLoad> loads(num_instances, {.is_healthy = true,
                                                           .has_queue_place = true,
                                                           .max_batch_size = 32,
                                                           .num_free_blocks = 10000});
  std::vector<double> times;
  for (int i = 0; i < kRequests; ++i) {
    Request request;
    for (int32_t t = 0; t < num_tokens; ++t)
      request.input_token_ids.push_back(t < num_tokens / 2 ? i % 16 : i + t);
    const Time start = now();
    const auto keys = runtime::route_keys(request, kBlock);
    router.sent(keys, *router.choose(keys, loads));
    times.push_back(seconds(now() - start) * 1e6);
  }
  return median(times);
}

// Medians of one request at a time, in microseconds: to the first token, and from token to token.
Status measure(const Options& o, const char* name, const ExecutorConfig& config) {
  ASSIGN_OR_RETURN(const auto executor, Executor::create(o.model, config));
  std::vector<double> first, next;
  for (int32_t i = 0; i < o.repeats; ++i) {
    std::vector<Request> one(1);
    one[0].input_token_ids = random_tokens(*executor, 8, static_cast<uint64_t>(i));
    one[0].max_tokens = o.tokens;
    ASSIGN_OR_RETURN(const auto timings, run_timed(*executor, std::move(one)));
    const Timing& t = timings[0];
    first.push_back(t.first_token_seconds * 1e6);
    next.push_back((t.total_seconds - t.first_token_seconds) * 1e6 / (o.tokens - 1));
  }
  fmt::print("{:<40} first token {:7.1f} us, each further one {:7.1f} us\n", name, median(first),
             median(next));
  return ok();
}

Status run(const Options& o) {
  for (const size_t instances : {2, 8})
    for (const int32_t tokens : {32, 512, 8192, 131072})
      fmt::print("choosing among {} instances, prompt of {:6} tokens: {:5.1f} us\n", instances,
                 tokens, routing_time(instances, tokens));
  ExecutorConfig config;
  config.num_threads = o.threads;
  config.kv_cache.max_tokens = 8192;
  RETURN_IF_ERROR(measure(o, "one executor", config));
  ExecutorConfig watched = config;
  watched.restart_failed = "true";
  RETURN_IF_ERROR(measure(o, "the same, restarted after failures", watched));
  ExecutorConfig two = config;
  two.num_instances = 2;
  two.num_threads = 2 * o.threads;
  RETURN_IF_ERROR(measure(o, "two instances", two));
  ExecutorConfig process = config;
  process.process_mode = "orchestrator";
  return measure(o, "orchestrator mode", process);
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  CLI::App app("Cost of instances and orchestrator mode");
  nereid::bench::Options o;
  app.add_option("--model", o.model, "model");
  app.add_option("--tokens", o.tokens, "of each answer")->check(CLI::Range(2, 1000));
  app.add_option("--repeats", o.repeats, "requests");
  app.add_option("--threads", o.threads, "of each instance");
  CLI11_PARSE(app, argc, argv);
  const nereid::Status status = nereid::bench::run(o);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
