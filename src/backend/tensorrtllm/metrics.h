// The nv_trt_llm_* and nv_llm_* metrics of a model, and latency histograms, through the metrics C
// API.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "nereid/executor.h"
#include "triton/core/tritonserver.h"

namespace nereid::backend {

// Thread safe. Where the server has metrics switched off nothing is recorded.
class ModelMetrics {
 public:
  // `is_static`: the model batches statically (V1), which has figures of its own.
  ModelMetrics(const std::string& model, int64_t version, bool is_static);
  ~ModelMetrics();
  ModelMetrics(const ModelMetrics&) = delete;
  ModelMetrics& operator=(const ModelMetrics&) = delete;

  // A newer snapshot of the executor and its last step (nullptr: none since the call before). Also
  // writes the figures as one line of JSON to the verbose log. One caller at a time.
  void publish(const ExecutorStats& stats, const IterationStats* last_step);
  // A request that ended with a result. `num_tokens_sent`: in all its responses.
  void finished(const Response& final_response, int64_t num_tokens_sent);

  // Every gauge and counter of the nv_trt_llm families as one line of JSON, as last published.
  std::string figures() const;

 private:
  size_t add(TRITONSERVER_MetricKind kind, const char* family, const char* help, const char* label,
             const char* value, const std::vector<double>& buckets = {});
  void set(size_t index, double value);
  void increment(size_t index, double value);
  void observe(size_t index, double value);

  std::string model_, version_;
  bool is_static_;
  std::vector<TRITONSERVER_MetricFamily*> families_;
  std::vector<TRITONSERVER_Metric*> metrics_;  // null where the server refused one
  std::vector<double> values_;                 // of the gauges, as last set
  std::string timestamp_;                      // "MM-DD-YYYY HH:MM:SS.ffffff", UTC
  ExecutorStats last_;
  IterationStats last_step_;
};

}  // namespace nereid::backend
