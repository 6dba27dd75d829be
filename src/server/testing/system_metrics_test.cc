// System metrics, their settings, and the per-model series of the page.
#include "server/metrics/system_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include "base/gpus.h"
#include "base/testing/fake_gpus.h"
#include "base/testing/source_dir.h"
#include "server/cache/response_cache.h"
#include "server/memory/pinned_pool.h"
#include "server/metrics/model_metrics.h"

namespace nereid::server {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string text_of(const SystemMetrics& metrics) {
  std::vector<prometheus::MetricFamily> page;
  metrics.collect(page);
  return prometheus::TextSerializer().Serialize(page);
}

std::string models_text() {
  std::vector<prometheus::MetricFamily> page;
  collect_model_metrics(page);
  return prometheus::TextSerializer().Serialize(page);
}

TEST(MetricsConfig, Settings) {
  MetricsConfig c;
  EXPECT_TRUE(set_metrics_config(c, "summary_latencies", "true").ok());
  EXPECT_TRUE(c.summary_latencies);
  EXPECT_TRUE(set_metrics_config(c, "counter_latencies", "false").ok());
  EXPECT_FALSE(c.counter_latencies);
  EXPECT_TRUE(set_metrics_config(c, "summary_quantiles", "0.5:0.05,0.75:0.01").ok());
  ASSERT_EQ(c.quantiles.size(), 2u);
  EXPECT_EQ(c.quantiles[1].quantile, 0.75);
  MetricsConfig lenient;  // as in the stock server
  EXPECT_TRUE(set_metrics_config(lenient, "summary_quantiles", "0.1:0.0.1").ok());
  EXPECT_EQ(lenient.quantiles[0].error, 0.0);
  for (const auto& [setting, value] :
       std::vector<std::pair<std::string, std::string>>{{"summary_latencies", "maybe"},
                                                        {"summary_quantiles", "0.5"},
                                                        {"summary_quantiles", "1.5:0.1"},
                                                        {"summary_quantiles", "0.5:0.1,"},
                                                        {"latencies", "true"}}) {
    const Status status = set_metrics_config(c, setting, value);
    EXPECT_FALSE(status.ok()) << setting << "=" << value;
    EXPECT_THAT(message(status), HasSubstr(setting));
  }
  EXPECT_EQ(c.quantiles.size(), 2u);
}

TEST(SystemMetrics, CpuTicks) {
  const auto ticks = parse_cpu_ticks("cpu  10 20 30 400 50 6 7 8 9 9\ncpu0 1 1 1 1\n");
  ASSERT_TRUE(ticks.has_value());
  EXPECT_EQ(ticks->idle, 450u);
  EXPECT_EQ(ticks->total, 531u);
  EXPECT_FALSE(parse_cpu_ticks("").has_value());
  EXPECT_FALSE(parse_cpu_ticks("cpu 1 2").has_value());
}

TEST(SystemMetrics, Cpu) {
  const SystemMetrics on({}, nullptr);
  EXPECT_THAT(text_of(on), HasSubstr("# TYPE nv_cpu_utilization gauge"));
  EXPECT_THAT(text_of(on), HasSubstr("nv_cpu_memory_used_bytes "));
  EXPECT_THAT(text_of(on), Not(HasSubstr("nv_gpu")));
  MetricsConfig config;
  config.cpu = false;
  const SystemMetrics off(config, nullptr);
  EXPECT_THAT(text_of(off), Not(HasSubstr("nv_cpu")));
  EXPECT_THAT(text_of(off), HasSubstr("nv_pinned_memory_pool_total_bytes"));
}

std::string gpu_text(const MetricsConfig& config) {
  const SystemMetrics metrics(config, nullptr, visible_gpus(),
                              build_dir() + "/lib/libfake_nvml.so");
  return text_of(metrics);
}

// Line of a metric: nv_gpu_utilization{gpu_uuid="GPU-..."} 0.25.
std::string series(const std::string& name, const std::string& uuid, const char* value = "") {
  return name + "{gpu_uuid=\"" + uuid + "\"} " + value;
}

TEST(SystemMetrics, Gpu) {
  const FakeGpus fake;
  MetricsConfig config;
  config.interval_ms = 1;
  const std::string text = gpu_text(config);
  EXPECT_THAT(text, HasSubstr(series("nv_gpu_utilization", kFakeH200, "0.25")));
  EXPECT_THAT(text, HasSubstr(series("nv_gpu_memory_used_bytes", kFakeA10, "300")));
  EXPECT_THAT(text, HasSubstr(series("nv_gpu_memory_total_bytes", kFakeA10, "1000")));
  EXPECT_THAT(text, HasSubstr(series("nv_gpu_power_usage", kFakeH200, "150.5")));
  EXPECT_THAT(text, HasSubstr(series("nv_gpu_power_limit", kFakeH200, "700")));
  EXPECT_THAT(text, Not(HasSubstr(series("nv_gpu_power_usage", kFakeA10))));
  EXPECT_THAT(text, HasSubstr("# TYPE nv_energy_consumption counter"));
  config.gpu = false;
  EXPECT_THAT(gpu_text(config), Not(HasSubstr("nv_gpu")));
}

TEST(SystemMetrics, OnlyVisibleGpus) {
  const FakeGpus fake("1");
  const std::string text = gpu_text({});
  EXPECT_THAT(text, HasSubstr(series("nv_gpu_memory_total_bytes", kFakeA10, "1000")));
  EXPECT_THAT(text, Not(HasSubstr(kFakeH200)));
}

TEST(SystemMetrics, ASliceHasOnlyItsMemory) {
  const FakeGpus fake("2");
  const std::string text = gpu_text({});
  EXPECT_THAT(text, HasSubstr(series("nv_gpu_memory_total_bytes", kFakeSlice, "500")));
  for (const char* absent : {"nv_gpu_utilization", "nv_gpu_power", "nv_energy", kFakeH200})
    EXPECT_THAT(text, Not(HasSubstr(absent)));
}

TEST(SystemMetrics, WithoutTheManagementLibraryThereAreNoGpus) {
  const FakeGpus fake;
  EXPECT_THAT(text_of(SystemMetrics({}, nullptr, visible_gpus(), "no-such-library.so")),
              Not(HasSubstr("nv_gpu")));
}

TEST(SystemMetrics, Cache) {
  auto cache = ResponseCache::open("local", R"({"size":"2000"})", "");
  ASSERT_TRUE(cache.ok());
  const std::string entry(20, 'x');  // 256: bookkeeping
  (*cache)->insert("k101", entry);
  EXPECT_EQ((*cache)->find("k101"), entry);
  EXPECT_EQ((*cache)->find("k102"), std::nullopt);
  for (int i = 103; i < 120; ++i) (*cache)->insert("k" + std::to_string(i), entry);
  const std::string text = text_of(SystemMetrics({}, cache->get()));
  EXPECT_THAT(text, HasSubstr("nv_cache_num_lookups 2"));
  EXPECT_THAT(text, HasSubstr("nv_cache_num_hits 1"));
  EXPECT_THAT(text, HasSubstr("nv_cache_num_misses 1"));
  EXPECT_THAT(text, HasSubstr("nv_cache_num_entries 7"));
  EXPECT_THAT(text, HasSubstr("nv_cache_num_evictions 11"));
  EXPECT_THAT(text, HasSubstr("nv_cache_util 0.98"));
}

TEST(PinnedPool, Bounds) {
  PinnedPool& pool = PinnedPool::get();
  pool.resize(10000);
  auto a = pool.allocate(6000);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(pool.used_bytes(), 6000u);
  EXPECT_TRUE(absl::IsUnavailable(pool.allocate(6000).status()));
  EXPECT_TRUE(pool.free(*a));
  EXPECT_FALSE(pool.free(*a));
  EXPECT_EQ(pool.used_bytes(), 0u);
}

ModelMetrics::Spec spec_of(const char* model) {
  ModelMetrics::Spec spec;
  spec.labels = {{"model", model}, {"version", "1"}};
  spec.first_response_buckets = {1, 10};
  return spec;
}

TEST(ModelMetrics, VersionsThatOverlapShareTheirSeries) {
  auto old = ModelMetrics::get(spec_of("m"), {});
  old->add(ModelMetrics::kSuccess, 3);
  auto fresh = ModelMetrics::get(spec_of("m"), {});
  fresh->add(ModelMetrics::kSuccess, 1);
  old.reset();
  EXPECT_THAT(models_text(),
              HasSubstr("nv_inference_request_success{model=\"m\",version=\"1\"} 4"));
  fresh.reset();
  EXPECT_THAT(models_text(), Not(HasSubstr("nv_inference")));
}

TEST(ModelMetrics, KindsFollowTheSettings) {
  auto plain = ModelMetrics::get(spec_of("plain"), {});
  EXPECT_THAT(models_text(), Not(HasSubstr("summary")));
  EXPECT_THAT(models_text(), Not(HasSubstr("nv_cache_num_hits_per_model")));
  MetricsConfig config;
  config.summary_latencies = config.histogram_latencies = true;
  auto spec = spec_of("cached");
  spec.is_cached = true;
  auto cached = ModelMetrics::get(spec, config);
  spec = spec_of("streams");
  spec.is_decoupled = true;
  auto streams = ModelMetrics::get(spec, config);
  streams->first_response(5);
  streams->observe(ModelMetrics::kQueueSummary, 7);
  const std::string text = models_text();
  EXPECT_THAT(text, HasSubstr("nv_cache_num_hits_per_model{model=\"cached\",version=\"1\"} 0"));
  EXPECT_THAT(text, HasSubstr("nv_cache_hit_summary_per_model"));
  EXPECT_THAT(text, Not(HasSubstr("nv_inference_request_summary_us_count{model=\"cached\"")));
  EXPECT_THAT(text,
              HasSubstr("nv_inference_queue_summary_us_count{model=\"streams\",version=\"1\"} 1"));
  EXPECT_THAT(text, HasSubstr("nv_inference_queue_summary_us{model=\"streams\",version=\"1\","
                              "quantile=\"0.5\"} 7"));
  EXPECT_THAT(text, HasSubstr("nv_inference_first_response_histogram_ms_bucket{model=\"streams\","
                              "version=\"1\",le=\"10\"} 1"));
  EXPECT_THAT(text, HasSubstr("nv_inference_first_response_histogram_ms_bucket{model=\"streams\","
                              "version=\"1\",le=\"1\"} 0"));
}

TEST(ModelMetrics, FrozenCounters) {
  MetricsConfig config;
  config.counter_latencies = false;
  auto frozen = ModelMetrics::get(spec_of("frozen"), config);
  frozen->add(ModelMetrics::kSuccess, 3);
  frozen->pending(2);
  EXPECT_THAT(models_text(),
              HasSubstr("nv_inference_request_success{model=\"frozen\",version=\"1\"} 0"));
  EXPECT_THAT(models_text(), Not(HasSubstr("duration_us")));
  EXPECT_THAT(models_text(),
              HasSubstr("nv_inference_pending_request_count{model=\"frozen\",version=\"1\"} 2"));
}

}  // namespace
}  // namespace nereid::server
