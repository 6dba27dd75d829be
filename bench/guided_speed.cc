// What masks cost a batch: decode speed with a grammar for each request and without, by turns.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/testing/source_dir.h"
#include "stopwatch.h"

namespace nereid::bench {
namespace {

struct Options {
  std::string model = source_dir() + "/models/quickstart";
  std::string device = "cpu";
  int32_t batch = 32;
  int32_t new_tokens = 128;
  int32_t repeats = 9;
  int32_t threads = 1;
  bool step_by_step = false;
};

// So long that no text ends before max_tokens.
constexpr const char* kSchema = R"({"type": "array", "minItems": 1000, "items":
    {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"},
     "colour": {"enum": ["red", "green", "blue"]}},
     "required": ["id", "name", "colour"], "additionalProperties": false}})";

StatusOr<double> tokens_per_s(Executor& executor, const Options& o, bool guided, uint64_t seed) {
  std::vector<Request> requests(static_cast<size_t>(o.batch));
  for (int32_t i = 0; i < o.batch; ++i) {
    Request& r = requests[i];
    r.input_token_ids = random_tokens(executor, 16, seed + static_cast<uint64_t>(i));
    r.max_tokens = o.new_tokens;
    r.sampling.top_k = 40;
    r.sampling.seed = seed + static_cast<uint64_t>(i);
    if (!guided) continue;
    r.end_ids = executor.default_end_ids();
    r.guided_decoding = {GuideType::kJsonSchema, kSchema};
  }
  const Time start = now();
  RETURN_IF_ERROR(run_timed(executor, std::move(requests)).status());
  return o.batch * o.new_tokens / seconds(now() - start);
}

Status measure(const Options& o) {
  ExecutorConfig config;
  config.device = o.device;
  config.num_threads = o.threads;
  config.kv_cache.enable_block_reuse = false;
  config.kv_cache.max_tokens = 16384;
  config.max_batch_size = o.batch;
  config.enable_jump_ahead = !o.step_by_step;
  ASSIGN_OR_RETURN(const auto executor, Executor::create(o.model, config));
  std::vector<double> with, without, ratio;
  for (int32_t repeat = 0; repeat <= o.repeats; ++repeat) {
    const uint64_t seed = 1000 * static_cast<uint64_t>(repeat);
    ASSIGN_OR_RETURN(const double a, tokens_per_s(*executor, o, true, seed));
    ASSIGN_OR_RETURN(const double b, tokens_per_s(*executor, o, false, seed));
    if (repeat == 0) continue;  // warms up
    with.push_back(a);
    without.push_back(b);
    ratio.push_back(a / b);
  }
  fmt::print("batch {}: {:.0f} tok/s with a schema, {:.0f} without; median change {:+.1f} %\n",
             o.batch, median(with), median(without), (median(ratio) - 1) * 100);
  return ok();
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Options o;
  CLI::App app("decode speed with a JSON schema for each request and without, medians");
  app.add_option("--model", o.model, "model directory")->capture_default_str();
  app.add_option("--device", o.device, "cpu or cuda:N")->capture_default_str();
  app.add_option("--batch", o.batch, "requests at once")->capture_default_str();
  app.add_option("--new-tokens", o.new_tokens, "of each request")->capture_default_str();
  app.add_option("--repeats", o.repeats, "pairs of runs")->capture_default_str();
  app.add_option("--threads", o.threads, "compute threads")->capture_default_str();
  app.add_flag("--step-by-step", o.step_by_step, "nothing is computed ahead");
  CLI11_PARSE(app, argc, argv);
  const nereid::Status status = nereid::bench::measure(o);
  if (!status.ok()) fmt::print(stderr, "guided_speed: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
