// A small blocking HTTP/1.1 client for measurements: one request per connection, its body
// passed on as it arrives.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace nereid::cli {

struct ServerUrl {
  std::string host;
  int port = 80;
  std::string path;  // prefix of all routes; no slash at its end
};
// "http://host:port/path" ("http://" may be left out). Unimplemented: https.
StatusOr<ServerUrl> parse_url(const std::string& text);

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
  int status() const { return status_; }

 private:
  enum class State : uint8_t { kHead, kBody, kChunkSize, kChunk, kChunkEnd, kTrailer, kDone };
  Status read_head(std::string_view head);
  Status read_header(std::string_view line);
  Status read_line(std::string_view line);
  Status take_body(std::string_view& bytes, const OnBody& on_body);

  State state_ = State::kHead;
  std::string line_;  // partial line of the head, or of a chunk's size
  int status_ = 0;
  int64_t left_ = -1;  // bytes left of body or chunk; -1: up to the end
  bool is_chunked_ = false;
};

struct HttpCall {
  std::string method = "POST";
  std::string path;  // appended to the URL's path
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

// Sends the call and reads the whole response; returns the HTTP status. Unavailable: the port is
// closed, or the connection broke; DeadlineExceeded.
StatusOr<int> send_call(const ServerUrl& url, const HttpCall& call, Time deadline,
                        const OnBody& on_body);

// A parser of server-sent events: calls `on_data` with each event's whole data.
class EventParser {
 public:
  // ResourceExhausted: an event beyond 16 MiB.
  Status feed(std::string_view piece, const OnBody& on_data);

 private:
  std::string line_;
};

}  // namespace nereid::cli
