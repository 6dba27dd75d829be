// An rpc that answers with its own message, over the gRPC code of this server (front/grpc).
//
// usage: grpc_echo PORT THREADS
#include <boost/asio/ip/tcp.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "front/grpc/loop.h"

int main(int argc, char** argv) {
  using boost::asio::ip::tcp;
  using nereid::front::CallPtr;
  using nereid::front::Loop;
  if (argc != 3) {
    std::fprintf(stderr, "usage: grpc_echo PORT THREADS\n");
    return 2;
  }
  auto shared = std::make_shared<nereid::front::GrpcShared>();
  shared->methods["/bench.Echo/Echo"].unary = [](const CallPtr& call, std::string message) {
    call->send(std::string(nereid::front::kGrpcPrefixBytes, '\0') + message);
    call->finish(nereid::ok());
  };
  std::vector<std::unique_ptr<Loop>> loops;
  for (int i = 0; i < std::max(1, std::atoi(argv[2])); ++i)
    loops.push_back(std::make_unique<Loop>(shared));
  boost::asio::io_context io;
  tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(),
                              static_cast<unsigned short>(std::atoi(argv[1]))});
  std::puts("ready");
  std::fflush(stdout);
  for (size_t next = 0;; ++next) {
    Loop& loop = *loops[next % loops.size()];
    loop.adopt(acceptor.accept(loop.context()));
  }
}
