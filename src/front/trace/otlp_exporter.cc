// See otlp_exporter.h. Protocol: opentelemetry-proto 1.x, trace service, JSON mapping.
#include "front/trace/otlp_exporter.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <iterator>

#include "base/json.h"
#include "base/log.h"

namespace nereid::front {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::chrono::seconds kTimeout(10);  // for a whole POST
constexpr int kServerKind = 2;                // SPAN_KIND_SERVER
constexpr char kScope[] = "triton-server";

json::object attribute(const std::string& key, const std::string& text) {
  return {{"key", key}, {"value", json::object{{"stringValue", text}}}};
}

json::object span_json(const Span& span) {
  json::array attributes, events;
  for (const auto& [key, text] : span.texts) attributes.push_back(attribute(key, text));
  for (const auto& [key, number] : span.numbers) {
    // 64-bit numbers are strings in the JSON mapping of protobuf.
    attributes.push_back(
        json::object{{"key", key}, {"value", json::object{{"intValue", std::to_string(number)}}}});
  }
  for (const auto& [name, ns] : span.events) {
    events.push_back(json::object{{"timeUnixNano", std::to_string(ns)}, {"name", name}});
  }
  json::object out{{"traceId", span.trace_id},
                   {"spanId", span.span_id},
                   {"name", span.name},
                   {"kind", kServerKind},
                   {"startTimeUnixNano", std::to_string(span.start_ns)},
                   {"endTimeUnixNano", std::to_string(span.end_ns)},
                   {"attributes", std::move(attributes)},
                   {"events", std::move(events)}};
  if (!span.parent_id.empty()) out["parentSpanId"] = span.parent_id;
  if (!span.trace_state.empty()) out["traceState"] = span.trace_state;
  return out;
}

// One POST on a connection of its own; every step under one deadline.
class Post {
 public:
  Post(const Url& url, const std::string& body) : url_(url), stream_(io_), resolver_(io_) {
    request_.method(http::verb::post);
    request_.target(url.target);
    request_.version(11);
    const bool is_v6 = url.host.find(':') != std::string::npos;
    request_.set(http::field::host, is_v6 ? "[" + url.host + "]" : url.host);
    request_.set(http::field::content_type, "application/json");
    request_.set(http::field::connection, "close");
    request_.body() = body;
    request_.prepare_payload();
    parser_.body_limit(1 << 20);
  }

  Status run() {
    resolver_.async_resolve(url_.host, url_.port, [this](error_code ec, auto results) {
      if (note("resolve", ec)) return;
      stream_.expires_after(kTimeout);
      stream_.async_connect(results, [this](error_code e, const auto&) {
        if (!note("connect", e)) write();
      });
    });
    io_.run_for(2 * kTimeout);  // a resolver may hang
    if (!failure_.ok()) return failure_;
    if (!done_) return unavailable("no answer within {} s", kTimeout.count());
    const auto status = parser_.get().result_int();
    if (status / 100 == 2) return ok();
    return unavailable("the collector answers {}", status);
  }

 private:
  bool note(const char* step, error_code ec) {
    if (ec) failure_ = unavailable("{}: {}", step, ec.message());
    return static_cast<bool>(ec);
  }
  void write() {
    http::async_write(stream_, request_, [this](error_code ec, size_t) {
      if (note("write", ec)) return;
      http::async_read(stream_, buffer_, parser_,
                       [this](error_code e, size_t) { done_ = !note("read", e); });
    });
  }

  const Url& url_;
  asio::io_context io_;
  beast::tcp_stream stream_;
  asio::ip::tcp::resolver resolver_;
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  Status failure_;
  bool done_ = false;
};

}  // namespace

std::string otlp_body(const OtlpOptions& options, const std::vector<Span>& spans) {
  json::array attributes, list;
  for (const auto& [key, value] : options.resource) attributes.push_back(attribute(key, value));
  for (const Span& span : spans) list.push_back(span_json(span));
  json::object scope{{"scope", json::object{{"name", kScope}}}, {"spans", std::move(list)}};
  json::object resource{{"resource", json::object{{"attributes", std::move(attributes)}}},
                        {"scopeSpans", json::array{std::move(scope)}}};
  return json::serialize(json::object{{"resourceSpans", json::array{std::move(resource)}}});
}

StatusOr<std::unique_ptr<OtlpExporter>> OtlpExporter::create(OtlpOptions options) {
  ASSIGN_OR_RETURN(Url url, parse_url(options.url));
  return std::unique_ptr<OtlpExporter>(new OtlpExporter(std::move(options), std::move(url)));
}

OtlpExporter::OtlpExporter(OtlpOptions options, Url url)
    : options_(std::move(options)), url_(std::move(url)), thread_([this] { run(); }) {}

OtlpExporter::~OtlpExporter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void OtlpExporter::add(std::vector<Span> spans) {
  {
    std::lock_guard lock(mutex_);
    for (Span& span : spans) {
      if (queue_.size() >= options_.max_queue_size) {
        ++num_dropped_;
      } else {
        queue_.push_back(std::move(span));
      }
    }
    if (queue_.size() < options_.max_batch_size) return;  // the delay brings it
  }
  changed_.notify_all();
}

std::vector<Span> OtlpExporter::take_batch() {
  const size_t count = std::min<size_t>(queue_.size(), options_.max_batch_size);
  const auto end = queue_.begin() + static_cast<ptrdiff_t>(count);
  std::vector<Span> batch(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
  queue_.erase(queue_.begin(), end);
  return batch;
}

void OtlpExporter::run() {
  bool was_lost = false;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait_for(lock, std::chrono::milliseconds(options_.schedule_delay_ms),
                      [&] { return stopping_ || queue_.size() >= options_.max_batch_size; });
    bool answers = true;
    while (!queue_.empty() && answers) {
      const auto batch = take_batch();
      const uint64_t dropped = std::exchange(num_dropped_, 0);
      lock.unlock();
      const Status sent = post(otlp_body(options_, batch));
      answers = sent.ok();
      // Once for each outage.
      if (!answers && !was_lost) {
        log_warn("traces to {}: {}; {} spans are lost", options_.url, message(sent), batch.size());
      }
      if (dropped > 0) {
        log_warn("traces to {}: {} spans dropped, the queue was full", options_.url, dropped);
      }
      was_lost = !answers;
      lock.lock();
    }
    if (stopping_) return;
  }
}

Status OtlpExporter::post(const std::string& body) const {
  try {
    return Post(url_, body).run();
  } catch (const std::exception& e) {
    return unavailable("{}", e.what());
  }
}

}  // namespace nereid::front
