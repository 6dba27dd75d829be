// Sends finished spans to an OpenTelemetry collector: OTLP over HTTP or HTTPS, in JSON, in batches,
// from a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "front/client/http_client.h"
#include "front/trace/options.h"

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
  // InvalidArgument: the URL or the certificates are unusable.
  static StatusOr<std::unique_ptr<OtlpExporter>> create(OtlpOptions options);
  ~OtlpExporter();  // sends waiting spans, once, unless the collector is down
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  // Never blocks; spans beyond the queue's limit are dropped, and counted in the log.
  void add(std::vector<Span> spans);

 private:
  OtlpExporter(OtlpOptions options, Url url, std::shared_ptr<const TlsClient> tls);
  void run();
  // Sends until success, refusal, or the last retry; when stopping, once more. Not locked.
  Status send(const std::string& body);
  bool has_work() const;           // locked: enough spans for a message
  std::vector<Span> take_batch();  // locked
  // Unavailable: may be retried, after at least `pause` if the collector sends one.
  Status post(const std::string& body, Duration& pause) const;

  const OtlpOptions options_;
  const Url url_;
  const std::shared_ptr<const TlsClient> tls_;  // null: plain text
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Span> queue_;
  uint64_t num_dropped_ = 0;
  bool stopping_ = false;
  bool is_down_ = false;  // the last batch is lost; the exporter's thread only
  // Jitter, so that servers do not retry together. The exporter's thread only.
  std::minstd_rand random_{std::random_device{}()};
  std::thread thread_;
};

}  // namespace nereid::front
