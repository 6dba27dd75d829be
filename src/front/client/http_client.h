// A small blocking HTTP/1.1 client, for the load generator and the exporter of traces: one request
// per connection, its body passed on as it arrives; TLS by OpenSSL.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "front/client/url.h"

struct ssl_ctx_st;

namespace nereid::front {

using OnBody = std::function<void(std::string_view piece)>;

// An incremental parser of one response. Format: RFC 9112; bodies by length, by chunks, or up to
// the end of the connection.
class ResponseParser {
 public:
  // InvalidArgument: no HTTP, or a header beyond 64 KiB.
  Status feed(std::string_view bytes, const OnBody& on_body);
  // To be called at the end of the connection. Unavailable: the response is incomplete.
  Status finish();
  bool is_done() const { return state_ == State::kDone; }
  // Whether the head of the final response is complete (a 1xx response precedes it).
  bool has_head() const { return state_ != State::kHead; }
  int status() const { return status_; }
  const std::string& retry_after() const { return retry_after_; }  // the header's value, or empty

 private:
  enum class State : uint8_t { kHead, kBody, kChunkSize, kChunk, kChunkEnd, kTrailer, kDone };
  Status read_head(std::string_view head);
  Status read_header(std::string_view line);
  Status read_line(std::string_view line);
  Status take_body(std::string_view& bytes, const OnBody& on_body);

  State state_ = State::kHead;
  std::string line_;  // partial line of the head, or of a chunk's size
  int status_ = 0;
  std::string retry_after_;
  int64_t left_ = -1;  // bytes left of body or chunk; -1: up to the end
  bool is_chunked_ = false;
};

struct HttpCall {
  std::string method = "POST";
  std::string path;  // appended to the URL's path, which loses slashes at its end; empty: the URL's
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // Set by another thread to end the call, which is noticed within 50 ms; may be null.
  const std::atomic<bool>* stop = nullptr;
};

struct HttpAnswer {
  int status = 0;
  std::string retry_after;  // the header's value, or empty
};

// Settings of TLS connections: the server's certificate and its name are verified.
class TlsClient {
 public:
  // `ca_file`: certificates in PEM; empty: the system's. InvalidArgument: it cannot be used.
  static StatusOr<std::shared_ptr<const TlsClient>> create(const std::string& ca_file);
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;
  ssl_ctx_st* context() const { return context_; }

 private:
  explicit TlsClient(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

// Sends the call and reads the response; a null `on_body`: its head alone. `tls` is needed where
// the URL is https. Unavailable: the port is closed, or the connection broke; DeadlineExceeded;
// Cancelled: call.stop is set; InvalidArgument: the response is no HTTP, or the server's
// certificate is not trusted.
StatusOr<HttpAnswer> send_call(const Url& url, const HttpCall& call, Time deadline,
                               const OnBody& on_body, const TlsClient* tls = nullptr);

// A parser of server-sent events: calls `on_data` with each event's whole data.
class EventParser {
 public:
  // ResourceExhausted: an event beyond 16 MiB.
  Status feed(std::string_view piece, const OnBody& on_data);

 private:
  std::string line_;
};

}  // namespace nereid::front
