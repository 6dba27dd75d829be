// Reading and refusing inputs of the tensorrt_llm model.
#include "backend/tensorrtllm/request_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

namespace nereid::backend {
namespace {

// Inputs with a meaning here; everything else must hold its neutral value.
constexpr std::string_view kUsed[] = {
    "input_ids", "input_lengths", "request_output_len", "end_id", "pad_id", "stop_words_list",
    "stop_strings", "bad_words_list", "temperature", "runtime_top_k", "runtime_top_p",
    "random_seed", "seed", "min_length", "min_tokens", "streaming", "stop", "beam_width",
    "num_return_sequences", "exclude_input_in_output", "return_num_input_tokens",
    "return_num_output_tokens", "return_perf_metrics",
    // Without beams, top-p decay or an encoder these change nothing.
    "early_stopping", "len_penalty", "beam_search_diversity_rate", "runtime_top_p_reset_ids",
    "decoder_input_lengths", "START", "END", "CORRID"};

struct Neutral {
  std::string_view name;
  double value, other;  // both mean "off"
};
constexpr Neutral kNeutral[] = {{"repetition_penalty", 1, 1},        {"presence_penalty", 0, 0},
                                {"frequency_penalty", 0, 0},         {"runtime_top_p_min", 1e-6, 0},
                                {"runtime_top_k_min", 1e-6, 0},      {"runtime_top_p_decay", 1, 1},
                                {"no_repeat_ngram_size", 1 << 30, 0}};

// The one element of a small numeric tensor.
std::optional<double> number(const InputView& view) {
  const auto read = [&]<class T>(T) -> std::optional<double> {
    if (view.bytes.size() != sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, view.bytes.data(), sizeof(T));
    return static_cast<double>(value);
  };
  switch (view.datatype) {
    case TRITONSERVER_TYPE_INT32:
      return read(int32_t{});
    case TRITONSERVER_TYPE_INT64:
      return read(int64_t{});
    case TRITONSERVER_TYPE_UINT64:
      return read(uint64_t{});
    case TRITONSERVER_TYPE_FP32:
      return read(float{});
    case TRITONSERVER_TYPE_BOOL:
      return read(uint8_t{});
    default:
      return std::nullopt;
  }
}

Status refuse_unused(const Request& request) {
  for (const auto& name : request.input_names()) {
    if (std::find(std::begin(kUsed), std::end(kUsed), name) != std::end(kUsed)) continue;
    ASSIGN_OR_RETURN(const auto view, request.input(name.c_str()));
    if (!view || view->bytes.empty()) continue;
    const auto value = number(*view);
    const auto row = std::find_if(std::begin(kNeutral), std::end(kNeutral),
                                  [&](const Neutral& n) { return n.name == name; });
    if (row == std::end(kNeutral)) {
      // Flags and counts that say "no".
      if (value && *value == 0) continue;
      return unsupported("input '{}' is not supported", name);
    }
    const auto is = [&](double neutral) {
      return value && std::abs(*value - neutral) <= 1e-9 + 1e-6 * std::abs(neutral);
    };
    if (is(row->value) || is(row->other)) continue;
    return unsupported("input '{}' is not supported; only {} works", name, row->value);
  }
  return ok();
}

Status refuse_request_type(const Request& request) {
  uint32_t count = 0;
  RETURN_IF_ERROR(take(TRITONBACKEND_RequestParameterCount(request.raw(), &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* key = nullptr;
    TRITONSERVER_ParameterType type;
    const void* value = nullptr;
    RETURN_IF_ERROR(take(TRITONBACKEND_RequestParameter(request.raw(), i, &key, &type, &value)));
    if (std::string_view(key) != "request_type" || type != TRITONSERVER_PARAMETER_STRING) continue;
    const std::string_view text = static_cast<const char*>(value);
    if (text == "context_only" || text == "generation_only") {
      return unsupported("request_type '{}' is not supported, only context_and_generation", text);
    }
  }
  return ok();
}

Status read_prompt(const Request& request, GenerationRequest& out) {
  ASSIGN_OR_RETURN(const auto view, request.input("input_ids"));
  if (!view) {
    return invalid_argument("input_ids or encoder_input_features is not present in the request.");
  }
  if (view->shape.size() != 2) {
    return invalid_argument("Expected inputTokens tensors to have 2 dimensions");
  }
  if (view->shape[0] != 1) {
    return unsupported("input_ids has a batch of {}; only 1 works, send several requests",
                       view->shape[0]);
  }
  ASSIGN_OR_RETURN(auto ids, request.values<int32_t>("input_ids"));
  out.request.input_token_ids = std::move(*ids);
  ASSIGN_OR_RETURN(const auto max_tokens, request.scalar<int32_t>("request_output_len"));
  if (!max_tokens) return invalid_argument("request_output_len is not present in the request");
  out.request.max_tokens = *max_tokens;
  return ok();
}

// The value of the first of two names that the client sent.
template <class T>
StatusOr<std::optional<T>> either(const Request& request, const char* name, const char* alias) {
  ASSIGN_OR_RETURN(const auto value, request.scalar<T>(name));
  if (value) return value;
  return request.scalar<T>(alias);
}

Status read_sampling(const Request& request, SamplingConfig& sampling) {
  ASSIGN_OR_RETURN(sampling.temperature, request.scalar<float>("temperature"));
  ASSIGN_OR_RETURN(sampling.top_k, request.scalar<int32_t>("runtime_top_k"));
  ASSIGN_OR_RETURN(sampling.top_p, request.scalar<float>("runtime_top_p"));
  if (sampling.top_p && *sampling.top_p <= 0) sampling.top_p.reset();
  ASSIGN_OR_RETURN(sampling.seed, either<uint64_t>(request, "random_seed", "seed"));
  ASSIGN_OR_RETURN(sampling.min_tokens, either<int32_t>(request, "min_length", "min_tokens"));
  for (const char* name : {"beam_width", "num_return_sequences"}) {
    ASSIGN_OR_RETURN(const auto count, request.scalar<int32_t>(name));
    if (count && *count != 1) {
      return unsupported("input '{}' is {}; only 1 is supported", name, *count);
    }
  }
  return ok();
}

Status read_endings(const Request& request, const ReadContext& context, nereid::Request& out) {
  ASSIGN_OR_RETURN(const auto end_id, request.scalar<int32_t>("end_id"));
  if (end_id && *end_id != -1) {
    const auto& defaults = context.default_end_ids;
    const bool is_default = std::find(defaults.begin(), defaults.end(), *end_id) != defaults.end();
    // A model with several end tokens ends at each of them when the client names one.
    out.end_ids = is_default ? defaults : std::vector<TokenId>{*end_id};
  }
  ASSIGN_OR_RETURN(const auto stop, request.values<int32_t>("stop_words_list"));
  if (stop) {
    ASSIGN_OR_RETURN(out.stop_words, read_words(*stop));
  }
  ASSIGN_OR_RETURN(auto strings, request.strings("stop_strings"));
  if (strings) {
    std::erase(*strings, "");
    out.stop_strings = std::move(*strings);
  }
  ASSIGN_OR_RETURN(const auto bad, request.values<int32_t>("bad_words_list"));
  if (bad) {
    ASSIGN_OR_RETURN(const auto words, read_words(*bad));
    if (!words.empty()) return unsupported("input 'bad_words_list' is not supported");
  }
  return ok();
}

}  // namespace

StatusOr<std::vector<std::vector<TokenId>>> read_words(const std::vector<int32_t>& flat) {
  const auto listing = [&] {
    std::string text;
    for (int32_t v : flat) text += fmt::format("{} ", v);
    return text;
  };
  if (flat.size() % 2 != 0) {
    return invalid_argument("Sparse list must not have odd length: {}", listing());
  }
  const size_t width = flat.size() / 2;
  std::vector<std::vector<TokenId>> words;
  int64_t begin = 0;
  for (size_t i = 0; i < width; ++i) {
    const int64_t end = flat[width + i];
    if (end == -1) {
      if (std::any_of(flat.begin() + static_cast<ptrdiff_t>(width + i), flat.end(),
                      [](int32_t v) { return v != -1; })) {
        return invalid_argument("Sparse list must not have additional -1s: {}", listing());
      }
      break;
    }
    if (end > static_cast<int64_t>(width)) {
      return invalid_argument("Sparse list must not have out-of-bound offsets: {}", listing());
    }
    if (end <= begin) {
      return invalid_argument("Sparse list must not have non-increasing offsets: {}", listing());
    }
    words.emplace_back(flat.begin() + begin, flat.begin() + end);
    begin = end;
  }
  return words;
}

StatusOr<GenerationRequest> read_generation_request(const Request& request,
                                                    const ReadContext& context) {
  GenerationRequest out;
  RETURN_IF_ERROR(refuse_unused(request));
  RETURN_IF_ERROR(refuse_request_type(request));
  RETURN_IF_ERROR(read_prompt(request, out));
  RETURN_IF_ERROR(read_sampling(request, out.request.sampling));
  RETURN_IF_ERROR(read_endings(request, context, out.request));
  const auto flag = [&](const char* name, bool fallback, bool& to) -> Status {
    ASSIGN_OR_RETURN(const auto value, request.scalar<bool>(name));
    to = value.value_or(fallback);
    return ok();
  };
  RETURN_IF_ERROR(flag("streaming", false, out.request.streaming));
  RETURN_IF_ERROR(
      flag("exclude_input_in_output", context.exclude_input_default, out.exclude_input));
  RETURN_IF_ERROR(flag("return_perf_metrics", false, out.return_perf_metrics));
  RETURN_IF_ERROR(flag("return_num_input_tokens", false, out.return_num_input_tokens));
  RETURN_IF_ERROR(flag("return_num_output_tokens", false, out.return_num_output_tokens));
  if (out.request.streaming && !context.decoupled) {
    return invalid_argument(
        "Streaming is only supported if model is deployed using decoupled mode.");
  }
  for (const char* name : {"output_ids", "sequence_length"}) {
    if (!request.wants_output(name)) {
      return invalid_argument(
          "Error encountered while populating response: {} tensor must be "
          "present in list of output tensors",
          name);
    }
  }
  out.request.output.exclude_input_from_output =
      true;  // the backend puts the prompt in front itself
  return out;
}

}  // namespace nereid::backend
