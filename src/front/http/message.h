// Plain HTTP types for handlers: a request, a response, and the Exchange that connects them. They
// include no transport library, so handlers and their tests compile without one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "front/http/spool.h"
#include "front/protection/key_limits.h"

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
  std::string path;   // percent-encoded, without query
  std::string query;  // text after '?', percent-encoded
  Headers headers;
  std::string body;
  std::shared_ptr<const SpooledBody> spooled;  // instead of `body`; null: it is in memory
  std::vector<std::pair<std::string, std::string>> params;  // set by the router, raw text
  KeyUse::PermitPtr permit;           // of the key that it counts for; null: none
  std::string authority;              // of a target in absolute form; stands for Host
  uint64_t tenant = 0;                // whose it is: by its API key, else by its address
  bool is_on_loopback = false;        // the connection comes from this machine
  uint64_t begin_ns = 0, end_ns = 0;  // steady clock: first byte received, last byte received

  // The body, wherever it is; only routes with large bodies have them in files.
  std::string_view content() const { return spooled ? spooled->bytes() : std::string_view(body); }

  // The text matched by {name} in the route; empty when the route has no such parameter.
  std::string_view param(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type;  // empty: no Content-Type header
  Headers headers;
  std::string body;
};

Response json_response(std::string body, int status = 200);

// The API key in a request: in Authorization, else in X-API-Key; "" without one.
std::string_view shown_key(const Request& request);

// Standard reason phrase of a status code, "Unknown" for others.
std::string_view reason_phrase(int status);

// %XX decoded; nullopt when an escape is broken or decodes to a NUL byte. '+' stays '+'.
std::optional<std::string> percent_decode(std::string_view text);

// One request and its answer. All calls but post(), deliver() and disconnected() must be on the
// connection's strand: handlers run there, and post() moves work of other threads there. An answer
// is one send(), or begin_stream(), any number of write() and one end(). When the last reference is
// dropped without an end, the client gets a 500 or a broken stream.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual Request& request() = 0;

  // Runs `work` on the connection's strand, in order. Any thread. Work posted after the client has
  // gone still runs (so that it sees the end of its inference); its output is dropped.
  virtual void post(std::function<void()> work) = 0;

  // post(), but runs at once when called on the strand while no work is queued.
  virtual void dispatch(std::function<void()> work) { post(std::move(work)); }

  // post() for a piece of a stream: runs at once, on the calling thread, while the connection waits
  // for it, so that no thread has to wake. `work` may only call write(), end() and hold().
  virtual void deliver(std::function<void()> work) { post(std::move(work)); }

  // Sends the whole answer. Later calls are ignored.
  virtual void send(Response response) = 0;

  // Sends status line and headers of a streamed answer (chunked; body of `head` is ignored).
  // `if_stopped` ends it when the server stops before the handler calls end().
  virtual void begin_stream(Response head, std::string if_stopped = {}) = 0;

  // Sends one chunk; empty text is ignored. A client that leaves more than the listener's limit
  // unread is disconnected.
  virtual void write(std::string_view text) = 0;
  virtual void end() = 0;

  // Sets the bytes held for the request beside its body and unread output, counted in the budget
  // until the next call or the end of the answer. False: a large amount, and the budget is full.
  virtual bool hold(size_t) { return true; }

  // Called once on the strand when the client leaves (or stalls) or the server stops before the
  // answer is complete; at once if that has happened.
  virtual void on_disconnect(std::function<void()> callback) = 0;
  virtual bool disconnected() const = 0;  // whether on_disconnect has run or would; any thread

  // Called on the strand after each write of (a part of) the answer with the steady-clock ns before
  // and after; not when the client is gone. All callbacks are called, and freed with the answer.
  using OnWritten = std::function<void(uint64_t begin_ns, uint64_t end_ns)>;
  virtual void on_written(OnWritten) {}
};

using ExchangePtr = std::shared_ptr<Exchange>;
using Handler = std::function<void(const ExchangePtr&)>;

}  // namespace nereid::front
