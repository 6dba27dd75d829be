// Runs an executor under random load for as long as wanted and judges whether it could go on for
// ever: memory does not grow, blocks come back, speed stays, results stay the same.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "base/testing/source_dir.h"
#include "traffic.h"
#include "trend.h"

namespace nereid::soak {
namespace {

// Below this, growth and speed are printed and not judged: warm-up and noise are larger than the
// limits.
constexpr double kMinJudgedSeconds = 600;
constexpr double kMaxGrowth = 1.0;    // MiB/h
constexpr int kFloors = 10;           // parts whose smallest RSS counts
constexpr double kMinSpeed = 0.8;     // last quarter over second quarter
constexpr double kWarmUpShare = 0.4;  // of the run: caches, rings and arenas fill
constexpr int kMaxBatchSize = 32;

struct Options {
  std::string model = source_dir() + "/models/quickstart";
  std::string cache_dir;
  double seconds = 20;
  double report_seconds = 10;
  int clients = 48;
  int threads = 0;
  int references = 24;
  uint64_t seed = 1;
  std::vector<std::string> without;
  std::string policy = "max_utilization";
  std::string pause = "swap";
};

ExecutorConfig config_of(const Options& o) {
  ExecutorConfig c;
  c.num_threads = o.threads;
  c.cache_dir = o.cache_dir;
  c.max_batch_size = kMaxBatchSize;
  c.max_beam_width = 16;
  c.max_num_tokens = 256;
  c.scheduler.capacity_policy = o.policy == "max_utilization" ? CapacityPolicy::kMaxUtilization
                                : o.policy == "guaranteed_no_evict"
                                    ? CapacityPolicy::kGuaranteedNoEvict
                                    : CapacityPolicy::kStaticBatch;
  c.scheduler.pause_policy = o.pause == "swap" ? PausePolicy::kSwap : PausePolicy::kRecompute;
  c.kv_cache.tokens_per_block = 16;
  c.kv_cache.max_tokens = 2560;  // small: pauses, evictions and offloads all the time
  c.kv_cache.host_cache_bytes = 4 << 20;
  c.kv_cache.event_buffer_size = 1000;
  c.request_stats_max_iterations = 100;
  return c;
}

// Results of the run so far.
struct Record {
  std::vector<Sample> resident;      // MiB, at idle
  std::vector<Sample> heap;          // MiB that malloc has handed out, at idle
  std::vector<Sample> tokens_per_s;  // of each interval, without its drain
  std::vector<std::string> faults;
};

// The pool checks its own counts whenever the engine is idle; here is what a client can see. Waits
// a little for the engine's last report; the final responses may overtake it.
void check_counts(const Executor& executor, Record& record) {
  ExecutorStats s;
  const Time end = now() + std::chrono::seconds(60);
  do {
    s = executor.stats();
    if (s.num_active == 0 && s.num_waiting == 0 && s.kv_blocks_free == s.kv_blocks_total) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (now() < end);
  record.faults.push_back(
      fmt::format("not balanced at idle: {} active, {} waiting, {} of {} blocks free", s.num_active,
                  s.num_waiting, s.kv_blocks_free, s.kv_blocks_total));
}

void print_interval(double at, const Executor& executor, const Counts& c, const Record& record) {
  const ExecutorStats s = executor.stats();
  fmt::print(
      "{:7.0f} s  RSS {:7.2f} MiB  heap {:8.4f} MiB  requests {:7} (cancelled {}, timed out {}, "
      "compared {})  "
      "{:7.0f} tok/s  free blocks {}/{} host {}/{}  reused {} offloaded {} onboarded {} paused "
      "{}\n",
      at, record.resident.back().value, record.heap.back().value, c.done, c.cancelled, c.timed_out,
      c.compared, record.tokens_per_s.back().value, s.kv_blocks_free, s.kv_blocks_total,
      s.kv_host_blocks_free, s.kv_host_blocks_total, s.kv_blocks_reused, s.kv_blocks_offloaded,
      s.kv_blocks_onboarded, s.num_preemptions);
  std::fflush(stdout);
}

double mean(const std::vector<Sample>& samples) {
  double sum = 0;
  for (const Sample& s : samples) sum += s.value;
  return samples.empty() ? 0 : sum / static_cast<double>(samples.size());
}

void judge(double total, Record& record) {
  const auto warm = between(record.resident, kWarmUpShare * total, 2 * total);
  const double growth = robust_slope(floors(warm, kFloors)) * 3600;
  const double second = mean(between(record.tokens_per_s, total / 4, total / 2));
  const double last = mean(between(record.tokens_per_s, total * 3 / 4, 2 * total));
  const bool judged = total >= kMinJudgedSeconds;
  fmt::print(
      "RSS slope {:+.3f} MiB/h (median of pairwise slopes of the floors of {} parts, {} samples at "
      "idle after {:.0f} s); "
      "tokens/s: second quarter {:.0f}, last quarter {:.0f}; {}\n",
      growth, kFloors, warm.size(), kWarmUpShare * total, second, last,
      judged ? "judged" : "too short to judge these");
  if (judged && growth > kMaxGrowth)
    record.faults.push_back(
        fmt::format("memory grows by {:.3f} MiB/h; allowed are {}", growth, kMaxGrowth));
  if (judged && last < kMinSpeed * second)
    record.faults.push_back(fmt::format("the last quarter has {:.2f} of the second's speed",
                                        second > 0 ? last / second : 0));
}

// Ends the executor, so that no callback runs after the traffic is gone.
void run_intervals(const Options& o, std::unique_ptr<Executor> owned, Record& record) {
  Executor& executor = *owned;
  RequestMaker maker({.vocab_size = executor.vocab_size()}, o.seed,
                     {o.without.begin(), o.without.end()});
  Traffic traffic(executor, maker, o.references);
  // Buffers grow to the largest step of a run; what judges memory takes that step first.
  if (o.seconds >= kMinJudgedSeconds && !traffic.warm_up(kMaxBatchSize))
    record.faults.push_back("warm-up without an end");
  const Time start = now();
  double at = 0;
  while (at < o.seconds && record.faults.empty()) {
    const Counts before = traffic.counts();
    const Time began = now();
    const double rest = std::min(o.report_seconds, o.seconds - at);
    traffic.run(began + std::chrono::milliseconds(static_cast<int64_t>(rest * 1000)), o.clients);
    if (!traffic.drain(std::chrono::seconds(120))) {
      record.faults.push_back("requests without a final response after 120 s");
      owned.reset();
      return;
    }
    const Counts after = traffic.counts();
    at = seconds(now() - start);
    record.tokens_per_s.push_back(
        {at, static_cast<double>(after.tokens - before.tokens) / seconds(now() - began)});
    check_counts(executor, record);
    record.resident.push_back({at, static_cast<double>(resident_bytes()) / 1048576.0});
    record.heap.push_back({at, static_cast<double>(heap_bytes()) / 1048576.0});
    print_interval(at, executor, after, record);
    for (std::string& complaint : traffic.complaints())
      record.faults.push_back(std::move(complaint));
  }
  owned.reset();
  judge(at, record);
}

int run(const Options& options) {
  steady_malloc();
  auto executor = Executor::create(options.model, config_of(options));
  if (!executor.ok()) {
    fmt::print(stderr, "soak: {}\n", message(executor.status()));
    return 2;
  }
  Record record;
  run_intervals(options, *std::move(executor), record);
  for (const std::string& fault : record.faults) fmt::print("FAULT {}\n", fault);
  fmt::print("{}\n", record.faults.empty() ? "PASS" : "FAIL");
  return record.faults.empty() ? 0 : 1;
}

int main(int argc, char** argv) {
  Options o;
  CLI::App app(
      "random load on an executor: memory, blocks, speed and results must stay as they are");
  app.add_option("--model", o.model, "model directory")->capture_default_str();
  app.add_option("--cache-dir", o.cache_dir, "where built engines are kept");
  app.add_option("--seconds", o.seconds, "length of the run")->capture_default_str();
  app.add_option("--report-seconds", o.report_seconds, "load between two idle points")
      ->check(CLI::Range(0.5, 3600.0))
      ->capture_default_str();
  app.add_option("--clients", o.clients, "requests at once")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "compute threads; 0 = one per core")
      ->capture_default_str();
  app.add_option("--references", o.references, "requests that are repeated and compared")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of the requests")->capture_default_str();
  app.add_option("--policy", o.policy, "who may run")
      ->check(CLI::IsMember({"max_utilization", "guaranteed_no_evict", "static_batch"}))
      ->capture_default_str();
  app.add_option("--pause", o.pause, "what becomes of paused requests")
      ->check(CLI::IsMember({"swap", "recompute"}))
      ->capture_default_str();
  app.add_option("--without", o.without, "features that requests do not use")
      ->delimiter(',')
      ->check(CLI::IsMember(feature_names()));
  CLI11_PARSE(app, argc, argv);
  return run(o);
}

}  // namespace
}  // namespace nereid::soak

int main(int argc, char** argv) { return nereid::soak::main(argc, argv); }
