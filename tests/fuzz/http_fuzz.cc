// libFuzzer entry for what the front makes of foreign HTTP text. The first byte chooses: g =
// generate body to tensors, i = infer body (the next byte: bytes behind its JSON, 0 = not given) to
// tensors, l = body of a load, x = trace settings, e = log settings, s = registration of shared
// memory, z = compressed body (the next byte: g or d), m = lines of a header, anything else = a
// request line for the router. (OpenAI's and other chat APIs have targets of their own,
// chat_api.h.)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "front/bridge/model_info.h"
#include "front/http/compression.h"
#include "front/http/json_text.h"
#include "front/http/router.h"
#include "front/kserve/extensions.h"
#include "front/kserve/generate_mapping.h"
#include "front/kserve/infer_message.h"
#include "front/kserve/repository.h"
#include "front/kserve/settings.h"
#include "front/kserve/shared_memory.h"

namespace {

using namespace nereid::front;

// Keeps the answer; must get exactly one.
class Sink final : public Exchange {
 public:
  Request& request() override { return request_; }
  void post(std::function<void()> work) override { work(); }
  void send(Response) override { ++num_answers; }
  void begin_stream(Response, std::string) override { ++num_answers; }
  void write(std::string_view) override {}
  void end() override {}
  void on_disconnect(std::function<void()>) override {}
  bool disconnected() const override { return false; }

  int num_answers = 0;

 private:
  Request request_;
};

const ModelInfo& model() {
  static const ModelInfo info = *parse_model_metadata(R"({"name":"m","inputs":[
{"name":"text_input","datatype":"BYTES","shape":[-1,1]},
{"name":"max_tokens","datatype":"INT32","shape":[-1,1]},
{"name":"stop_words","datatype":"BYTES","shape":[-1,-1]},
{"name":"small","datatype":"INT8","shape":[2,-1]},{"name":"seed","datatype":"UINT64","shape":[1]},
{"name":"flag","datatype":"BOOL","shape":[]},{"name":"table","datatype":"FP32","shape":[-1,2,2]},
{"name":"half","datatype":"FP16","shape":[-1]}]})");
  return info;
}

// Mapped tensors must be consistent: the reply formatter reads them back.
void check_generate(std::string_view body) {
  auto spec = map_generate_request(body, model());
  if (!spec.ok()) return;
  InferenceReply reply;
  reply.parameters = spec->parameters;
  for (const Tensor& t : spec->inputs) {
    const auto n = num_elements(t.shape);
    if (!n.ok()) std::abort();
    const size_t size = TRITONSERVER_DataTypeByteSize(t.type);
    if (size != 0 && t.bytes.size() != static_cast<size_t>(*n) * size) std::abort();
    reply.outputs.push_back(t);
  }
  auto text = GenerateReplyText::create(reply);
  if (!text.ok()) std::abort();
  for (std::string out; text->append_until(out.size() + 64, out);) {
  }
}

// Every accepted tensor's bytes are inside the body, and the reply formatter can read them back.
void check_infer(std::string_view text) {
  if (text.empty()) return;
  const size_t behind = static_cast<unsigned char>(text[0]);
  const auto body = std::make_shared<const std::string>(text.substr(1));
  std::optional<size_t> header_length;
  if (behind > 0 && behind <= body->size()) header_length = body->size() - behind;
  static const SharedMemory regions;
  auto request = parse_infer_request(body, header_length, "m", regions);
  if (!request.ok()) return;
  InferenceReply reply;
  reply.model_name = "m";
  reply.parameters = request->spec.parameters;
  for (const Tensor& t : request->spec.inputs) reply.outputs.push_back(t);
  auto text_of_reply = InferReplyText::create(reply, *request);
  if (!text_of_reply.ok()) return;
  (void)text_of_reply->json_size();
  for (std::string out; text_of_reply->append_until(out.size() + 64, out);) {
  }
}

void check_route(std::string_view text) {
  static const Router router = [] {
    Router r([](ErrorShape, int status, std::string_view message) {
      return Response{status, "", {}, kserve_error_body(message)};
    });
    const auto answer = [](const ExchangePtr& x) {
      for (auto& [name, value] : x->request().params) (void)percent_decode(value);
      x->send({});
    };
    const RouteTraits open = {Api::kMetadata, Access::kAnybody, Cost::kNothing,
                              ErrorShape::kKserve};
    r.add("GET", "/v2/models/{m}/versions/{v:digits}/config", open, answer);
    r.add("POST", "/v2/models/{m}/generate", open, answer);
    r.add("GET", "/v1/models/{id*}", open, answer);
    return r;
  }();
  auto sink = std::make_shared<Sink>();
  const size_t space = std::min(text.find(' '), text.size());
  sink->request().method = text.substr(0, space);
  sink->request().path = text.substr(std::min(space + 1, text.size()));
  router.handle(sink);
  if (sink->num_answers != 1) std::abort();
}

// Sends `body` to one route of those that need no server behind them.
void check_control(const char* path, std::string_view body) {
  static const Router router = [] {
    Router r([](ErrorShape, int status, std::string_view message) {
      return Response{status, "", {}, kserve_error_body(message)};
    });
    const auto extensions = std::make_shared<Extensions>();
    add_logging_routes(r, extensions);
    add_shared_memory_routes(r, extensions, /*allowed=*/true);
    add_trace_routes(r, *Tracer::create(nullptr, {}));
    return r;
  }();
  auto sink = std::make_shared<Sink>();
  sink->request().method = "POST";
  sink->request().path = path;
  sink->request().body = body;
  router.handle(sink);
  if (sink->num_answers != 1) std::abort();
}

// The result stays within the limit and can be compressed again.
void check_compressed(std::string_view text) {
  constexpr size_t kMaxBytes = 1 << 16;
  if (text.empty()) return;
  const Encoding encoding = text[0] == 'g' ? Encoding::kGzip : Encoding::kDeflate;
  BudgetShare share;
  const auto plain = decompress(text.substr(1), encoding, kMaxBytes, share);
  if (!plain.ok()) return;
  if (plain->size() > kMaxBytes) std::abort();
  const auto again = decompress(compress(*plain, encoding), encoding, kMaxBytes, share);
  if (!again.ok() || *again != *plain) std::abort();
}

// "name:value" lines: found by name in any case, the first of several.
void check_headers(std::string_view text) {
  Headers headers;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const size_t colon = std::min(line.find(':'), line.size());
    headers.push_back({std::string(line.substr(0, colon)),
                       std::string(line.substr(std::min(colon + 1, line.size())))});
    at = end + 1;
  }
  for (const Header& header : headers) {
    std::string upper = header.name;
    for (char& c : upper) {
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    if (find_header(headers, upper) != find_header(headers, header.name)) std::abort();
    (void)preferred_encoding(header.value);
    const auto decoded = percent_decode(header.value);
    if (decoded && decoded->size() > header.value.size()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view rest = text.substr(std::min<size_t>(1, size));
  switch (text.empty() ? 'r' : text[0]) {
    case 'g':
      check_generate(rest);
      break;
    case 'i':
      check_infer(rest);
      break;
    case 'l': {
      LoadParameters parameters;
      static const Extensions extensions({}, /*allow_code_upload=*/true);
      (void)read_load_parameters(std::string(rest), extensions, nullptr, parameters);
      break;
    }
    case 'x':
      check_control("/v2/trace/setting", rest);
      break;
    case 'e':
      check_control("/v2/logging", rest);
      check_control("/v2/logging", R"({"log_verbose_level": 0})");  // not for all that follows
      break;
    case 's':
      check_control("/v2/systemsharedmemory/region/r/register", rest);
      check_control("/v2/cudasharedmemory/region/r/register", rest);
      break;
    case 'z':
      check_compressed(rest);
      break;
    case 'm':
      check_headers(rest);
      break;
    default:
      check_route(rest);
  }
  return 0;
}
