#include "server/metrics/system_metrics.h"

#include <prometheus/metric_family.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/contained.h"
#include "server/cache/response_cache.h"
#include "server/memory/pinned_pool.h"

namespace nereid::server {

namespace prom = ::prometheus;

namespace {

std::string read_text(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The bytes in line "<key>:" of /proc/meminfo.
std::optional<double> memory_figure(const std::string& text, const std::string& key) {
  const size_t at = text.find(key + ":");
  if (at == std::string::npos) return std::nullopt;
  return std::strtod(text.c_str() + at + key.size() + 1, nullptr) * 1024;
}

void add(std::vector<prom::MetricFamily>& page, prom::MetricType type, const char* name,
         const char* help, std::optional<double> value, const std::string& gpu_uuid = "") {
  if (!value) return;
  auto family = page.begin();
  while (family != page.end() && family->name != name) ++family;
  if (family == page.end()) {
    family = page.emplace(family);
    family->name = name;
    family->help = help;
    family->type = type;
  }
  prom::ClientMetric& metric = family->metric.emplace_back();
  if (type == prom::MetricType::Counter) {
    metric.counter.value = *value;
  } else {
    metric.gauge.value = *value;
  }
  if (gpu_uuid.empty()) return;
  auto& label = metric.label.emplace_back();
  label.name = "gpu_uuid";
  label.value = gpu_uuid;
}

void add_gpu(std::vector<prom::MetricFamily>& page, const GpuSample& gpu, double energy_at_start) {
  const auto gauge = [&](const char* name, const char* help, std::optional<double> value) {
    add(page, prom::MetricType::Gauge, name, help, value, gpu.uuid);
  };
  gauge("nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", gpu.utilization);
  gauge("nv_gpu_memory_total_bytes", "GPU total memory, in bytes", gpu.memory_total);
  gauge("nv_gpu_memory_used_bytes", "GPU used memory, in bytes", gpu.memory_used);
  gauge("nv_gpu_power_usage", "GPU power usage in watts", gpu.power_usage);
  gauge("nv_gpu_power_limit", "GPU power management limit in watts", gpu.power_limit);
  std::optional<double> energy = gpu.energy;
  if (energy) *energy -= energy_at_start;
  add(page, prom::MetricType::Counter, "nv_energy_consumption",
      "GPU energy consumption in joules since the Triton Server started", energy, gpu.uuid);
}

void add_cache(std::vector<prom::MetricFamily>& page, const ResponseCache& cache) {
  const auto gauge = [&](const char* name, const char* help, double value) {
    add(page, prom::MetricType::Gauge, name, help, value);
  };
  const ResponseCache::Stats s = cache.stats();
  const auto of = [](uint64_t n) { return static_cast<double>(n); };
  const bool is_known = s.max_bytes > 0;  // only the built-in cache reports its contents
  if (is_known) {
    gauge("nv_cache_util", "Cache utilization [0.0 - 1.0]", of(s.num_bytes) / of(s.max_bytes));
    gauge("nv_cache_num_entries", "Number of responses stored in response cache",
          of(s.num_entries));
    gauge("nv_cache_num_evictions", "Number of cache evictions in response cache",
          of(s.num_evictions));
  }
  gauge("nv_cache_num_hits", "Number of cache hits in response cache", of(s.num_hits));
  gauge("nv_cache_num_misses", "Number of cache misses in response cache",
        of(s.num_lookups - s.num_hits));
  gauge("nv_cache_num_lookups", "Number of cache lookups in response cache", of(s.num_lookups));
  gauge("nv_cache_lookup_duration", "Total cache lookup duration (hit and miss), in microseconds",
        of(s.lookup_ns / 1000));
  gauge("nv_cache_insertion_duration", "Total cache insertion duration, in microseconds",
        of(s.insertion_ns / 1000));
}

}  // namespace

std::optional<CpuTicks> parse_cpu_ticks(const std::string& text) {
  std::istringstream in(text);
  std::string word;
  if (!(in >> word) || word != "cpu") return std::nullopt;
  CpuTicks ticks;
  // The guest columns behind these are included in user time.
  constexpr int kIdle = 3, kIoWait = 4, kSteal = 7;
  for (int i = 0; i <= kSteal; ++i) {
    uint64_t value = 0;
    if (!(in >> value)) return std::nullopt;
    ticks.total += value;
    if (i == kIdle || i == kIoWait) ticks.idle += value;
  }
  return ticks;
}

SystemMetrics::SystemMetrics(const MetricsConfig& config, const ResponseCache* cache,
                             std::span<const Gpu> gpus, const std::string& management_library)
    : config_(config), cache_(cache) {
  if (!config_.enabled) return;
  if (config_.gpu) nvml_ = Nvml::open(gpus, management_library);
  if (nvml_ != nullptr) {
    for (const auto& gpu : nvml_->sample()) energy_at_start_[gpu.uuid] = gpu.energy.value_or(0);
  }
  if (!config_.cpu && nvml_ == nullptr) return;
  sample();
  thread_ = std::thread([this] { run_contained("system metrics", [this] { run(); }); });
}

SystemMetrics::~SystemMetrics() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SystemMetrics::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (stopped_.wait_for(lock, std::chrono::milliseconds(config_.interval_ms),
                            [&] { return stop_; })) {
        return;
      }
    }
    sample();
  }
}

void SystemMetrics::sample() {
  Sample s;
  if (config_.cpu) {
    if (const auto ticks = parse_cpu_ticks(read_text("/proc/stat"))) {
      const CpuTicks before = std::exchange(ticks_, *ticks);
      const auto total = static_cast<double>(ticks_.total - before.total);
      s.cpu_utilization =
          total > 0 ? 1 - static_cast<double>(ticks_.idle - before.idle) / total : 0;
    }
    const std::string memory = read_text("/proc/meminfo");
    s.memory_total = memory_figure(memory, "MemTotal");
    const auto available = memory_figure(memory, "MemAvailable");
    if (s.memory_total && available) s.memory_used = *s.memory_total - *available;
  }
  if (nvml_ != nullptr) s.gpus = nvml_->sample();
  std::lock_guard lock(mutex_);
  last_ = std::move(s);
}

void SystemMetrics::collect(std::vector<prom::MetricFamily>& page) const {
  if (!config_.enabled) return;
  Sample s;
  {
    std::lock_guard lock(mutex_);
    s = last_;
  }
  // Families of this function only, which are few: add() searches them by name.
  std::vector<prom::MetricFamily> own;
  const auto gauge = [&](const char* name, const char* help, std::optional<double> value) {
    add(own, prom::MetricType::Gauge, name, help, value);
  };
  const PinnedPool& pinned = PinnedPool::get();
  gauge("nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes",
        static_cast<double>(pinned.max_bytes()));
  gauge("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes",
        static_cast<double>(pinned.used_bytes()));
  for (const auto& gpu : s.gpus) {
    const auto start = energy_at_start_.find(gpu.uuid);
    add_gpu(own, gpu, start == energy_at_start_.end() ? 0 : start->second);
  }
  gauge("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", s.cpu_utilization);
  gauge("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", s.memory_total);
  gauge("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", s.memory_used);
  if (cache_ != nullptr) add_cache(own, *cache_);
  for (auto& family : own) page.push_back(std::move(family));
}

}  // namespace nereid::server
