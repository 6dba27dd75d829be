#include "backend/tensorrtllm/lora_metrics.h"

namespace nereid::backend {

// Series in the order in which open() adds them.
enum LoraMetrics::Index : size_t {
  kPlaces,
  kPlacesUsed,
  kPages,
  kPagesUsed,
  kHeld,
  kBytes,
  kMaxBytes,
  kHits,
  kMisses,
  kEvictions,
  kLoads
};

void LoraMetrics::open() {
  const MetricLabels labels = {{"model", model_}, {"version", std::to_string(version_)}};
  const auto gauge = [&](const char* name, const char* help) {
    set_.add(TRITONSERVER_METRIC_KIND_GAUGE, name, help, labels);
  };
  const auto counter = [&](const char* name, const char* help) {
    set_.add(TRITONSERVER_METRIC_KIND_COUNTER, name, help, labels);
  };
  gauge("nereid_lora_places", "Adapters that the device has room for");
  gauge("nereid_lora_places_used", "Adapters that the device holds");
  gauge("nereid_lora_pages", "Pages that these adapters share");
  gauge("nereid_lora_pages_used", "Pages that hold a part of an adapter");
  gauge("nereid_lora_host_adapters", "Adapters that the host cache holds");
  gauge("nereid_lora_host_bytes", "Bytes of the adapters that the host cache holds");
  gauge("nereid_lora_host_max_bytes", "Bytes that the host cache may hold");
  counter("nereid_lora_hits_total", "Requests whose adapter the host cache held");
  counter("nereid_lora_misses_total", "Requests whose adapter the host cache did not hold");
  counter("nereid_lora_evictions_total", "Adapters that gave way in the host cache");
  counter("nereid_lora_loads_total", "Adapters copied into a place of the device");
  is_open_ = true;
}

void LoraMetrics::publish(const AdapterStats& s) {
  if (s.num_places == 0) return;
  if (!is_open_) open();
  const auto of = [](int64_t v) { return static_cast<double>(v); };
  set_.set(kPlaces, of(s.num_places));
  set_.set(kPlacesUsed, of(s.num_places_used));
  set_.set(kPages, of(s.num_pages));
  set_.set(kPagesUsed, of(s.num_pages_used));
  set_.set(kHeld, of(s.num_held));
  set_.set(kBytes, of(s.bytes));
  set_.set(kMaxBytes, of(s.max_bytes));
  set_.increment(kHits, of(s.num_hits - last_.num_hits));
  set_.increment(kMisses, of(s.num_misses - last_.num_misses));
  set_.increment(kEvictions, of(s.num_evictions - last_.num_evictions));
  set_.increment(kLoads, of(s.num_loads - last_.num_loads));
  last_ = s;
}

}  // namespace nereid::backend
