// One infer request from body to reply; see infer.h.
#include "front/kserve/infer.h"

#include <charconv>

#include "base/request_flags.h"
#include "front/bridge/inference_call.h"
#include "front/http/compression.h"
#include "front/kserve/infer_message.h"
#include "front/kserve/model_path.h"
#include "front/trace/exchange_trace.h"

namespace nereid::front {
namespace {

constexpr char kLengthHeader[] = "Inference-Header-Content-Length";

// Lives from the request to the final reply; used on the exchange's strand only.
class Infer {
 public:
  Infer(ExchangePtr exchange, InferRequest request)
      : exchange_(std::move(exchange)), request_(std::move(request)) {}

  void take(InferenceReply reply) {
    const bool final = reply.final;
    if (!reply.empty && ++num_replies_ == 1) first_ = std::move(reply);
    if (!final) return;
    if (num_replies_ == 1 && !first_.status.ok()) {
      exchange_->send(kserve_error(first_.status));
    } else if (num_replies_ != 1) {
      exchange_->send(
          kserve_error(500, fmt::format("expected a single response, got {}", num_replies_)));
    } else {
      exchange_->send(answer());
    }
  }

 private:
  Response answer() {
    auto body = format_infer_reply(first_, request_);
    if (!body.ok()) return kserve_error(body.status());
    Response response{200, "application/json", {}, std::move(body->bytes)};
    if (body->has_binary) {
      response.content_type = "application/octet-stream";
      response.headers.push_back({kLengthHeader, std::to_string(body->json_size)});
    }
    const std::string* accept = find_header(exchange_->request().headers, "Accept-Encoding");
    const Encoding encoding = accept == nullptr ? Encoding::kIdentity : preferred_encoding(*accept);
    if (encoding != Encoding::kIdentity) {
      response.body = compress(response.body, encoding);
      response.headers.push_back(
          {"Content-Encoding", encoding == Encoding::kGzip ? "gzip" : "deflate"});
    }
    return response;
  }

  ExchangePtr exchange_;
  const InferRequest request_;  // without its spec
  size_t num_replies_ = 0;
  InferenceReply first_;
};

StatusOr<std::string> read_body(Request& request, const KserveOptions& options) {
  const std::string* encoding = find_header(request.headers, "Content-Encoding");
  if (encoding == nullptr || encoding->empty() || *encoding == "identity") {
    return std::move(request.body);
  }
  if (*encoding != "gzip" && *encoding != "deflate") {
    return unsupported("Unsupported compression type");
  }
  auto body = decompress(request.body, Encoding::kGzip, options.max_body_bytes);
  if (body.status().code() != absl::StatusCode::kResourceExhausted) return body;
  return invalid_argument(
      "request JSON size of more than {} bytes exceeds the maximum allowed input size of {} "
      "bytes. Use --http-max-input-size to increase the limit.",
      options.max_body_bytes, options.max_body_bytes);
}

StatusOr<std::optional<size_t>> header_length(const Request& request, size_t body_size) {
  const std::string* text = find_header(request.headers, kLengthHeader);
  if (text == nullptr) return std::optional<size_t>();
  int64_t length = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), length);
  if (parsed.ptr != text->data() + text->size() || text->empty()) {
    return invalid_argument("Unable to parse {}, got: {}", kLengthHeader, *text);
  }
  if (parsed.ec != std::errc() || length < 0 || static_cast<size_t>(length) > body_size) {
    return invalid_argument("inference header size should be in range (0, {}), got: {}", body_size,
                            *text);
  }
  return std::optional<size_t>(length);
}

Status check_not_decoupled(TRITONSERVER_Server* server, const ModelPath& path) {
  uint32_t flags = 0;
  RETURN_IF_ERROR(take_error(TRITONSERVER_ServerModelTransactionProperties(
      server, path.name.c_str(), path.version, &flags, nullptr)));
  if ((flags & TRITONSERVER_TXN_DECOUPLED) == 0) return ok();
  return unsupported("HTTP end point doesn't support models with decoupled transaction policy");
}

StatusOr<InferRequest> read_request(TRITONSERVER_Server* server, Request& request,
                                    const SharedMemory& regions, const KserveOptions& options) {
  ASSIGN_OR_RETURN(const ModelPath path, model_path(request));
  RETURN_IF_ERROR(check_not_decoupled(server, path));
  ASSIGN_OR_RETURN(std::string bytes, read_body(request, options));
  const auto body = std::make_shared<const std::string>(std::move(bytes));
  ASSIGN_OR_RETURN(const auto length, header_length(request, body->size()));
  ASSIGN_OR_RETURN(InferRequest out, parse_infer_request(body, length, path.name, regions));
  out.spec.version = path.version;
  for (const Header& header : request.headers) {
    if (!options.forwards_header || !options.forwards_header(header.name)) continue;
    out.spec.parameters.push_back({header.name, header.value});
  }
  return out;
}

}  // namespace

void start_infer(TRITONSERVER_Server* server, const ExchangePtr& exchange,
                 const SharedMemory& regions, const KserveOptions& options) {
  StatusOr<InferRequest> request = read_request(server, exchange->request(), regions, options);
  if (!request.ok()) {
    Response response = kserve_error(request.status());
    if (message(request.status()) == "Unsupported compression type") {
      response.headers.push_back({"Accept-Encoding", "gzip, deflate"});
    }
    exchange->send(std::move(response));
    return;
  }
  InferenceSpec spec = std::move(request->spec);
  request->spec = {};
  spec.trace = trace_exchange(*options.tracer, spec.model, *exchange);
  auto state = std::make_shared<Infer>(exchange, *std::move(request));
  auto on_reply = [exchange, state](InferenceReply reply) {
    auto shared = std::make_shared<InferenceReply>(std::move(reply));
    exchange->dispatch([state, shared] { state->take(std::move(*shared)); });
  };
  spec.flags |= kMayRunHere;
  auto call = InferenceCall::start(server, std::move(spec), std::move(on_reply));
  if (!call.ok()) {
    exchange->send(kserve_error(call.status()));
    return;
  }
  exchange->on_disconnect([call = *call] { call->cancel(); });
}

}  // namespace nereid::front
