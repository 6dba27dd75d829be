// The same rpc over libgrpc++, registered as the generated code of its callback interface does.
// run.py builds it; the project does not use that library.
//
// usage: library_server PORT
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdio>
#include <memory>
#include <string>

namespace {

using grpc::ByteBuffer;
using Handler = grpc::internal::CallbackUnaryHandler<ByteBuffer, ByteBuffer>;

class Echo : public grpc::Service {
 public:
  Echo() {
    AddMethod(new grpc::internal::RpcServiceMethod("/bench.Echo/Echo",
                                                   grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodRawCallback(0, new Handler([](grpc::CallbackServerContext* context,
                                            const ByteBuffer* request, ByteBuffer* reply) {
                            *reply = *request;  // the same bytes, counted
                            auto* reactor = context->DefaultReactor();
                            reactor->Finish(grpc::Status::OK);
                            return reactor;
                          }));
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: library_server PORT\n");
    return 2;
  }
  Echo echo;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(std::string("127.0.0.1:") + argv[1], grpc::InsecureServerCredentials());
  builder.RegisterService(&echo);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return 1;
  std::puts("ready");
  std::fflush(stdout);
  server->Wait();
}
