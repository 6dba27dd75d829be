// Custom metric families and series over prometheus-cpp, and the C API's metric functions.
#include "server/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <variant>

#include "base/log.h"
#include "server/api/accessors.h"
#include "server/api/error.h"
#include "server/api/values.h"

namespace nereid::server {

namespace prom = ::prometheus;

namespace {

struct Registry {
  std::mutex mutex;
  prom::Registry prometheus;
  std::map<std::string, std::shared_ptr<FamilyEntry>> families;
};

Registry& registry() {
  static Registry* r = new Registry;  // outlives backends that delete their metrics at exit
  return *r;
}

using Series = std::variant<prom::Counter*, prom::Gauge*, prom::Histogram*>;

}  // namespace

struct SharedSeries {
  Series series;
  int refs = 0;
};

class FamilyEntry {
 public:
  TRITONSERVER_MetricKind kind;
  std::string name;
  std::variant<std::monostate, prom::Family<prom::Counter>*, prom::Family<prom::Gauge>*,
               prom::Family<prom::Histogram>*>
      family;
  int handles = 0;  // guarded by Registry::mutex

  std::mutex mutex;  // guards all below and every use of a series
  bool alive = true;
  std::map<Labels, SharedSeries> series;

  // Needs the mutex held. NotFound after the family was deleted.
  Status check_alive() const {
    if (alive) return ok();
    return not_found("metric family '{}' was deleted before its metrics", name);
  }
};

StatusOr<std::unique_ptr<MetricFamily>> MetricFamily::create(TRITONSERVER_MetricKind kind,
                                                             const std::string& name,
                                                             const std::string& description) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto& entry = r.families[name];
  if (entry == nullptr) {
    auto fresh = std::make_shared<FamilyEntry>();
    fresh->kind = kind;
    fresh->name = name;
    try {
      switch (kind) {
        case TRITONSERVER_METRIC_KIND_COUNTER:
          fresh->family = &prom::BuildCounter().Name(name).Help(description).Register(r.prometheus);
          break;
        case TRITONSERVER_METRIC_KIND_GAUGE:
          fresh->family = &prom::BuildGauge().Name(name).Help(description).Register(r.prometheus);
          break;
        case TRITONSERVER_METRIC_KIND_HISTOGRAM:
          fresh->family =
              &prom::BuildHistogram().Name(name).Help(description).Register(r.prometheus);
          break;
        default:
          throw std::invalid_argument("unknown kind");
      }
    } catch (const std::exception& e) {
      r.families.erase(name);
      return invalid_argument("metric family '{}': {}", name, e.what());
    }
    entry = std::move(fresh);
  } else if (entry->kind != kind) {
    return invalid_argument("metric family '{}' exists with another kind", name);
  }
  ++entry->handles;
  return std::unique_ptr<MetricFamily>(new MetricFamily(entry));
}

MetricFamily::~MetricFamily() {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  if (--entry_->handles > 0) return;
  std::lock_guard entry_lock(entry_->mutex);
  if (!entry_->series.empty()) {
    log_warn("metric family '{}' deleted while it has {} metrics", entry_->name,
             entry_->series.size());
  }
  entry_->alive = false;
  entry_->series.clear();
  std::visit(
      [&](auto family) {
        if constexpr (!std::is_same_v<decltype(family), std::monostate>) {
          r.prometheus.Remove(*family);
        }
      },
      entry_->family);
  r.families.erase(entry_->name);
}

TRITONSERVER_MetricKind MetricFamily::kind() const { return entry_->kind; }

StatusOr<std::unique_ptr<Metric>> Metric::create(const MetricFamily& family, const Labels& labels,
                                                 const Buckets& given) {
  FamilyEntry& entry = *family.entry_;
  if ((entry.kind == TRITONSERVER_METRIC_KIND_HISTOGRAM) != given.has_value()) {
    return invalid_argument("metric family '{}': {}", entry.name,
                            given ? "only histograms take buckets" : "a histogram needs buckets");
  }
  const auto buckets = given.value_or(std::vector<double>{});
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (!std::isfinite(buckets[i]) || (i > 0 && buckets[i] <= buckets[i - 1])) {
      return invalid_argument("metric family '{}': buckets must be finite and ascending",
                              entry.name);
    }
  }
  std::lock_guard lock(entry.mutex);
  auto& shared = entry.series[labels];
  if (shared.refs == 0) {
    try {
      if (auto** f = std::get_if<prom::Family<prom::Counter>*>(&entry.family)) {
        shared.series = &(*f)->Add(labels);
      } else if (auto** g = std::get_if<prom::Family<prom::Gauge>*>(&entry.family)) {
        shared.series = &(*g)->Add(labels);
      } else {
        shared.series = &std::get<prom::Family<prom::Histogram>*>(entry.family)
                             ->Add(labels, prom::Histogram::BucketBoundaries(buckets));
      }
    } catch (const std::exception& e) {
      entry.series.erase(labels);
      return invalid_argument("metric family '{}': {}", entry.name, e.what());
    }
  }
  ++shared.refs;
  return std::unique_ptr<Metric>(new Metric(family.entry_, labels, &shared));
}

Metric::~Metric() {
  std::lock_guard lock(entry_->mutex);
  const auto it = entry_->series.find(labels_);
  if (!entry_->alive || it == entry_->series.end() || --it->second.refs > 0) return;
  if (auto** c = std::get_if<prom::Counter*>(&it->second.series)) {
    std::get<prom::Family<prom::Counter>*>(entry_->family)->Remove(*c);
  } else if (auto** g = std::get_if<prom::Gauge*>(&it->second.series)) {
    std::get<prom::Family<prom::Gauge>*>(entry_->family)->Remove(*g);
  } else {
    std::get<prom::Family<prom::Histogram>*>(entry_->family)
        ->Remove(std::get<prom::Histogram*>(it->second.series));
  }
  entry_->series.erase(it);
}

TRITONSERVER_MetricKind Metric::kind() const { return entry_->kind; }

Status Metric::increment(double value) {
  std::lock_guard lock(entry_->mutex);
  RETURN_IF_ERROR(entry_->check_alive());
  const Series& series = series_->series;
  if (auto* const* counter = std::get_if<prom::Counter*>(&series)) {
    if (!(value >= 0)) {
      return invalid_argument("metric family '{}': a counter cannot be incremented by {}",
                              entry_->name, value);
    }
    (*counter)->Increment(value);
    return ok();
  }
  if (auto* const* gauge = std::get_if<prom::Gauge*>(&series)) {
    (*gauge)->Increment(value);
    return ok();
  }
  return unsupported("metric family '{}': a histogram cannot be incremented", entry_->name);
}

Status Metric::set(double value) {
  std::lock_guard lock(entry_->mutex);
  RETURN_IF_ERROR(entry_->check_alive());
  const Series& series = series_->series;
  auto* const* gauge = std::get_if<prom::Gauge*>(&series);
  if (gauge == nullptr) {
    return unsupported("metric family '{}': only gauges can be set", entry_->name);
  }
  (*gauge)->Set(value);
  return ok();
}

Status Metric::observe(double value) {
  std::lock_guard lock(entry_->mutex);
  RETURN_IF_ERROR(entry_->check_alive());
  const Series& series = series_->series;
  auto* const* histogram = std::get_if<prom::Histogram*>(&series);
  if (histogram == nullptr) {
    return unsupported("metric family '{}': only histograms observe", entry_->name);
  }
  (*histogram)->Observe(value);
  return ok();
}

StatusOr<double> Metric::value() const {
  std::lock_guard lock(entry_->mutex);
  RETURN_IF_ERROR(entry_->check_alive());
  const Series& series = series_->series;
  if (auto* const* counter = std::get_if<prom::Counter*>(&series)) return (*counter)->Value();
  if (auto* const* gauge = std::get_if<prom::Gauge*>(&series)) return (*gauge)->Value();
  return unsupported("metric family '{}': a histogram has no single value", entry_->name);
}

void collect_custom_metrics(std::vector<prom::MetricFamily>& page) {
  auto custom = registry().prometheus.Collect();
  page.insert(page.end(), std::make_move_iterator(custom.begin()),
              std::make_move_iterator(custom.end()));
}

namespace {

MetricFamily* of(TRITONSERVER_MetricFamily* family) {
  return reinterpret_cast<MetricFamily*>(family);
}
Metric* of(TRITONSERVER_Metric* metric) { return reinterpret_cast<Metric*>(metric); }

}  // namespace
}  // namespace nereid::server

struct TRITONSERVER_MetricArgs {
  nereid::server::Metric::Buckets buckets;
};

using namespace nereid::server;  // NOLINT: the C functions below are this file's outer face

TRITONSERVER_Error* TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily** family,
                                                 TRITONSERVER_MetricKind kind, const char* name,
                                                 const char* description) try {
  auto made = MetricFamily::create(kind, name, description);
  if (!made.ok()) return to_error(made.status());
  *family = reinterpret_cast<TRITONSERVER_MetricFamily*>(made->release());
  return nullptr;
}
NEREID_CATCH

NEREID_DELETER(TRITONSERVER_MetricFamilyDelete, TRITONSERVER_MetricFamily, of(x))
NEREID_GETTER(TRITONSERVER_GetMetricFamilyKind, TRITONSERVER_MetricFamily, TRITONSERVER_MetricKind,
              of(x)->kind())

TRITONSERVER_Error* TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs** args) try {
  *args = new TRITONSERVER_MetricArgs;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_MetricArgsSetHistogram(TRITONSERVER_MetricArgs* args,
                                                        const double* buckets,
                                                        uint64_t buckets_count) try {
  args->buckets.emplace(buckets, buckets + buckets_count);
  return nullptr;
}
NEREID_CATCH

NEREID_DELETER(TRITONSERVER_MetricArgsDelete, TRITONSERVER_MetricArgs, x)

TRITONSERVER_Error* TRITONSERVER_MetricNewWithArgs(TRITONSERVER_Metric** metric,
                                                   TRITONSERVER_MetricFamily* family,
                                                   const TRITONSERVER_Parameter** labels,
                                                   uint64_t label_count,
                                                   const TRITONSERVER_MetricArgs* args) try {
  Labels map;
  for (uint64_t i = 0; i < label_count; ++i) {
    const auto* text = std::get_if<std::string>(&labels[i]->value);
    if (text == nullptr) {
      return to_error(nereid::invalid_argument("metric label '{}' must be a STRING parameter",
                                               labels[i]->name));
    }
    map[labels[i]->name] = *text;
  }
  auto made = Metric::create(*of(family), map, args == nullptr ? std::nullopt : args->buckets);
  if (!made.ok()) return to_error(made.status());
  *metric = reinterpret_cast<TRITONSERVER_Metric*>(made->release());
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_MetricNew(TRITONSERVER_Metric** metric,
                                           TRITONSERVER_MetricFamily* family,
                                           const TRITONSERVER_Parameter** labels,
                                           uint64_t label_count) try {
  return TRITONSERVER_MetricNewWithArgs(metric, family, labels, label_count, nullptr);
}
NEREID_CATCH

NEREID_DELETER(TRITONSERVER_MetricDelete, TRITONSERVER_Metric, of(x))

TRITONSERVER_Error* TRITONSERVER_MetricValue(TRITONSERVER_Metric* metric, double* value) try {
  auto v = of(metric)->value();
  if (!v.ok()) return to_error(v.status());
  *value = *v;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_MetricIncrement(TRITONSERVER_Metric* metric, double value) try {
  return to_error(of(metric)->increment(value));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_MetricSet(TRITONSERVER_Metric* metric, double value) try {
  return to_error(of(metric)->set(value));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_MetricObserve(TRITONSERVER_Metric* metric, double value) try {
  return to_error(of(metric)->observe(value));
}
NEREID_CATCH

NEREID_GETTER(TRITONSERVER_GetMetricKind, TRITONSERVER_Metric, TRITONSERVER_MetricKind,
              of(x)->kind())
