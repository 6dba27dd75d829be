// Plain HTTP types that handlers see: a request, a response, and the Exchange that joins them. No
// transport library behind them, so handlers and their tests compile without one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "front/http/key_limits.h"

namespace nereid::front {

struct Header {
  std::string name;
  std::string value;
};
using Headers = std::vector<Header>;

// The first header of that name (case-insensitive), or nullptr.
const std::string* find_header(const Headers& headers, std::string_view name);

struct Request {
  std::string method;
  std::string path;   // still percent-encoded, without query
  std::string query;  // text after '?', still percent-encoded
  Headers headers;
  std::string body;
  std::vector<std::pair<std::string, std::string>> params;  // set by the router, raw text
  KeyUse::PermitPtr permit;           // of the key that it counts for; null: none
  std::string authority;              // of a target in absolute form; stands for Host
  bool is_on_loopback = false;        // the connection comes from this machine
  uint64_t begin_ns = 0, end_ns = 0;  // steady clock: first byte seen, last one read

  // The text that a route's {name} matched; empty when the route has no such parameter.
  std::string_view param(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type;  // empty: no Content-Type header
  Headers headers;
  std::string body;
};

Response json_response(std::string body, int status = 200);

// Standard reason phrase of a status code, "Unknown" for others.
std::string_view reason_phrase(int status);

// %XX decoded; nullopt when an escape is broken or decodes to a NUL byte. '+' stays '+'.
std::optional<std::string> percent_decode(std::string_view text);

// One request and its answer. Everything but post() and disconnected() must run on the connection's
// strand: handlers are called there, and post() brings other threads' news there. Answer with one
// send(), or with begin_stream(), any number of write() and one end(). When the last reference goes
// away without an end, the client gets a 500 or a broken stream, never silence.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual Request& request() = 0;

  // Runs `work` on the connection's strand, in order. Any thread. Work posted after the client has
  // gone still runs (so that it can see the end of its inference); its writes go nowhere.
  virtual void post(std::function<void()> work) = 0;

  // The same, but at once when called on the strand while nothing posted waits.
  virtual void dispatch(std::function<void()> work) { post(std::move(work)); }

  // The same for a piece of a stream: at once, on the calling thread, while the connection waits
  // for it, so that no thread has to wake. `work` may write, end and hold, nothing else of the
  // exchange.
  virtual void deliver(std::function<void()> work) { post(std::move(work)); }

  // The whole answer. Later calls are ignored.
  virtual void send(Response response) = 0;

  // Status line and headers of a streamed answer (chunked; body of `head` is ignored). `if_stopped`
  // ends it when the server stops before the handler has called end().
  virtual void begin_stream(Response head, std::string if_stopped = {}) = 0;

  // One chunk; empty text is ignored. A reader that leaves more than the listener's limit unread
  // is disconnected.
  virtual void write(std::string_view text) = 0;
  virtual void end() = 0;

  // What the request keeps beside its body and what the client has not read yet, in bytes: part of
  // what the server holds for its clients, until the next call or the end of the answer. False:
  // that is much, and there is no room for it.
  virtual bool hold(size_t) { return true; }

  // Called once on the strand when the client goes away (or stalls) or the server stops before the
  // answer is complete; at once if that has happened already.
  virtual void on_disconnect(std::function<void()> callback) = 0;
  virtual bool disconnected() const = 0;  // that has happened; any thread

  // Called on the strand after each write of the answer (or a part of it) with the steady-clock
  // nanoseconds before and after; not when the client is gone. Each callback given is called, and
  // freed with the answer.
  using OnWritten = std::function<void(uint64_t begin_ns, uint64_t end_ns)>;
  virtual void on_written(OnWritten) {}
};

using ExchangePtr = std::shared_ptr<Exchange>;
using Handler = std::function<void(const ExchangePtr&)>;

}  // namespace nereid::front
