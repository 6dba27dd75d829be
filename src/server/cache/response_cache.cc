#include "server/cache/response_cache.h"

#include <algorithm>

#include "base/clock.h"
#include "base/copy_bytes.h"
#include "base/hash.h"
#include "base/log_limit.h"
#include "server/cache/cached_response.h"
#include "server/model/model.h"

namespace nereid::server {
namespace {

// Appends a field with its length, so that different lists of fields give different texts.
void add_field(std::string& text, std::string_view field) {
  const uint64_t size = field.size();
  text.append(reinterpret_cast<const char*>(&size), sizeof size);
  text.append(field);
}

std::string parameter_text(const TRITONSERVER_Parameter& p) {
  const auto as_text = [](const auto& value) -> std::string {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::string>) {
      return value;
    } else if constexpr (std::is_same_v<T, TRITONSERVER_Parameter::Bytes>) {
      return std::string(static_cast<const char*>(value.base), value.size);
    } else {
      return fmt::format("{}", value);
    }
  };
  return std::visit(as_text, p.value);
}

// The cache key: a 128-bit hash, in hexadecimal, of everything that the response depends on. False:
// input in device memory, or in buffers for host policies, whose instance is not known yet.
bool key_of(const InferenceRequest& request, std::string& key) {
  std::string text;
  add_field(text, request.model->config().name);
  add_field(text, std::to_string(request.model->version()));
  std::vector<const InputTensor*> inputs;
  for (const auto& input : request.inputs) inputs.push_back(&input);
  std::sort(inputs.begin(), inputs.end(), [](auto* a, auto* b) { return a->name < b->name; });
  for (const InputTensor* input : inputs) {
    if (!input->policy_buffers.empty()) return false;
    add_field(text, input->name);
    add_field(text, fmt::format("{}:{}", static_cast<int>(input->datatype),
                                fmt::join(input->shape, ",")));
    std::string bytes;
    for (const auto& b : input->buffers) {
      if (b.memory_type == TRITONSERVER_MEMORY_GPU) return false;
      bytes.append(static_cast<const char*>(b.base), b.byte_size);
    }
    add_field(text, bytes);
  }
  for (const auto& p : request.parameters) {
    add_field(text, p.name);
    add_field(text, parameter_text(p));
  }
  for (const TensorSpec* output : request.wanted_outputs) add_field(text, output->name);
  key = fmt::format("{:016x}{:016x}", hash64(text, 0), hash64(text, 1));
  return true;
}

Status send_copy(const CachedResponse& cached, const std::shared_ptr<ResponseContext>& context) {
  auto response = std::make_unique<InferenceResponse>(context);
  response->parameters = cached.parameters;
  for (const auto& output : cached.outputs) {
    ASSIGN_OR_RETURN(OutputTensor * to,
                     response->add_output(output.name, output.datatype, output.shape));
    ASSIGN_OR_RETURN(void* buffer, to->allocate_here(output.bytes.size()));
    copy_bytes(buffer, output.bytes.data(), output.bytes.size());
  }
  return InferenceResponse::send(std::move(response), TRITONSERVER_RESPONSE_COMPLETE_FINAL, ok());
}

}  // namespace

bool answer_from_cache(ResponseCache& cache, InferenceRequest* request,
                       const std::shared_ptr<ResponseContext>& context) {
  std::string key;
  const uint64_t begin = now_ns();
  if (!key_of(*request, key)) return false;
  const auto bytes = cache.find(key);
  StatusOr<CachedResponse> cached = not_found("no entry");
  if (bytes) cached = parse_cached_response(*bytes);
  static LogLimit log;
  if (bytes && !cached.ok()) log.error("cache '{}': {}", cache.name(), message(cached.status()));
  ModelStatistics& statistics = request->model->statistics();
  if (cached.ok()) {
    const Status status = send_copy(*cached, context);
    if (!status.ok()) {
      context->fail(status);
      statistics.failure(FailureReason::kOther, request->start_ns);
    } else {
      statistics.cache_hit(request->start_ns, begin - std::min(begin, request->start_ns),
                           now_ns() - begin);
    }
    request->release(TRITONSERVER_REQUEST_RELEASE_ALL);
    return true;
  }
  const uint64_t lookup_ns = now_ns() - begin;
  context->deliver = [&cache, key, lookup_ns, model = request->model,
                      deliver = std::move(context->deliver)](
                         std::unique_ptr<InferenceResponse> response, uint32_t flags) {
    if (response != nullptr && response->error == nullptr) {
      const uint64_t start = now_ns();
      if (auto copy = serialize(*response)) cache.insert(key, *std::move(copy));
      model->statistics().cache_miss(lookup_ns + now_ns() - start);
    }
    deliver(std::move(response), flags);
  };
  return false;
}

}  // namespace nereid::server
