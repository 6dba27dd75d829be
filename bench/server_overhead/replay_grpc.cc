// Unary gRPC over nghttp2 on blocking sockets, messages as they are on the wire.
#include "replay_grpc.h"

#include <nghttp2/nghttp2.h>

#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace nereid::bench {
namespace {

// What one side of an rpc sends.
struct Side {
  std::string path;          // of a request
  std::string bytes;         // messages with their prefixes
  std::string status = "0";  // of a reply
};

nghttp2_nv field(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

class Http2 {
 public:
  Http2(Socket& socket, bool is_server, Duration spin = {})
      : socket_(socket), is_server_(is_server), spin_(spin) {
    nghttp2_session_callbacks* callbacks = nullptr;
    NEREID_CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    NEREID_CHECK((is_server ? nghttp2_session_server_new(&h2_, callbacks, this)
                            : nghttp2_session_client_new(&h2_, callbacks, this)) == 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(h2_, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
  ~Http2() { nghttp2_session_del(h2_); }
  Http2(const Http2&) = delete;
  Http2& operator=(const Http2&) = delete;

  // The next rpc whose peer has sent everything; nullopt when the peer has closed.
  std::optional<int32_t> wait() {
    while (whole_.empty()) {
      flush();
      const auto bytes = socket_.receive(spin_);
      if (bytes.empty()) return std::nullopt;
      const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
      if (nghttp2_session_mem_recv(h2_, data, bytes.size()) < 0) return std::nullopt;
    }
    const int32_t id = whole_.front();
    whole_.pop_front();
    return id;
  }
  Side& received(int32_t id) { return received_[id]; }

  void reply(int32_t id, const Side& side) {
    const nghttp2_nv head[] = {field(":status", "200"), field("content-type", "application/grpc")};
    sending_[id] = {&side, 0};
    const nghttp2_data_provider provider{{}, read};
    nghttp2_submit_response(h2_, id, head, std::size(head), &provider);
  }

  Side ask(const Side& side) {
    const nghttp2_nv head[] = {field(":method", "POST"),
                               field(":scheme", "http"),
                               field(":path", side.path),
                               field(":authority", "localhost"),
                               field("content-type", "application/grpc"),
                               field("te", "trailers")};
    const nghttp2_data_provider provider{{}, read};
    const int32_t id =
        nghttp2_submit_request(h2_, nullptr, head, std::size(head), &provider, nullptr);
    sending_[id] = {&side, 0};
    if (!wait()) return {.status = "14"};
    return std::move(received_.extract(id).mapped());
  }

 private:
  static Http2& self(void* user) { return *static_cast<Http2*>(user); }

  void flush() {
    std::string out;
    const uint8_t* data = nullptr;
    for (ssize_t n; (n = nghttp2_session_mem_send(h2_, &data)) > 0;)
      out.append(reinterpret_cast<const char*>(data), static_cast<size_t>(n));
    if (!out.empty()) socket_.send(out);
  }

  static ssize_t read(nghttp2_session* h2, int32_t id, uint8_t* to, size_t length, uint32_t* flags,
                      nghttp2_data_source*, void* user) {
    auto& [side, at] = self(user).sending_[id];
    const size_t n = std::min(length, side->bytes.size() - at);
    std::memcpy(to, side->bytes.data() + at, n);
    at += n;
    if (at < side->bytes.size()) return static_cast<ssize_t>(n);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (self(user).is_server_) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      const nghttp2_nv trailer = field("grpc-status", side->status);
      nghttp2_submit_trailer(h2, id, &trailer, 1);
    }
    return static_cast<ssize_t>(n);
  }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                       size_t name_size, const uint8_t* value, size_t value_size, uint8_t,
                       void* user) {
    const std::string_view key(reinterpret_cast<const char*>(name), name_size);
    Side& side = self(user).received_[frame->hd.stream_id];
    const std::string_view text(reinterpret_cast<const char*>(value), value_size);
    if (key == ":path") side.path = text;
    if (key == "grpc-status") side.status = text;
    return 0;
  }
  static int on_data(nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t size,
                     void* user) {
    self(user).received_[id].bytes.append(reinterpret_cast<const char*>(data), size);
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    const bool is_last = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    const bool has_content = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
    if (is_last && has_content) self(user).whole_.push_back(frame->hd.stream_id);
    return 0;
  }
  static int on_close(nghttp2_session*, int32_t id, uint32_t, void* user) {
    self(user).sending_.erase(id);
    if (self(user).is_server_) self(user).received_.erase(id);
    return 0;
  }

  Socket& socket_;
  const bool is_server_;
  const Duration spin_;
  nghttp2_session* h2_ = nullptr;
  std::map<int32_t, Side> received_;
  std::map<int32_t, std::pair<const Side*, size_t>> sending_;  // and what has left of it
  std::deque<int32_t> whole_;
};

}  // namespace

void replay_grpc(Socket client, int real_port, Duration spin) {
  Socket real_socket = Socket::connect(real_port);
  Http2 peer(client, /*is_server=*/true, spin), real(real_socket, /*is_server=*/false);
  std::map<std::string, Side> last;  // by path: replies must live until they have left
  Side inference;
  while (const auto id = peer.wait()) {
    Side& request = peer.received(*id);
    const bool is_inference = request.path.ends_with("/ModelInfer");
    Side& answer = last[request.path];
    if (!is_inference || answer.bytes.empty()) {
      // perf_analyzer fails when the model's statistics have not changed.
      if (request.path.ends_with("/ModelStatistics") && !inference.path.empty()) {
        real.ask(inference);
      }
      if (is_inference) inference = request;
      answer = real.ask(request);
    }
    peer.reply(*id, answer);
  }
}

}  // namespace nereid::bench
