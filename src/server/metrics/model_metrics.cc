// Registry of the models' series, and their page.
#include "server/metrics/model_metrics.h"

#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/summary.h>

#include <algorithm>
#include <chrono>
#include <mutex>

namespace nereid::server {

namespace prom = ::prometheus;

struct ModelMetrics::Quantiles {
  prom::Summary summary;
};
struct ModelMetrics::Buckets {
  prom::Histogram histogram;
};

namespace {

using Labels = std::map<std::string, std::string>;

struct Models {
  std::mutex mutex;
  std::map<Labels, std::weak_ptr<ModelMetrics>> by_labels;
};

Models& models() {
  static Models* m = new Models;  // outlives models that are abandoned at exit
  return *m;
}

struct CounterRow {
  ModelMetrics::Counter counter;
  const char *name, *help;
  const char* reason = nullptr;  // label of the failure family
};

constexpr CounterRow kCounters[] = {
    {ModelMetrics::kSuccess, "nv_inference_request_success",
     "Number of successful inference requests, all batch sizes"},
    {ModelMetrics::kRejected, "nv_inference_request_failure",
     "Number of failed inference requests, all batch sizes", "REJECTED"},
    {ModelMetrics::kCanceled, "nv_inference_request_failure",
     "Number of failed inference requests, all batch sizes", "CANCELED"},
    {ModelMetrics::kBackend, "nv_inference_request_failure",
     "Number of failed inference requests, all batch sizes", "BACKEND"},
    {ModelMetrics::kOther, "nv_inference_request_failure",
     "Number of failed inference requests, all batch sizes", "OTHER"},
    {ModelMetrics::kInferences, "nv_inference_count",
     "Number of inferences performed (does not include cached requests)"},
    {ModelMetrics::kExecutions, "nv_inference_exec_count",
     "Number of model executions performed (does not include cached requests)"},
    {ModelMetrics::kRequestUs, "nv_inference_request_duration_us",
     "Cumulative inference request duration in microseconds (includes cached requests)"},
    {ModelMetrics::kQueueUs, "nv_inference_queue_duration_us",
     "Cumulative inference queuing duration in microseconds (includes cached requests)"},
    {ModelMetrics::kInputUs, "nv_inference_compute_input_duration_us",
     "Cumulative compute input duration in microseconds (does not include cached requests)"},
    {ModelMetrics::kInferUs, "nv_inference_compute_infer_duration_us",
     "Cumulative compute inference duration in microseconds (does not include cached requests)"},
    {ModelMetrics::kOutputUs, "nv_inference_compute_output_duration_us",
     "Cumulative inference compute output duration in microseconds (does not include cached "
     "requests)"},
    {ModelMetrics::kCacheHits, "nv_cache_num_hits_per_model", "Number of cache hits per model"},
    {ModelMetrics::kCacheHitUs, "nv_cache_hit_duration_per_model",
     "Total cache hit duration per model, in microseconds"},
    {ModelMetrics::kCacheMisses, "nv_cache_num_misses_per_model",
     "Number of cache misses per model"},
    {ModelMetrics::kCacheMissUs, "nv_cache_miss_duration_per_model",
     "Total cache miss (insert+lookup) duration per model, in microseconds"},
};

struct SummaryRow {
  const char *name, *help;
};

// In the order of ModelMetrics::Summary.
constexpr SummaryRow kSummaryRows[] = {
    {"nv_inference_request_summary_us",
     "Summary of inference request duration in microseconds (includes cached requests)"},
    {"nv_inference_queue_summary_us",
     "Summary of inference queuing duration in microseconds (includes cached requests)"},
    {"nv_inference_compute_input_summary_us",
     "Summary of compute input duration in microseconds (does not include cached requests)"},
    {"nv_inference_compute_infer_summary_us",
     "Summary of compute inference duration in microseconds (does not include cached requests)"},
    {"nv_inference_compute_output_summary_us",
     "Summary of inference compute output duration in microseconds (does not include cached "
     "requests)"},
    {"nv_cache_hit_summary_per_model",
     "Summary of cache hit counts/durations per model, in microseconds."},
    {"nv_cache_miss_summary_per_model",
     "Summary of cache miss counts/durations per model, in microseconds."},
};

std::vector<prom::ClientMetric::Label> label_list(const Labels& labels) {
  std::vector<prom::ClientMetric::Label> out;
  for (const auto& [name, value] : labels) {
    auto& label = out.emplace_back();
    label.name = name;
    label.value = value;
  }
  return out;
}

}  // namespace

ModelMetrics::ModelMetrics(const Spec& spec, const MetricsConfig& config)
    : labels_(spec.labels), counts_(config.counter_latencies), is_cached_(spec.is_cached) {
  if (config.summary_latencies) {
    prom::Summary::Quantiles quantiles;
    for (const auto& q : config.quantiles) quantiles.emplace_back(q.quantile, q.error);
    for (size_t i = 0; i < kNumSummaries; ++i) {
      // A model with a response cache has hits and misses, each with a distribution of its own.
      const bool is_kept = is_cached_ ? i != kRequestSummary : i < kHitSummary;
      if (is_kept) {
        summaries_[i].reset(
            new Quantiles{prom::Summary(quantiles, std::chrono::seconds(60), /*age_buckets=*/5)});
      }
    }
  }
  if (config.histogram_latencies && spec.is_decoupled) {
    first_response_.reset(new Buckets{prom::Histogram(spec.first_response_buckets)});
  }
}

ModelMetrics::~ModelMetrics() {
  Models& all = models();
  std::lock_guard lock(all.mutex);
  const auto it = all.by_labels.find(labels_);
  if (it != all.by_labels.end() && it->second.expired()) all.by_labels.erase(it);
}

std::shared_ptr<ModelMetrics> ModelMetrics::get(const Spec& spec, const MetricsConfig& config) {
  Models& all = models();
  std::lock_guard lock(all.mutex);
  auto& weak = all.by_labels[spec.labels];
  auto shared = weak.lock();
  const bool fits =
      shared != nullptr && shared->is_cached_ == spec.is_cached &&
      shared->counts_ == config.counter_latencies &&
      shared->has_summaries() == config.summary_latencies &&
      shared->has_first_response() == (config.histogram_latencies && spec.is_decoupled);
  if (!fits) {
    // A replaced version whose series differ in kind is removed from the page at once.
    shared.reset(new ModelMetrics(spec, config));
    weak = shared;
  }
  return shared;
}

void ModelMetrics::observe(Summary summary, double microseconds) {
  if (summaries_[summary] != nullptr) summaries_[summary]->summary.Observe(microseconds);
}

void ModelMetrics::first_response(double milliseconds) {
  if (first_response_ != nullptr) first_response_->histogram.Observe(milliseconds);
}

// Builds the families from the series of all models.
class ModelMetricsPage {
 public:
  explicit ModelMetricsPage(std::vector<prom::MetricFamily>& page) : page_(page) {}

  void fill(const std::vector<std::shared_ptr<ModelMetrics>>& all) {
    for (const auto& row : kCounters) {
      for (const auto& m : all) {
        if (row.counter >= ModelMetrics::kRequestUs && !m->counts_) continue;
        if (row.counter >= ModelMetrics::kCacheHits && !m->is_cached_) continue;
        Labels labels = m->labels_;
        if (row.reason != nullptr) labels["reason"] = row.reason;
        prom::ClientMetric metric;
        metric.counter.value = static_cast<double>(m->counters_[row.counter].load());
        add({row.name, row.help}, prom::MetricType::Counter, labels, std::move(metric));
      }
    }
    for (const auto& m : all) {
      if (!m->has_first_response()) continue;
      add({"nv_inference_first_response_histogram_ms",
           "Duration from request to first response in milliseconds"},
          prom::MetricType::Histogram, m->labels_, m->first_response_->histogram.Collect());
    }
    for (size_t i = 0; i < ModelMetrics::kNumSummaries; ++i) {
      for (const auto& m : all) {
        if (m->summaries_[i] == nullptr) continue;
        add(kSummaryRows[i], prom::MetricType::Summary, m->labels_,
            m->summaries_[i]->summary.Collect());
      }
    }
    const auto gauge = [&](SummaryRow row, auto value_of) {
      for (const auto& m : all) {
        prom::ClientMetric metric;
        metric.gauge.value = static_cast<double>(value_of(*m));
        add(row, prom::MetricType::Gauge, m->labels_, std::move(metric));
      }
    };
    gauge({"nv_inference_pending_request_count",
           "Instantaneous number of pending requests awaiting execution per-model."},
          [](const ModelMetrics& m) { return m.pending_.load(); });
    gauge({"nv_model_load_duration_secs", "Model load time in seconds"},
          [](const ModelMetrics& m) { return m.load_seconds_.load(); });
  }

 private:
  void add(SummaryRow row, prom::MetricType type, const Labels& labels, prom::ClientMetric metric) {
    if (page_.empty() || page_.back().name != row.name) {
      auto& family = page_.emplace_back();
      family.name = row.name;
      family.help = row.help;
      family.type = type;
    }
    metric.label = label_list(labels);
    page_.back().metric.push_back(std::move(metric));
  }

  std::vector<prom::MetricFamily>& page_;
};

void collect_model_metrics(std::vector<prom::MetricFamily>& page) {
  std::vector<std::shared_ptr<ModelMetrics>>
      all;  // released after the lock, since ~ModelMetrics takes it
  {
    Models& m = models();
    std::lock_guard lock(m.mutex);
    for (const auto& [labels, weak] : m.by_labels) {
      if (auto model = weak.lock()) all.push_back(std::move(model));
    }
  }
  ModelMetricsPage(page).fill(all);
}

}  // namespace nereid::server
