// An HTTP/2 client in memory, connected to a server session, for tests without sockets.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "front/grpc/session.h"
#include "front/grpc/wire.h"

namespace nereid::front {

// Work waits until run() is called. Work holds its call, and a call holds the mailbox: work posted
// after close() is destroyed.
class ManualMailbox final : public Mailbox {
 public:
  void post(Work work) override {
    Work dropped;  // destroyed outside of the lock
    std::lock_guard lock(mutex_);
    if (is_closed_) {
      dropped = std::move(work);
    } else {
      work_.push_back(std::move(work));
    }
  }
  void run() {
    for (auto work = take(); !work.empty(); work = take()) {
      for (Work& w : work) w();
    }
  }
  void close() {
    std::vector<Work> dropped;
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    dropped.swap(work_);
  }

 private:
  std::vector<Work> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(work_, {});
  }

  std::mutex mutex_;
  std::vector<Work> work_;
  bool is_closed_ = false;
};

struct ClientReply {
  std::map<std::string, std::string> headers;  // with trailers
  std::vector<std::string> messages;
  std::string bytes;  // of an incomplete message
  bool closed = false;
  uint32_t error_code = 0;
  int num_statuses = 0;
};

class TestClient {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  // Without `reads` it never enlarges its window.
  explicit TestClient(std::shared_ptr<GrpcShared> shared, bool reads = true)
      : now(Session::Time() + std::chrono::hours(1)) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_option* option = nullptr;
    nghttp2_option_new(&option);
    nghttp2_option_set_no_auto_window_update(option, reads ? 0 : 1);
    nghttp2_session_client_new2(&h2, callbacks, this, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(h2, NGHTTP2_FLAG_NONE, nullptr, 0);
    server = std::make_unique<Session>(std::move(shared), mailbox, now, [] {});
  }
  ~TestClient() {
    server.reset();
    mailbox->run();
    mailbox->close();
    nghttp2_session_del(h2);
  }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  // Moves bytes both ways until nothing is left, `chunk` bytes at a time towards the server.
  void pump(size_t chunk = 1 << 20) {
    for (bool moved = true; moved;) {
      moved = false;
      mailbox->run();
      const uint8_t* data = nullptr;
      for (ssize_t n; (n = nghttp2_session_mem_send(h2, &data)) > 0; moved = true) {
        const std::string bytes(reinterpret_cast<const char*>(data), static_cast<size_t>(n));
        for (size_t i = 0; i < bytes.size(); i += chunk) {
          server->receive(std::string_view(bytes).substr(i, chunk), now);
        }
      }
      mailbox->run();
      std::string out;
      server->fill(out, 1 << 20);
      if (out.empty()) continue;
      moved = true;
      const ssize_t n =
          nghttp2_session_mem_recv(h2, reinterpret_cast<const uint8_t*>(out.data()), out.size());
      if (n < 0) break;
    }
  }

  void pass(std::chrono::milliseconds time) {
    now += time;
    server->tick(now);
    pump();
  }

  int32_t open(const std::string& path, const Headers& more = {},
               const std::string& method = "POST", const std::string& type = "application/grpc") {
    Headers all = {{":method", method}, {":scheme", "http"},    {":path", path},
                   {":authority", "t"}, {"content-type", type}, {"te", "trailers"}};
    all.insert(all.end(), more.begin(), more.end());
    std::vector<nghttp2_nv> pairs;
    for (const auto& [name, value] : all) {
      pairs.push_back({reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
                       reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(),
                       value.size(), NGHTTP2_NV_FLAG_NONE});
    }
    nghttp2_data_provider provider = {};
    provider.read_callback = read;
    return nghttp2_submit_request(h2, nullptr, pairs.data(), pairs.size(), &provider, nullptr);
  }

  void write(int32_t id, std::string bytes, bool end = false) {
    to_send[id].first += bytes;
    if (end) to_send[id].second = true;
    nghttp2_session_resume_data(h2, id);
  }
  void message(int32_t id, const std::string& body, bool end = false, bool compressed = false) {
    std::string framed(kGrpcPrefixBytes, '\0');
    framed += body;
    write_grpc_prefix(framed, compressed);
    write(id, framed, end);
  }
  void end(int32_t id) { write(id, "", true); }

  ClientReply call(const std::string& path, const std::string& body, const Headers& more = {}) {
    const int32_t id = open(path, more);
    message(id, body, true);
    pump();
    return replies[id];
  }
  void reset(int32_t id) {
    nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    pump();
  }

  std::shared_ptr<ManualMailbox> mailbox = std::make_shared<ManualMailbox>();
  Session::Time now;
  std::unique_ptr<Session> server;
  nghttp2_session* h2 = nullptr;
  std::map<int32_t, ClientReply> replies;
  std::map<int32_t, std::pair<std::string, bool>> to_send;
  bool goaway = false;
  uint32_t goaway_code = 0;
  std::string goaway_text;
  int pings = 0;

 private:
  static TestClient& self(void* user) { return *static_cast<TestClient*>(user); }

  static ssize_t read(nghttp2_session*, int32_t id, uint8_t* buffer, size_t length, uint32_t* flags,
                      nghttp2_data_source*, void* user) {
    auto& [bytes, end] = self(user).to_send[id];
    const size_t n = std::min(length, bytes.size());
    if (n == 0 && !end) return NGHTTP2_ERR_DEFERRED;
    std::memcpy(buffer, bytes.data(), n);
    bytes.erase(0, n);
    if (end && bytes.empty()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(n);
  }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                       size_t name_size, const uint8_t* value, size_t value_size, uint8_t,
                       void* user) {
    const std::string key(reinterpret_cast<const char*>(name), name_size);
    ClientReply& reply = self(user).replies[frame->hd.stream_id];
    reply.headers[key].assign(reinterpret_cast<const char*>(value), value_size);
    if (key == "grpc-status") ++reply.num_statuses;
    return 0;
  }
  static int on_data(nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t size,
                     void* user) {
    ClientReply& reply = self(user).replies[id];
    reply.bytes.append(reinterpret_cast<const char*>(data), size);
    std::string_view rest = reply.bytes;
    for (;;) {
      MessageReader reader;
      std::string_view next = rest;
      if (!reader.take(next, 1 << 30).ok() || !reader.has_message()) break;
      bool compressed = false;
      reply.messages.push_back(reader.release(compressed));
      rest = next;
    }
    reply.bytes = std::string(rest);
    return 0;
  }
  static int on_close(nghttp2_session*, int32_t id, uint32_t error_code, void* user) {
    self(user).replies[id].closed = true;
    self(user).replies[id].error_code = error_code;
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    TestClient& client = self(user);
    if (frame->hd.type == NGHTTP2_GOAWAY) {
      client.goaway = true;
      client.goaway_code = frame->goaway.error_code;
      client.goaway_text.assign(reinterpret_cast<const char*>(frame->goaway.opaque_data),
                                frame->goaway.opaque_data_len);
    } else if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) {
      ++client.pings;
    }
    return 0;
  }
};

}  // namespace nereid::front
