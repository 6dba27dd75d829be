// The fastest answer to an inference that a server could give: it parses nothing (over gRPC: what
// nghttp2 parses), runs nothing and sends the first reply of a real server again, from a thread
// that waits in recv(). Everything else is passed on to the real server. What perf_analyzer
// measures against it is the bound that the client, the kernel and two wake-ups set. With SPIN_US
// it looks for a request for so many microseconds before it waits: one wake-up.
//
// usage: replay_server HTTP_PORT REAL_HTTP_PORT GRPC_PORT REAL_GRPC_PORT [SPIN_US]
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "loopback.h"
#include "replay_grpc.h"

namespace nereid::bench {
namespace {

// For the model of run.py.
const std::string kAnyInference = [] {
  const std::string body =
      R"({"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[16],"data":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}]})";
  return "POST /v2/models/identity/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}();

// One message with a Content-Length, or none, from the bytes at the front of `text`; reads more
// when it is not complete. "": the peer has closed.
std::string take_message(Socket& socket, std::string& text, Duration spin = {}) {
  for (;;) {
    const size_t head = text.find("\r\n\r\n");
    size_t size = std::string::npos;
    if (head != std::string::npos) {
      size_t length = 0;
      for (const char* name : {"\r\nContent-Length: ", "\r\ncontent-length: "}) {
        const size_t at = text.find(name);
        if (at < head) std::from_chars(&text[at + 18], text.data() + head, length);
      }
      size = head + 4 + length;
    }
    if (text.size() >= size) {
      std::string message = text.substr(0, size);
      text.erase(0, size);
      return message;
    }
    const auto more = socket.receive(spin);
    if (more.empty()) return "";
    text += more;
  }
}

void serve(Socket client, int real_port, Duration spin) {
  Socket real = Socket::connect(real_port);
  std::string unread, unread_of_real, answer;
  const auto ask_real = [&](const std::string& request) {
    real.send(request);
    return take_message(real, unread_of_real);
  };
  for (;;) {
    std::string request = take_message(client, unread, spin);
    if (request.empty()) return;
    const std::string_view line = std::string_view(request).substr(0, request.find("\r\n"));
    if (line.find("/infer ") == std::string_view::npos) {
      // perf_analyzer fails when the model's statistics have not changed.
      if (line.find("/stats ") != std::string_view::npos) ask_real(kAnyInference);
      client.send(ask_real(request));
      continue;
    }
    if (answer.empty()) answer = ask_real(request);
    client.send(answer);
  }
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  using nereid::bench::LoopbackListener;
  if (argc != 5 && argc != 6) {
    std::fprintf(stderr,
                 "usage: replay_server HTTP_PORT REAL_HTTP_PORT GRPC_PORT REAL_GRPC_PORT "
                 "[SPIN_US]\n");
    return 2;
  }
  const nereid::Duration spin = std::chrono::microseconds(argc == 6 ? std::atoi(argv[5]) : 0);
  const auto serve_all = [&](const LoopbackListener& listener, const auto& serve, int real_port) {
    for (;;) std::thread(serve, listener.accept(), real_port, spin).detach();
  };
  const LoopbackListener http(std::atoi(argv[1])), grpc(std::atoi(argv[3]));
  std::thread grpc_clients(
      [&] { serve_all(grpc, nereid::bench::replay_grpc, std::atoi(argv[4])); });
  serve_all(http, nereid::bench::serve, std::atoi(argv[2]));
}
