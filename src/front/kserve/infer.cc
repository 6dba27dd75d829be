// One infer request from body to reply; see infer.h.
#include "front/kserve/infer.h"

#include <algorithm>
#include <charconv>

#include "base/request_flags.h"
#include "front/bridge/inference_call.h"
#include "front/http/compression.h"
#include "front/http/parts.h"
#include "front/kserve/infer_message.h"
#include "front/kserve/model_path.h"
#include "front/protection/budget_memory.h"
#include "front/trace/exchange_trace.h"

namespace nereid::front {
namespace {

constexpr char kLengthHeader[] = "Inference-Header-Content-Length";

// Status line and headers of a reply.
Response head_of(const InferReplyText& text, Encoding encoding) {
  Response head{200, "application/json", {}, ""};
  if (text.has_binary()) {
    head.content_type = "application/octet-stream";
    head.headers.push_back({kLengthHeader, std::to_string(text.json_size())});
  }
  if (encoding != Encoding::kIdentity) {
    head.headers.push_back({"Content-Encoding", encoding == Encoding::kGzip ? "gzip" : "deflate"});
  }
  return head;
}

// A reply in transfer.
struct LongInferReply {
  LongInferReply(InferReplyText t, Encoding e) : text(std::move(t)), compressor(e) {}

  InferReplyText text;
  Compressor compressor;
};

// Lives from the request to the final reply; on the exchange's strand only.
class Infer {
 public:
  Infer(ExchangePtr exchange, InferRequest request, const KserveOptions& options)
      : exchange_(std::move(exchange)),
        request_(std::move(request)),
        workers_(*options.workers),
        is_decoupled_(options.infers_decoupled) {}

  // `self` is this.
  void take(InferenceReply reply, const std::shared_ptr<Infer>& self) {
    const bool final = reply.final;
    if (!reply.empty && ++num_replies_ == 1) first_ = std::move(reply);
    if (!final) return;
    if (num_replies_ == 1 && !first_.status.ok()) {
      exchange_->send(kserve_error(first_.status));
    } else if (num_replies_ > 1 && is_decoupled_) {
      exchange_->send(kserve_error(several_answers(num_replies_)));
    } else if (num_replies_ != 1) {
      exchange_->send(
          kserve_error(500, fmt::format("expected a single response, got {}", num_replies_)));
    } else if (is_quick_to_write()) {
      answer();
    } else {
      exchange_->hold(first_.num_bytes());
      const auto parts = std::make_shared<Parts>(exchange_, workers_);
      exchange_->on_disconnect([parts] { parts->stop(); });  // and keeps it until the end
      parts->start([self] { return self->next_part(); },
                   [self](Part part) { self->take_part(std::move(part)); });
    }
  }

 private:
  void answer() {
    auto text = InferReplyText::create(first_, request_);
    if (!text.ok()) return exchange_->send(kserve_error(text.status()));
    Response response = head_of(*text, encoding());
    text->append_until(kWhole, response.body);
    if (encoding() != Encoding::kIdentity) response.body = compress(response.body, encoding());
    exchange_->send(std::move(response));
  }

  // Runs on a worker.
  Part next_part() {
    Part part;
    if (long_reply_ == nullptr) {
      auto text = InferReplyText::create(first_, request_);
      if (!text.ok()) {
        part.head = kserve_error(text.status());
        part.text = std::move(part.head.body);
        return part;
      }
      part.head = head_of(*text, encoding());
      long_reply_ = std::make_unique<LongInferReply>(*std::move(text), encoding());
    }
    part.is_last = !long_reply_->text.append_until(kPartBytes, part.text);
    if (encoding() != Encoding::kIdentity) {
      part.text = long_reply_->compressor.add(part.text, part.is_last);
    }
    return part;
  }

  void take_part(Part part) {
    if (!std::exchange(begun_, true)) exchange_->begin_stream(std::move(part.head));
    exchange_->write(part.text);
    if (part.is_last) exchange_->end();
  }

  Encoding encoding() const {
    const std::string* accept = find_header(exchange_->request().headers, "Accept-Encoding");
    return accept == nullptr ? Encoding::kIdentity : preferred_encoding(*accept);
  }

  // Binary tensors are only copied.
  bool is_quick_to_write() const {
    if (encoding() != Encoding::kIdentity) return first_.num_bytes() <= kQuickReplyBytes;
    size_t num_bytes = 0;
    for (const Tensor& tensor : first_.outputs) {
      const auto binary = request_.binary.find(tensor.name);
      const bool is_binary =
          binary == request_.binary.end() ? request_.binary_by_default : binary->second;
      num_bytes += is_binary ? tensor.bytes.size() / 64 : tensor.bytes.size();
    }
    return num_bytes <= kQuickReplyBytes;
  }

  ExchangePtr exchange_;
  const InferRequest request_;  // without its spec
  Workers& workers_;
  const bool is_decoupled_;  // the model may be decoupled
  size_t num_replies_ = 0;
  InferenceReply first_;
  std::unique_ptr<LongInferReply> long_reply_;
  bool begun_ = false;
};

// A decompressed body, which tensors refer to, with its share of the budget. A plain body counts
// with the bytes received by the exchange.
struct CountedBody {
  std::string bytes;
  BudgetShare share;
};

Status read_body(Request& request, const KserveOptions& options, CountedBody& out) {
  const std::string* encoding = find_header(request.headers, "Content-Encoding");
  if (encoding == nullptr || encoding->empty() || *encoding == "identity") {
    out.bytes = std::move(request.body);
    return ok();
  }
  if (*encoding != "gzip" && *encoding != "deflate") {
    return unsupported("Unsupported compression type");
  }
  out.share = BudgetShare(options.budget);
  auto body = decompress(request.body, Encoding::kGzip, options.max_body_bytes, out.share);
  if (body.ok()) out.bytes = *std::move(body);
  if (body.status().code() != absl::StatusCode::kResourceExhausted) return body.status();
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

Status check_transactions(TRITONSERVER_Server* server, const ModelPath& path,
                          bool infers_decoupled) {
  uint32_t flags = 0;
  RETURN_IF_ERROR(take_error(TRITONSERVER_ServerModelTransactionProperties(
      server, path.name.c_str(), path.version, &flags, nullptr)));
  if (infers_decoupled || (flags & TRITONSERVER_TXN_DECOUPLED) == 0) return ok();
  return unsupported("HTTP end point doesn't support models with decoupled transaction policy");
}

StatusOr<InferRequest> read_request(TRITONSERVER_Server* server, Request& request,
                                    const SharedMemory& regions, const KserveOptions& options) {
  ASSIGN_OR_RETURN(const ModelPath path, model_path(request));
  RETURN_IF_ERROR(check_transactions(server, path, options.infers_decoupled));
  const auto counted = std::make_shared<CountedBody>();
  RETURN_IF_ERROR(read_body(request, options, *counted));
  const std::shared_ptr<const std::string> body(counted, &counted->bytes);
  ASSIGN_OR_RETURN(const auto length, header_length(request, body->size()));
  const auto memory = memory_for_json(options.budget, length.value_or(body->size()));
  ASSIGN_OR_RETURN(InferRequest out, parse_infer_request(body, length, path.name, regions, memory));
  out.spec.version = path.version;
  for (const Header& header : request.headers) {
    if (!options.forwards_header || !options.forwards_header(header.name)) continue;
    out.spec.parameters.push_back({header.name, header.value});
  }
  return out;
}

void send_refusal(Exchange& exchange, const Status& status) {
  Response response = kserve_error(status);
  if (message(status) == "Unsupported compression type") {
    response.headers.push_back({"Accept-Encoding", "gzip, deflate"});
  }
  exchange.send(std::move(response));
}

void start_read(TRITONSERVER_Server* server, const ExchangePtr& exchange,
                StatusOr<InferRequest> request, const KserveOptions& options) {
  if (!request.ok()) return send_refusal(*exchange, request.status());
  InferenceSpec spec = std::move(request->spec);
  request->spec = {};
  exchange->hold(spec.num_bytes());
  spec.tenant = exchange->request().tenant;
  spec.trace = trace_exchange(*options.tracer, spec.model, *exchange);
  auto state = std::make_shared<Infer>(exchange, *std::move(request), options);
  auto on_reply = [exchange, state](InferenceReply reply) {
    auto shared = std::make_shared<InferenceReply>(std::move(reply));
    exchange->dispatch([state, shared] { state->take(std::move(*shared), state); });
  };
  spec.flags |= kMayRunHere;
  auto call = InferenceCall::start(server, std::move(spec), std::move(on_reply));
  if (!call.ok()) {
    exchange->send(kserve_error(call.status()));
    return;
  }
  exchange->on_disconnect([call = *call] { call->cancel(); });
}

// Binary tensors need no parsing; a compressed body may become a thousand times as long.
bool is_quick_to_read(const Request& request) {
  constexpr size_t kMostCompressed = 1032;
  const std::string* encoding = find_header(request.headers, "Content-Encoding");
  if (encoding != nullptr) return request.body.size() <= kQuickJsonBytes / kMostCompressed;
  size_t json_bytes = request.body.size();
  if (const std::string* text = find_header(request.headers, kLengthHeader)) {
    std::from_chars(text->data(), text->data() + text->size(), json_bytes);
  }
  return json_bytes <= kQuickJsonBytes;
}

}  // namespace

void start_infer(TRITONSERVER_Server* server, const ExchangePtr& exchange,
                 const std::shared_ptr<SharedMemory>& regions, const KserveOptionsPtr& options) {
  if (is_quick_to_read(exchange->request())) {
    return start_read(server, exchange,
                      read_request(server, exchange->request(), *regions, *options), *options);
  }
  options->workers->run(
      exchange, false,
      [=] { return read_request(server, exchange->request(), *regions, *options); },
      [=](StatusOr<InferRequest> request) {
        start_read(server, exchange, std::move(request), *options);
      });
}

}  // namespace nereid::front
