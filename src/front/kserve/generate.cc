// One generate request from body to last response; see generate.h.
#include "front/kserve/generate.h"

#include "base/request_flags.h"
#include "front/bridge/inference_call.h"
#include "front/bridge/model_info.h"
#include "front/http/json_text.h"
#include "front/kserve/generate_mapping.h"
#include "front/kserve/load_report.h"
#include "front/kserve/model_path.h"
#include "front/kserve/routes.h"
#include "front/trace/exchange_trace.h"

namespace nereid::front {
namespace {

constexpr char kNotOneResponse[] =
    "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses";

// Lives from the request to the final reply; used on the exchange's strand only.
class Generate {
 public:
  Generate(ExchangePtr exchange, bool stream, LoadReport load)
      : exchange_(std::move(exchange)), stream_(stream), load_(std::move(load)) {}

  void take(InferenceReply reply) {
    if (stream_) {
      stream_reply(reply);
    } else {
      collect_reply(reply);
    }
  }

 private:
  void stream_reply(const InferenceReply& reply) {
    std::string event;
    int status = 200;
    if (!reply.empty) {
      StatusOr<std::string> text =
          reply.status.ok() ? format_generate_reply(reply) : StatusOr<std::string>(reply.status);
      if (!text.ok()) status = http_status(text.status());
      event = "data: " + (text.ok() ? *text : kserve_error_body(message(text.status()))) + "\n\n";
    }
    // The first response decides the status line.
    if (!begun_) {
      Response head{status, "text/event-stream; charset=utf-8", {}, ""};
      if (status == 503) head.headers.push_back({"Retry-After", "1"});
      load_.add_to(head);
      exchange_->begin_stream(std::move(head),
                              "data: " + kserve_error_body("Server exiting") + "\n\n");
      begun_ = true;
    }
    exchange_->write(event);
    if (reply.final) exchange_->end();
  }

  void collect_reply(InferenceReply& reply) {
    const bool final = reply.final;
    if (!reply.empty && ++num_replies_ == 1) first_ = std::move(reply);
    if (!final) return;
    if (num_replies_ != 1) return answer(kserve_error(400, kNotOneResponse));
    if (!first_.status.ok()) return answer(kserve_error(first_.status));
    StatusOr<std::string> text = format_generate_reply(first_);
    answer(text.ok() ? Response{200, "application/json", {}, *std::move(text)}
                     : kserve_error(text.status()));
  }

  // As one chunk: Triton's clients have never seen another framing here.
  void answer(Response response) {
    const std::string body = std::move(response.body);
    load_.add_to(response);
    exchange_->begin_stream(std::move(response));
    exchange_->write(body);
    exchange_->end();
  }

  ExchangePtr exchange_;
  const bool stream_;
  const LoadReport load_;
  bool begun_ = false;
  size_t num_replies_ = 0;
  InferenceReply first_;
};

StatusOr<InferenceSpec> read_request(TRITONSERVER_Server* server, const Request& request) {
  if (const std::string* encoding = find_header(request.headers, "Content-Encoding");
      encoding != nullptr && !encoding->empty() && *encoding != "identity") {
    return invalid_argument("Unsupported content-encoding, only 'identity' is supported.");
  }
  ASSIGN_OR_RETURN(const ModelPath path, model_path(request));
  ASSIGN_OR_RETURN(const auto info, model_info(server, path.name, path.version));
  ASSIGN_OR_RETURN(InferenceSpec spec, map_generate_request(request.body, *info));
  spec.model = path.name;
  spec.version = path.version;
  return spec;
}

}  // namespace

void start_generate(TRITONSERVER_Server* server, const ExchangePtr& exchange, bool stream,
                    const KserveOptions& options) {
  StatusOr<InferenceSpec> spec = read_request(server, exchange->request());
  if (!spec.ok()) {
    exchange->send(kserve_error(spec.status()));
    return;
  }
  spec->trace = trace_exchange(*options.tracer, spec->model, *exchange);
  auto state =
      std::make_shared<Generate>(exchange, stream, LoadReport(server, exchange->request()));
  auto on_reply = [exchange, state](InferenceReply reply) {
    auto shared = std::make_shared<InferenceReply>(std::move(reply));
    exchange->deliver([state, shared] { state->take(std::move(*shared)); });
  };
  spec->flags |= kMayRunHere;
  StatusOr<std::shared_ptr<InferenceCall>> call =
      InferenceCall::start(server, *std::move(spec), std::move(on_reply));
  if (!call.ok()) {
    exchange->send(kserve_error(call.status()));
    return;
  }
  exchange->on_disconnect([call = *call] { call->cancel(); });
}

}  // namespace nereid::front
