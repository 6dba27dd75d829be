// gRPC's interoperability cases with the distribution's libgrpc++ as the client. The server and its
// models are those of grpc_interop.py, which starts this; run.sh builds it. Nothing else but
// bench/grpc_echo uses that library.
//
// usage: grpc_interop HOST:PORT
#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/codegen/sync_stream.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "infer.pb.h"

namespace {

using google::protobuf::BoolValue;
using google::protobuf::StringValue;
using grpc::ClientContext;
using grpc::Status;
using grpc::StatusCode;
using grpc::internal::RpcMethod;
using inference::ModelInferRequest;
using inference::ModelInferResponse;
using inference::ModelStreamInferResponse;
using Values = std::vector<int32_t>;
using Stream = grpc::ClientReaderWriter<ModelInferRequest, ModelStreamInferResponse>;

const std::string kService = "/inference.GRPCInferenceService/";
std::shared_ptr<grpc::Channel> channel;

void check(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("grpc++: wrong: %s\n", what.c_str());
  std::exit(1);
}

std::chrono::system_clock::time_point in_ms(int ms) {
  return std::chrono::system_clock::now() + std::chrono::milliseconds(ms);
}

// A context whose deadline only a server that hangs meets.
struct Context : ClientContext {
  Context() { set_deadline(in_ms(60000)); }
};

template <class Request, class Reply>
Status unary(const std::string& path, ClientContext& context, const Request& request,
             Reply& reply) {
  const RpcMethod method(path.c_str(), RpcMethod::NORMAL_RPC, channel);
  return grpc::internal::BlockingUnaryCall<Request, Reply, google::protobuf::MessageLite,
                                           google::protobuf::MessageLite>(
      channel.get(), method, &context, request, &reply);
}

std::unique_ptr<Stream> open_stream(ClientContext& context) {
  static const RpcMethod method("/inference.GRPCInferenceService/ModelStreamInfer",
                                RpcMethod::BIDI_STREAMING, channel);
  return std::unique_ptr<Stream>(
      grpc::internal::ClientReaderWriterFactory<
          ModelInferRequest, ModelStreamInferResponse>::Create(channel.get(), method, &context));
}

ModelInferRequest request(const std::string& model, const Values& values,
                          const std::string& id = "") {
  ModelInferRequest out;
  out.set_model_name(model);
  out.set_id(id);
  auto* input = out.add_inputs();
  input->set_name("IN");
  input->set_datatype("INT32");
  if (model == "one") input->add_shape(1);
  input->add_shape(static_cast<int64_t>(values.size()));
  out.add_raw_input_contents(values.data(), values.size() * sizeof(int32_t));
  return out;
}

Values values_of(const ModelInferResponse& reply) {
  check(reply.raw_output_contents_size() == 1, "outputs");
  const std::string& bytes = reply.raw_output_contents(0);
  Values out(bytes.size() / sizeof(int32_t));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

Values count_to(int n) {
  Values out(n);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Status infer(const ModelInferRequest& sent, ModelInferResponse& reply) {
  Context context;
  return unary(kService + "ModelInfer", context, sent, reply);
}

// The first value of every answer that is left.
Values rest_of(Stream& stream) {
  Values out;
  for (ModelStreamInferResponse reply; stream.Read(&reply);) {
    check(reply.error_message().empty(), reply.error_message());
    out.push_back(values_of(reply.infer_response())[0]);
  }
  return out;
}

// ServerLiveResponse is on the wire what BoolValue is, and an empty StringValue is an empty
// message.
void empty_unary() {
  Context context;
  BoolValue live;
  check(unary(kService + "ServerLive", context, StringValue(), live).ok() && live.value(), "live");
}

void large_unary() {
  for (const int size : {271828 / 4, 314159 / 4, 1 << 20}) {
    ModelInferResponse reply;
    const Status status = infer(request("one", count_to(size)), reply);
    check(status.ok() && values_of(reply) == count_to(size), status.error_message());
  }
}

void client_compressed_unary() {
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_NONE}) {
    Context context;
    context.set_compression_algorithm(algorithm);
    ModelInferResponse reply;
    const Values sent(100000, 7);
    const Status status = unary(kService + "ModelInfer", context, request("one", sent), reply);
    check(status.ok() && values_of(reply) == sent, status.error_message());
  }
}

void server_streaming() {
  Context context;
  const auto stream = open_stream(context);
  const Values sizes = {31415, 9, 2653, 58979};
  check(stream->Write(request("repeat", sizes)) && stream->WritesDone(), "write");
  check(rest_of(*stream) == sizes && stream->Finish().ok(), "answers");
}

void client_streaming() {
  Context context;
  const auto stream = open_stream(context);
  std::thread writer([&] {
    for (int i = 0; i < 300; ++i)
      check(stream->Write(request("one", {i}, std::to_string(i))), "write");
    stream->WritesDone();
  });
  Values got = rest_of(*stream);
  writer.join();
  std::sort(got.begin(), got.end());
  check(got == count_to(300) && stream->Finish().ok(), "answers");
}

void ping_pong() {
  Context context;
  const auto stream = open_stream(context);
  for (const int size : {27182, 8, 1828, 45904}) {
    ModelStreamInferResponse reply;
    check(
        stream->Write(request("one", count_to(size), std::to_string(size))) && stream->Read(&reply),
        "turn");
    check(reply.infer_response().id() == std::to_string(size), "id");
    check(values_of(reply.infer_response()) == count_to(size), "values");
  }
  stream->WritesDone();
  check(rest_of(*stream).empty() && stream->Finish().ok(), "end");
}

void empty_stream() {
  Context context;
  const auto stream = open_stream(context);
  stream->WritesDone();
  check(rest_of(*stream).empty() && stream->Finish().ok(), "end");
}

void cancel_after_begin() {
  Context context;
  const auto stream = open_stream(context);
  context.TryCancel();
  check(stream->Finish().error_code() == StatusCode::CANCELLED, "code");
}

void cancel_after_first_response() {
  Context context;
  const auto stream = open_stream(context);
  ModelStreamInferResponse reply;
  check(stream->Write(request("one", {1})) && stream->Read(&reply), "first");
  check(stream->Write(request("stuck_stream", {1})), "second");
  context.TryCancel();
  check(stream->Finish().error_code() == StatusCode::CANCELLED, "code");
  empty_unary();
}

void timeout_on_sleeping_server() {
  ClientContext context;
  context.set_deadline(in_ms(50));
  ModelInferResponse reply;
  const Status status = unary(kService + "ModelInfer", context, request("stuck", {1}), reply);
  check(status.error_code() == StatusCode::DEADLINE_EXCEEDED, "unary");
  ClientContext other;
  other.set_deadline(in_ms(50));
  const auto stream = open_stream(other);
  stream->Write(request("stuck_stream", {1}));
  check(stream->Finish().error_code() == StatusCode::DEADLINE_EXCEEDED, "stream");
}

void status_code_and_message() {
  ModelInferResponse reply;
  const Status status = infer(request("nope", {1}), reply);
  check(status.error_code() == StatusCode::NOT_FOUND, "code");
  check(status.error_message() == "Request for unknown model: 'nope' is not found",
        status.error_message());
}

// ModelMetadataRequest begins with the name, as StringValue with its text.
void special_status_message() {
  const std::string name =
      "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608 100%\t\n";
  Context context;
  StringValue sent, reply;
  sent.set_value(name);
  const Status status = unary(kService + "ModelMetadata", context, sent, reply);
  check(status.error_code() == StatusCode::NOT_FOUND, "code");
  check(status.error_message().find("'" + name + "'") != std::string::npos, status.error_message());
}

void custom_metadata() {
  Context context;
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  for (const auto& [key, value] :
       std::multimap<std::string, std::string>{{"x-fwd-note", "test_initial_metadata_value"},
                                               {"x-grpc-test-echo-trailing-bin", "\xab\xab\xab"},
                                               {"twice", "a"},
                                               {"twice", "b"},
                                               {"empty", ""},
                                               {"large", std::string(4000, 'x')},
                                               {"all-bin", all}}) {
    context.AddMetadata(key, value);
  }
  ModelInferResponse reply;
  const Status status = unary(kService + "ModelInfer", context, request("one", {5}), reply);
  check(status.ok() && values_of(reply) == Values{5}, status.error_message());
}

void unimplemented_method() {
  for (const std::string path : {"/inference.GRPCInferenceService/UnimplementedCall",
                                 "/grpc.testing.UnimplementedService/UnimplementedCall"}) {
    Context context;
    StringValue reply;
    check(unary(path, context, StringValue(), reply).error_code() == StatusCode::UNIMPLEMENTED,
          path);
  }
}

void many_threads() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 32; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) {
        ModelInferResponse reply;
        const Values sent(1000, t * 50 + i);
        check(infer(request("one", sent), reply).ok() && values_of(reply) == sent,
              "an answer of another call");
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

constexpr std::pair<const char*, void (*)()> kCases[] = {
    {"empty_unary", empty_unary},
    {"large_unary", large_unary},
    {"client_compressed_unary", client_compressed_unary},
    {"server_streaming", server_streaming},
    {"client_streaming", client_streaming},
    {"ping_pong", ping_pong},
    {"empty_stream", empty_stream},
    {"cancel_after_begin", cancel_after_begin},
    {"cancel_after_first_response", cancel_after_first_response},
    {"timeout_on_sleeping_server", timeout_on_sleeping_server},
    {"status_code_and_message", status_code_and_message},
    {"special_status_message", special_status_message},
    {"custom_metadata", custom_metadata},
    {"unimplemented_method", unimplemented_method},
    {"many_threads", many_threads},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: grpc_interop HOST:PORT\n");
    return 2;
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  channel = grpc::CreateCustomChannel(argv[1], grpc::InsecureChannelCredentials(), arguments);
  for (const auto& [name, run] : kCases) {
    run();
    std::printf("grpc++: %s\n", name);
    std::fflush(stdout);
  }
  std::printf("grpc++: %zu cases, all passed\n", std::size(kCases));
}
