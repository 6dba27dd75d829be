// Sends finished spans to an OpenTelemetry collector: OTLP over HTTP, in JSON, in batches, from a
// thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "front/trace/options.h"
#include "front/trace/url.h"

namespace nereid::front {

// Ids are lower-case hexadecimal, 32 and 16 digits. Times are Unix nanoseconds.
struct Span {
  std::string trace_id, span_id, parent_id, trace_state, name;
  uint64_t start_ns = 0, end_ns = 0;
  std::vector<std::pair<std::string, std::string>> texts;  // attributes
  std::vector<std::pair<std::string, int64_t>> numbers;
  std::vector<std::pair<std::string, uint64_t>> events;  // name, time
};

// The body of one POST.
std::string otlp_body(const OtlpOptions& options, const std::vector<Span>& spans);

class OtlpExporter {
 public:
  // InvalidArgument: the URL is unusable.
  static StatusOr<std::unique_ptr<OtlpExporter>> create(OtlpOptions options);
  ~OtlpExporter();  // sends what waits, unless the collector does not answer
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  // Never blocks; spans that the queue has no room for are dropped, and counted in the log.
  void add(std::vector<Span> spans);

 private:
  OtlpExporter(OtlpOptions options, Url url);
  void run();
  std::vector<Span> take_batch();  // locked
  Status post(const std::string& body) const;

  const OtlpOptions options_;
  const Url url_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Span> queue_;
  uint64_t num_dropped_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace nereid::front
