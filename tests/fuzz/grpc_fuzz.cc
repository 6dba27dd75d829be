// libFuzzer entry for a gRPC connection. The first byte chooses: m = the bytes of a
// ModelInferRequest, anything else = what a client sends on a connection, cut into pieces of that
// many bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "front/grpc/infer_message.h"
#include "front/grpc/messages.h"
#include "front/grpc/session.h"

namespace {

using namespace nereid::front;

class Queue final : public Mailbox {
 public:
  void post(Work work) override { work_.push_back(std::move(work)); }
  void run() {
    while (!work_.empty()) {
      for (Work& w : std::exchange(work_, {})) w();
    }
  }

 private:
  std::vector<Work> work_;
};

// An accepted request is formatted back, with its inputs as outputs.
nereid::Status check_message(std::string bytes, std::string* answer) {
  const SharedMemory regions;
  GrpcInferRequest request;
  const auto any = [](const InferenceSpec&, InferTicket&) { return nereid::ok(); };
  RETURN_IF_ERROR(parse_infer_message(std::move(bytes), any, regions, request));
  InferenceReply reply;
  reply.parameters = request.spec.parameters;
  reply.final = request.ticket.empty_final;
  for (Tensor& t : request.spec.inputs) {
    const auto memory = request.spec.input_memory.find(t.name);
    if (memory != request.spec.input_memory.end()) {
      t.bytes.assign(memory->second.base, memory->second.size);
    }
    reply.outputs.push_back(t);
  }
  if (!format_stream_response(reply, request.ticket).ok()) std::abort();
  ASSIGN_OR_RETURN(std::string out, format_infer_response(reply, request.ticket));
  if (answer != nullptr) *answer = std::move(out);
  return nereid::ok();
}

class Stream final : public StreamHandler {
 public:
  explicit Stream(CallPtr call) : call_(std::move(call)) {}
  void on_message(std::string message) override {
    std::string answer;
    const auto status = check_message(std::move(message), &answer);
    status.ok() ? call_->send(std::move(answer)) : call_->finish(status);
  }
  void on_half_close() override { call_->finish(nereid::ok()); }

 private:
  CallPtr call_;
};

std::shared_ptr<GrpcShared> make_shared_state() {
  auto shared = std::make_shared<GrpcShared>();
  const auto control = std::make_shared<ProtoMessages>();
  shared->options.max_message_bytes = 1 << 20;
  const std::string service = "/inference.GRPCInferenceService/";
  shared->methods[service + "ModelInfer"].unary = [](const CallPtr& call, std::string message) {
    std::string answer;
    const auto status = check_message(std::move(message), &answer);
    if (status.ok()) call->send(std::move(answer));
    call->finish(status);
  };
  shared->methods[service + "ModelStreamInfer"].stream = [](const CallPtr& call) {
    return std::make_shared<Stream>(call);
  };
  shared->methods[service + "RepositoryModelLoad"].unary = [control](const CallPtr& call,
                                                                     const std::string& message) {
    call->finish(control->to_json("inference.RepositoryModelLoadRequest", message).status());
  };
  return shared;
}

void check_connection(std::string_view bytes, size_t piece) {
  static const std::shared_ptr<GrpcShared> shared = make_shared_state();
  const auto mailbox = std::make_shared<Queue>();
  auto now = Session::Time() + std::chrono::hours(1);
  size_t sent = 0;
  {
    Session session(shared, mailbox, now, [] {});
    for (size_t i = 0; i < bytes.size() && !session.is_over(); i += piece) {
      session.receive(bytes.substr(i, piece), now);
      mailbox->run();
      std::string out;
      session.fill(out, 1 << 20);
      sent += out.size();
      now += std::chrono::milliseconds(50);
      session.tick(now);
    }
    session.drain();
    session.tick(now + std::chrono::hours(3));
  }
  mailbox->run();
  if (sent > 64 * bytes.size() + (1 << 20)) std::abort();
  if (shared->stats->calls_active != 0 || shared->stats->buffered_bytes != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'm') {
    static_cast<void>(check_message(std::string(rest), nullptr));
  } else {
    check_connection(rest, 1 + data[0]);
  }
  return 0;
}
