// One generate request from body to last response; see generate.h.
#include "front/kserve/generate.h"

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/request_flags.h"
#include "front/bridge/inference_call.h"
#include "front/bridge/model_info.h"
#include "front/http/json_text.h"
#include "front/http/parts.h"
#include "front/kserve/generate_mapping.h"
#include "front/kserve/load_report.h"
#include "front/kserve/model_path.h"
#include "front/kserve/routes.h"
#include "front/protection/budget_memory.h"
#include "front/trace/exchange_trace.h"

namespace nereid::front {
namespace {

constexpr char kNotOneResponse[] =
    "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses";

// Limit of a stream's replies that wait until an earlier large one is written.
constexpr size_t kMaxWaitingBytes = size_t{64} << 20;

std::string error_event(std::string_view text) {
  return fmt::format("data: {}\n\n", kserve_error_body(text));
}

// An event of the stream, and the status line if it is the first.
struct Event {
  std::string text;
  int status = 200;
};

StatusOr<std::string> text_of(const InferenceReply& reply) {
  RETURN_IF_ERROR(reply.status);
  ASSIGN_OR_RETURN(GenerateReplyText parts, GenerateReplyText::create(reply));
  std::string text;
  text.reserve(512);
  parts.append_until(kWhole, text);
  return text;
}

Event event_of(const InferenceReply& reply) {
  if (reply.empty) return {};
  const StatusOr<std::string> text = text_of(reply);
  if (!text.ok()) return {error_event(message(text.status())), http_status(text.status())};
  return {"data: " + *text + "\n\n"};
}

// A reply in transfer.
struct LongReply {
  std::shared_ptr<const InferenceReply> reply;
  std::optional<GenerateReplyText> parts;  // nullopt: nothing is written yet
};

// Lives from the request to the final reply; on the exchange's strand only.
class Generate : public std::enable_shared_from_this<Generate> {
 public:
  Generate(ExchangePtr exchange, bool stream, Workers& workers, LoadReport load)
      : exchange_(std::move(exchange)),
        stream_(stream),
        parts_(std::make_shared<Parts>(exchange_, workers)),
        load_(std::move(load)) {}

  void take(InferenceReply reply) {
    if (!stream_) return collect_reply(reply);
    const size_t size = reply.num_bytes();
    if (!is_writing_ && size <= kQuickReplyBytes) return send(event_of(reply), reply.final);
    if (is_over_) return;
    if (is_writing_ && size > 0 && waiting_bytes_ + size > kMaxWaitingBytes) return give_up();
    waiting_bytes_ += size;
    if (!exchange_->hold(written_bytes_ + waiting_bytes_) && is_writing_) return give_up();
    waiting_.push_back(std::make_shared<const InferenceReply>(std::move(reply)));
    if (!std::exchange(is_writing_, true)) write_next();
  }

  // To be called once the inference runs. A disconnect cancels it.
  void watch(std::shared_ptr<InferenceCall> call) {
    call_ = std::move(call);
    exchange_->on_disconnect([self = shared_from_this()] {
      self->is_over_ = true;
      self->parts_->stop();
      self->call_->cancel();
    });
  }

 private:
  void send(const Event& event, bool is_last) {
    // The first response determines the status line.
    if (!std::exchange(begun_, true)) {
      Response head{
          event.status, stream_ ? "text/event-stream; charset=utf-8" : "application/json", {}, ""};
      if (event.status == 503) head.headers.push_back({"Retry-After", "1"});
      load_.add_to(head);
      exchange_->begin_stream(std::move(head), stream_ ? error_event("Server exiting") : "");
    }
    exchange_->write(event.text);
    if (is_last) exchange_->end();
  }

  // Large replies are formatted on a worker, one after the other.
  void write_next() {
    const auto reply = std::make_shared<LongReply>(LongReply{std::move(waiting_.front()), {}});
    waiting_.pop_front();
    written_bytes_ = reply->reply->num_bytes();
    waiting_bytes_ -= written_bytes_;
    exchange_->hold(written_bytes_ + waiting_bytes_);
    const auto self = shared_from_this();
    parts_->start([self, reply] { return self->is_over_ ? Part() : self->part_of(*reply); },
                  [self, reply](Part part) { self->take_part(*reply, std::move(part)); });
  }

  Part part_of(LongReply& reply) const {
    const bool is_first = !reply.parts;
    if (is_first) {
      if (stream_ && (reply.reply->empty || !reply.reply->status.ok())) {
        Event event = event_of(*reply.reply);
        return {std::move(event.text), true, {event.status, "", {}, ""}};
      }
      auto parts = GenerateReplyText::create(*reply.reply);
      if (!parts.ok()) {
        const std::string_view why = message(parts.status());
        return {stream_ ? error_event(why) : kserve_error_body(why),
                true,
                {http_status(parts.status()), "", {}, ""}};
      }
      reply.parts = *std::move(parts);
    }
    Part part;
    if (stream_ && is_first) part.text = "data: ";
    part.is_last = !reply.parts->append_until(kPartBytes, part.text);
    if (stream_ && part.is_last) part.text += "\n\n";
    return part;
  }

  void take_part(const LongReply& reply, Part part) {
    if (is_over_) return;
    send({std::move(part.text), part.head.status}, part.is_last && reply.reply->final);
    if (!part.is_last) return;
    is_writing_ = !waiting_.empty();
    if (is_writing_) return write_next();
    written_bytes_ = 0;
    exchange_->hold(0);
  }

  void give_up() {
    is_over_ = true;
    waiting_.clear();
    // Ends an event that is cut short.
    const std::string_view end = parts_->is_half_written() ? "\n\n" : "";
    parts_->stop();
    send({std::string(end) +
              error_event(fmt::format("more than {} bytes of responses wait to be written",
                                      kMaxWaitingBytes)),
          503},
         /*is_last=*/true);
    exchange_->post([self = shared_from_this()] {
      if (self->call_ != nullptr) self->call_->cancel();
    });
  }

  void collect_reply(InferenceReply& reply) {
    const bool final = reply.final;
    if (!reply.empty && ++num_replies_ == 1) first_ = std::move(reply);
    if (!final) return;
    if (num_replies_ != 1) return answer(kserve_error(400, kNotOneResponse));
    if (!first_.status.ok()) return answer(kserve_error(first_.status));
    if (first_.num_bytes() > kQuickReplyBytes) {
      first_.final = true;
      waiting_bytes_ = first_.num_bytes();
      waiting_.push_back(std::make_shared<const InferenceReply>(std::move(first_)));
      return write_next();
    }
    answer(kserve_response(text_of(first_)));
  }

  // One chunk, the framing of small answers that Triton's clients expect.
  void answer(Response response) {
    const std::string body = std::move(response.body);
    load_.add_to(response);
    exchange_->begin_stream(std::move(response));
    exchange_->write(body);
    exchange_->end();
  }

  ExchangePtr exchange_;
  const bool stream_;
  const std::shared_ptr<Parts> parts_;
  const LoadReport load_;
  std::shared_ptr<InferenceCall> call_;
  bool begun_ = false;
  std::atomic<bool> is_over_{false};  // the client has left
  bool is_writing_ = false;           // a worker has a reply
  std::deque<std::shared_ptr<const InferenceReply>> waiting_;
  // Bytes of waiting replies, and of the one in parts.
  size_t waiting_bytes_ = 0, written_bytes_ = 0;
  size_t num_replies_ = 0;
  InferenceReply first_;
};

StatusOr<InferenceSpec> read_request(TRITONSERVER_Server* server, const Request& request,
                                     const std::shared_ptr<ByteBudget>& budget) {
  if (const std::string* encoding = find_header(request.headers, "Content-Encoding");
      encoding != nullptr && !encoding->empty() && *encoding != "identity") {
    return invalid_argument("Unsupported content-encoding, only 'identity' is supported.");
  }
  ASSIGN_OR_RETURN(const ModelPath path, model_path(request));
  ASSIGN_OR_RETURN(const auto info, model_info(server, path.name, path.version));
  ASSIGN_OR_RETURN(
      InferenceSpec spec,
      map_generate_request(request.body, *info, memory_for_json(budget, request.body.size())));
  spec.model = path.name;
  spec.version = path.version;
  return spec;
}

struct ReadRequest {
  StatusOr<InferenceSpec> spec;
  LoadReport load;
};

void start_read(TRITONSERVER_Server* server, const ExchangePtr& exchange, bool stream,
                ReadRequest request, const KserveOptions& options) {
  StatusOr<InferenceSpec>& spec = request.spec;
  if (!spec.ok()) {
    exchange->send(kserve_error(spec.status()));
    return;
  }
  spec->tenant = exchange->request().tenant;
  spec->trace = trace_exchange(*options.tracer, spec->model, *exchange);
  exchange->hold(spec->num_bytes());
  auto state =
      std::make_shared<Generate>(exchange, stream, *options.workers, std::move(request.load));
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
  state->watch(*std::move(call));
}

}  // namespace

void start_generate(TRITONSERVER_Server* server, const ExchangePtr& exchange, bool stream,
                    const KserveOptionsPtr& options) {
  const Request& request = exchange->request();
  if (request.body.size() <= kQuickJsonBytes && !LoadReport::is_asked(request)) {
    return start_read(server, exchange, stream,
                      {read_request(server, request, options->budget), {}}, *options);
  }
  options->workers->run(
      exchange, false,
      [=] {
        const Request& asked = exchange->request();
        return ReadRequest{read_request(server, asked, options->budget), LoadReport(server, asked)};
      },
      [=](ReadRequest read) { start_read(server, exchange, stream, std::move(read), *options); });
}

}  // namespace nereid::front
