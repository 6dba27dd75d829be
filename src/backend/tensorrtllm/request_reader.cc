// Reads the requests of the tensorrt_llm model, one for each item of the batch.
#include "backend/tensorrtllm/request_reader.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "backend/tensorrtllm/tensor_fields.h"
#include "base/log_limit.h"
#include "tensor/floats.h"

namespace nereid::backend {
namespace {

constexpr char kBatchNeedsDecoupled[] =
    "Batch size > 1 requires the tensorrt_llm backend to be using decoupled transaction policy";

// Batch of a model whose encoder takes features: [batch, frames, width].
StatusOr<int64_t> read_feature_batch(const Request& request, const ReadContext& context) {
  ASSIGN_OR_RETURN(const auto view, request.input("encoder_input_features"));
  if (!view) {
    return invalid_argument(
        "encoder_input_features is not present in the request: the model takes audio, not text; "
        "recordings are taken by POST /v1/audio/transcriptions and /v1/audio/translations");
  }
  const int64_t width = context.encoder.feature_width;
  if (view->shape.size() != 3 || view->shape[0] < 1 || view->shape[2] != width)
    return invalid_argument(
        "input 'encoder_input_features' has the shape [{}], expected [batch, frames, {}]",
        fmt::join(view->shape, ", "), width);
  if (view->shape[0] > 1 && !context.decoupled) return invalid_argument("{}", kBatchNeedsDecoupled);
  return view->shape[0];
}

StatusOr<int64_t> read_batch(const Request& request, const ReadContext& context) {
  ASSIGN_OR_RETURN(const auto view, request.input("input_ids"));
  if (context.encoder.feature_width > 0) return read_feature_batch(request, context);
  if (!view) {
    return invalid_argument("input_ids or encoder_input_features is not present in the request.");
  }
  if (view->shape.size() != 2) {
    return invalid_argument("Expected inputTokens tensors to have 2 dimensions");
  }
  const int64_t batch = view->shape[0];
  if (batch < 1) return invalid_argument("input 'input_ids' has a batch of {}", batch);
  if (batch > 1 && view->bytes.size() < static_cast<uint64_t>(batch)) {
    return invalid_argument(
        "input 'input_ids' has no tokens in a batch of {}, expected at least 1 each "
        "(!mInputTokenIds.empty())",
        batch);
  }
  if (batch > 1 && !context.decoupled) {
    return invalid_argument("{}", kBatchNeedsDecoupled);
  }
  return batch;
}

// Clamps ids into the vocabulary: benchmark clients send random ones. With a prompt table, ids from
// vocab_size on name its rows.
void clamp_to_vocabulary(std::vector<TokenId>& ids, int32_t vocab_size, bool has_table) {
  const TokenId last = has_table ? std::numeric_limits<TokenId>::max() : vocab_size - 1;
  bool changed = false;
  for (TokenId& id : ids) {
    const TokenId inside = std::clamp(id, 0, last);
    changed = changed || inside != id;
    id = inside;
  }
  static std::atomic<bool> warned{false};
  if (changed && !warned.exchange(true)) {
    log_warning(fmt::format("input_ids outside [0, {}) are taken as its nearest end", vocab_size));
  }
}

// Reads `pooling`; an empty text is none.
StatusOr<std::optional<Pooling>> read_pooling(const Item& item, const ReadContext& context) {
  ASSIGN_OR_RETURN(const auto names, item.strings("pooling"));
  const std::string name = names && !names->empty() ? names->front() : "";
  if (name.empty()) return std::optional<Pooling>();
  if (context.embedding_size == 0)
    return unsupported("input 'pooling' is '{}', but this model gives no embeddings: {}", name,
                       context.declares_embedding ? "its engine has no hidden states as an output"
                                                  : "it declares no output 'embedding'");
  constexpr std::pair<std::string_view, Pooling> kWays[] = {
      {"last", Pooling::kLast}, {"mean", Pooling::kMean}, {"score", Pooling::kScore}};
  for (const auto& [known, way] : kWays)
    if (known == name) return way;
  return invalid_argument("input 'pooling' is '{}', expected last, mean or score", name);
}

// Audio features of an item, [1, frames, width]; an odd last frame is left out.
Status read_features(const Item& item, const ReadContext& context, EncoderInput& out) {
  ASSIGN_OR_RETURN(const auto view, item.input("encoder_input_features"));
  const auto bytes = std::as_bytes(std::span(view->bytes));
  switch (view->datatype) {
    case TRITONSERVER_TYPE_FP32:
      out.features = floats_of<float>(bytes);
      break;
    case TRITONSERVER_TYPE_FP16:
      out.features = floats_of<F16>(bytes);
      break;
    case TRITONSERVER_TYPE_BF16:
      out.features = floats_of<BF16>(bytes);
      break;
    default:
      return invalid_argument("input 'encoder_input_features' is {}, expected FP32, FP16 or BF16",
                              TRITONSERVER_DataTypeString(view->datatype));
  }
  // Items of a batch may be shorter than its tensor.
  const auto width = static_cast<size_t>(context.encoder.feature_width);
  ASSIGN_OR_RETURN(const auto length, item.scalar<int32_t>("encoder_output_lengths"));
  size_t frames = out.features.size() / width / 2 * 2;
  if (length) {
    RETURN_IF_ERROR(
        check_value("encoder_output_lengths", *length, {1, static_cast<double>(frames / 2)}));
    frames = static_cast<size_t>(*length) * 2;
  }
  out.features.resize(frames * width);
  return ok();
}

// Makes the prompt the encoder's input, and reads the decoder's.
Status read_encoder_input(const Item& item, const ReadContext& context, std::vector<TokenId> prompt,
                          nereid::Request& out) {
  EncoderInput& input = out.encoder_input.emplace();
  const EncoderFacts& encoder = context.encoder;
  if (encoder.feature_width > 0) {
    RETURN_IF_ERROR(read_features(item, context, input));
  } else {
    input.token_ids = std::move(prompt);
  }
  const size_t length = encoder.feature_width > 0
                            ? input.features.size() / 2 / static_cast<size_t>(encoder.feature_width)
                            : input.token_ids.size();
  if (length > static_cast<size_t>(encoder.max_length))
    return invalid_argument("Encoder length ({}) exceeds maximum encoder input length ({}).",
                            length, encoder.max_length);
  ASSIGN_OR_RETURN(auto ids, item.values<int32_t>("decoder_input_ids"));
  if (ids && !ids->empty()) {
    ASSIGN_OR_RETURN(const auto given, item.scalar<int32_t>("decoder_input_lengths"));
    if (given) {
      RETURN_IF_ERROR(check_value(fmt::format("decoder_input_lengths[{}]", item.index()), *given,
                                  {1, static_cast<double>(ids->size())}));
      ids->resize(static_cast<size_t>(*given));
    }
    out.input_token_ids = *std::move(ids);
  } else if (out.input_token_ids = context.decoder_prompt; out.input_token_ids.empty()) {
    return invalid_argument(
        "input 'decoder_input_ids' has no tokens, expected at least 1, since the model names no "
        "first token (!mInputTokenIds.empty())");
  }
  clamp_to_vocabulary(out.input_token_ids, context.vocab_size, false);
  return ok();
}

// The prompt's ids, padding removed; of an encoder-decoder model those of the encoder's input.
StatusOr<std::vector<TokenId>> read_input_ids(const Item& item, const ReadContext& context,
                                              nereid::Request& out) {
  ASSIGN_OR_RETURN(auto ids, item.values<int32_t>("input_ids"));
  RETURN_IF_ERROR(read_prompt_table(item, context.vocab_size, *ids, out));
  if (item.batch() > 1) {
    ASSIGN_OR_RETURN(const auto length, item.scalar<int32_t>("input_lengths"));
    if (!length) return invalid_argument("input lengths tensor not provided");
    RETURN_IF_ERROR(check_value(fmt::format("input_lengths[{}]", item.index()), *length,
                                {0, static_cast<double>(ids->size())}));
    ids->resize(static_cast<size_t>(*length));
  }
  if (ids->empty()) {
    return invalid_argument(
        "input 'input_ids' has no tokens, expected at least 1 (!mInputTokenIds.empty())");
  }
  clamp_to_vocabulary(*ids, context.vocab_size, out.prompt_table.has_value());
  if (out.prompt_table && !out.prompt_table->extra_ids.empty())
    out.prompt_table->extra_ids.resize(ids->size());
  return *std::move(ids);
}

Status read_prompt(const Item& item, const ReadContext& context, nereid::Request& out) {
  std::vector<TokenId> ids;
  if (context.encoder.feature_width == 0) {
    ASSIGN_OR_RETURN(ids, read_input_ids(item, context, out));
  }
  if (context.encoder.max_length > 0) {
    RETURN_IF_ERROR(read_encoder_input(item, context, std::move(ids), out));
  } else {
    out.input_token_ids = std::move(ids);
  }
  RETURN_IF_ERROR(read_pictures(item, context, out));
  ASSIGN_OR_RETURN(out.output.pooling, read_pooling(item, context));
  ASSIGN_OR_RETURN(const auto max_tokens, item.scalar<int32_t>("request_output_len"));
  if (!max_tokens) return invalid_argument("request_output_len is not present in the request");
  if (out.output.pooling && *max_tokens != 0)
    return invalid_argument("input 'request_output_len' is {}, expected 0 with 'pooling'",
                            *max_tokens);
  if (*max_tokens < 1 && !out.output.pooling) {
    return invalid_argument(
        "input 'request_output_len' is {}, expected at least 1 (mMaxNewTokens > 0)", *max_tokens);
  }
  out.max_tokens = *max_tokens;
  const int64_t room = static_cast<int64_t>(context.max_sequence_length) -
                       static_cast<int64_t>(out.input_token_ids.size());
  if (room > 0 && *max_tokens > room) {
    static LogLimit log;
    log.write(log_warning, "request_output_len {} is reduced to {}: the prompt has {} of {} tokens",
              *max_tokens, room, out.input_token_ids.size(), context.max_sequence_length);
    out.max_tokens = static_cast<int32_t>(room);
  }
  return ok();
}

Status read_drafts(const Item& item, nereid::Request& out) {
  ASSIGN_OR_RETURN(auto drafts, item.values<int32_t>("draft_input_ids"));
  if (drafts) out.draft_token_ids = *std::move(drafts);
  RETURN_IF_ERROR(read_number(item, "draft_acceptance_threshold", {0, 1, true},
                              out.draft_acceptance_threshold));
  ASSIGN_OR_RETURN(const auto logits, item.input("draft_logits"));
  if (!logits) return ok();
  const auto bytes = std::as_bytes(std::span(logits->bytes));
  if (logits->datatype == TRITONSERVER_TYPE_FP32)
    out.draft_logits = floats_of<float>(bytes);
  else if (logits->datatype == TRITONSERVER_TYPE_FP16)
    out.draft_logits = floats_of<F16>(bytes);
  else
    return invalid_argument("input 'draft_logits' is {}, expected FP32 or FP16",
                            TRITONSERVER_DataTypeString(logits->datatype));
  return ok();
}

// Reads the three lookahead inputs: all of them or none.
Status read_lookahead(const Item& item, nereid::Request& out) {
  constexpr const char* kNames[] = {"lookahead_window_size", "lookahead_ngram_size",
                                    "lookahead_verification_set_size"};
  std::optional<int32_t> values[3];
  for (size_t i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(values[i], item.scalar<int32_t>(kNames[i]));
  }
  if (std::ranges::none_of(values, [](const auto& value) { return value.has_value(); }))
    return ok();
  for (size_t i = 0; i < 3; ++i)
    if (!values[i])
      return invalid_argument("Failed to extract {}: all three lookahead inputs or none",
                              kNames[i]);
  out.lookahead = LookaheadConfig{*values[0], *values[1], *values[2]};
  return ok();
}

// The text of a BYTES input; empty when absent.
StatusOr<std::string> read_text(const Item& item, std::string_view name) {
  ASSIGN_OR_RETURN(const auto texts, item.strings(name));
  return texts && !texts->empty() ? texts->front() : "";
}

// Reads the grammar of guided decoding; an empty text is none.
Status read_guide(const Item& item, nereid::Request& out) {
  constexpr std::string_view kType = "guided_decoding_guide_type", kGuide = "guided_decoding_guide";
  ASSIGN_OR_RETURN(const std::string type, read_text(item, kType));
  ASSIGN_OR_RETURN(const std::string guide, read_text(item, kGuide));
  if (type.empty() && guide.empty()) return ok();
  constexpr std::pair<std::string_view, GuideType> kTypes[] = {
      {"json", GuideType::kJson},
      {"json_schema", GuideType::kJsonSchema},
      {"regex", GuideType::kRegex},
      {"ebnf_grammar", GuideType::kEbnfGrammar},
      {"structural_tag", GuideType::kStructuralTag}};
  for (const auto& [name, kind] : kTypes)
    if (name == type) out.guided_decoding = {kind, kind == GuideType::kJson ? "" : guide};
  if (!out.guided_decoding)
    return invalid_argument(
        "input '{}' is '{}', expected json, json_schema, regex, ebnf_grammar or structural_tag",
        kType, type);
  if (type != "json" && guide.empty())
    return invalid_argument("input '{}' is needed with '{}' {}", kGuide, kType, type);
  return ok();
}

// Reads the reasoning inputs; the engine checks the markers.
Status read_reasoning(const Item& item, nereid::Request& out) {
  ReasoningConfig reasoning;
  ASSIGN_OR_RETURN(reasoning.open, read_text(item, "reasoning_open"));
  ASSIGN_OR_RETURN(reasoning.close, read_text(item, "reasoning_close"));
  ASSIGN_OR_RETURN(const auto begun, item.scalar<bool>("reasoning_begun"));
  ASSIGN_OR_RETURN(reasoning.max_tokens, item.scalar<int32_t>("max_reasoning_tokens"));
  reasoning.begun = begun.value_or(false);
  if (reasoning.open.empty() && reasoning.close.empty() && !begun && !reasoning.max_tokens)
    return ok();
  if (reasoning.close.empty())
    return invalid_argument("input 'reasoning_close' is needed with other inputs of reasoning");
  out.reasoning = std::move(reasoning);
  return ok();
}

Status read_endings(const Item& item, const ReadContext& context, nereid::Request& out) {
  ASSIGN_OR_RETURN(const auto end_id, item.scalar<int32_t>("end_id"));
  if (end_id && (*end_id < -1 || *end_id >= context.vocab_size)) {
    return invalid_argument("EndId ({}) is not within acceptable range [-1, {}). (input 'end_id')",
                            *end_id, context.vocab_size);
  }
  if (end_id && *end_id != -1) {
    const auto& defaults = context.default_end_ids;
    const bool is_default = std::find(defaults.begin(), defaults.end(), *end_id) != defaults.end();
    // The model's several end tokens all count when the client names its default one.
    out.end_ids = is_default ? defaults : std::vector<TokenId>{*end_id};
  }
  ASSIGN_OR_RETURN(const auto stop, item.values<int32_t>("stop_words_list"));
  if (stop) {
    ASSIGN_OR_RETURN(out.stop_words, read_words(*stop));
  }
  ASSIGN_OR_RETURN(auto strings, item.strings("stop_strings"));
  if (strings) {
    std::erase(*strings, "");
    // The preprocessing model sends stop words in both forms; beams end on token ids only.
    const bool as_ids = out.sampling.beam_width > 1 && !out.stop_words.empty();
    if (!as_ids) out.stop_strings = *std::move(strings);
  }
  ASSIGN_OR_RETURN(const auto bad, item.values<int32_t>("bad_words_list"));
  if (bad) {
    ASSIGN_OR_RETURN(out.bad_words, read_words(*bad));
  }
  return ok();
}

// Reads the rules of a transcript. timestamp_rules [4]: the first time stamp, the token of
// transcripts without them or -1, the end of text, the index of the latest first one or -1.
Status read_timestamp_rules(const Item& item, nereid::Request& out) {
  ASSIGN_OR_RETURN(auto suppressed, item.values<int32_t>("begin_suppress_tokens"));
  if (suppressed) out.suppressed_first_ids = *std::move(suppressed);
  ASSIGN_OR_RETURN(const auto rules, item.values<int32_t>("timestamp_rules"));
  if (!rules) return ok();
  if (rules->size() != 4)
    return invalid_argument("input 'timestamp_rules' has {} numbers, expected 4", rules->size());
  const auto optional = [](int32_t x) {
    return x == -1 ? std::nullopt : std::optional<int32_t>(x);
  };
  out.timestamp_rules =
      TimestampRules{(*rules)[0], optional((*rules)[1]), (*rules)[2], optional((*rules)[3])};
  return ok();
}

// Reads alignment_heads [2 n]: layer, head, layer, head, ...
Status read_alignment_heads(const Item& item, nereid::Request& out) {
  ASSIGN_OR_RETURN(const auto numbers, item.values<int32_t>("alignment_heads"));
  if (!numbers) return ok();
  if (numbers->size() % 2 != 0)
    return invalid_argument(
        "input 'alignment_heads' has {} numbers, expected pairs of a layer and a head",
        numbers->size());
  for (size_t i = 0; i < numbers->size(); i += 2)
    out.output.alignment_heads.push_back({(*numbers)[i], (*numbers)[i + 1]});
  return ok();
}

// Reads cross_attention_mask, BOOL [1, rows, positions of the encoder's output]; items of a batch
// may have fewer positions than its tensor, whose further columns are not read. A decoder without
// encoder takes no mask.
Status read_cross_mask(const Item& item, const ReadContext& context, nereid::Request& out) {
  constexpr const char* kName = "cross_attention_mask";
  ASSIGN_OR_RETURN(const auto view, item.input(kName));
  if (!view || view->bytes.empty() || context.encoder.max_length == 0) return ok();
  if (view->datatype != TRITONSERVER_TYPE_BOOL)
    return invalid_argument("input '{}' is {}, expected BOOL", kName,
                            TRITONSERVER_DataTypeString(view->datatype));
  if (view->shape.size() != 3)
    return invalid_argument("input '{}' has {} dimensions, expected [batch, rows, positions]",
                            kName, view->shape.size());
  const auto columns = static_cast<size_t>(view->shape[2]);
  const EncoderInput& input = *out.encoder_input;
  const size_t positions =
      context.encoder.feature_width > 0
          ? input.features.size() / static_cast<size_t>(context.encoder.feature_width) / 2
          : input.token_ids.size();
  const size_t kept = item.batch() > 1 ? std::min(columns, positions) : columns;
  CrossAttentionMask& mask = out.cross_attention_mask.emplace();
  mask.num_positions = static_cast<int32_t>(kept);
  for (size_t row = 0; columns > 0 && row < view->bytes.size() / columns; ++row)
    for (size_t at = 0; at < kept; ++at)
      mask.attends.push_back(view->bytes[row * columns + at] != 0 ? 1 : 0);
  return ok();
}

// Reads handling options: priority, deadline, cache salt, retention.
Status read_handling(const Item& item, nereid::Request& out) {
  std::optional<float> priority;
  RETURN_IF_ERROR(read_number(item, "priority", {0, 1}, priority));
  out.priority = priority.value_or(out.priority);
  out.tenant = item.request().tenant();
  std::optional<int32_t> allotted;
  RETURN_IF_ERROR(
      read_number(item, "allotted_time_ms", {1, std::numeric_limits<int32_t>::max()}, allotted));
  if (allotted) out.allotted_time = std::chrono::milliseconds(*allotted);
  ASSIGN_OR_RETURN(const auto salt, item.strings("cache_salt"));
  if (salt && salt->size() != 1) return invalid_argument("Invalid size for tensor cache_salt");
  if (salt) out.cache_salt = (*salt)[0];
  if (out.cache_salt.size() > 256) {
    return invalid_argument("input 'cache_salt' has {} bytes, expected at most 256",
                            out.cache_salt.size());
  }
  ASSIGN_OR_RETURN(out.kv_cache_retention, read_retention(item));
  return ok();
}

StatusOr<GenerationRequest> read_item(const Item& item, const ReadContext& context) {
  GenerationRequest out;
  nereid::Request& r = out.request;
  RETURN_IF_ERROR(read_prompt(item, context, r));
  const auto flag = [](const StatusOr<std::optional<bool>>& value, bool fallback,
                       bool& to) -> Status {
    RETURN_IF_ERROR(value.status());
    to = value->value_or(fallback);
    return ok();
  };
  // One flag for the whole batch: that of item 0.
  ASSIGN_OR_RETURN(const auto streaming,
                   Item(item.request(), 0, item.batch()).scalar<bool>("streaming"));
  r.streaming = streaming.value_or(false);
  if (r.streaming && !context.decoupled) {
    return invalid_argument(
        "Streaming is only supported if model is deployed using decoupled mode.");
  }
  RETURN_IF_ERROR(flag(item.scalar<bool>("exclude_input_in_output"), context.exclude_input_default,
                       out.exclude_input));
  // Static batching: one response, without the prompt, as for a stream.
  if (r.streaming && context.is_v1) {
    r.streaming = false;
    out.exclude_input = true;
  }
  RETURN_IF_ERROR(flag(item.scalar<bool>("return_perf_metrics"), false, out.return_perf_metrics));
  if (!out.return_perf_metrics) {  // name until v0.18
    RETURN_IF_ERROR(
        flag(item.scalar<bool>("return_kv_cache_reuse_stats"), false, out.return_perf_metrics));
  }
  RETURN_IF_ERROR(
      flag(item.scalar<bool>("return_num_input_tokens"), false, out.return_num_input_tokens));
  RETURN_IF_ERROR(
      flag(item.scalar<bool>("return_num_output_tokens"), false, out.return_num_output_tokens));
  RETURN_IF_ERROR(
      flag(item.scalar<bool>("return_all_generated_tokens"), false, r.return_all_generated_tokens));
  RETURN_IF_ERROR(read_sampling(item, context, r.sampling));
  RETURN_IF_ERROR(read_output_config(item, r.sampling, r.streaming, r.output));
  RETURN_IF_ERROR(read_biases(item, context, r));
  RETURN_IF_ERROR(read_drafts(item, r));
  RETURN_IF_ERROR(read_lookahead(item, r));
  if (context.takes_adapters) RETURN_IF_ERROR(read_lora(item, context, r));
  RETURN_IF_ERROR(read_guide(item, r));
  RETURN_IF_ERROR(read_reasoning(item, r));
  RETURN_IF_ERROR(read_endings(item, context, r));
  RETURN_IF_ERROR(read_timestamp_rules(item, r));
  RETURN_IF_ERROR(read_alignment_heads(item, r));
  RETURN_IF_ERROR(read_cross_mask(item, context, r));
  RETURN_IF_ERROR(read_handling(item, r));
  r.output.exclude_input_from_output = true;  // the backend adds the prompt itself
  return out;
}

}  // namespace

StatusOr<std::vector<GenerationRequest>> read_generation_requests(const Request& request,
                                                                  const ReadContext& context) {
  ASSIGN_OR_RETURN(const bool usage_parameters, read_request_parameters(request));
  RETURN_IF_ERROR(refuse_unsupported(request, context));
  ASSIGN_OR_RETURN(const int64_t batch, read_batch(request, context));
  std::vector<GenerationRequest> out;
  for (int64_t i = 0; i < batch; ++i) {
    ASSIGN_OR_RETURN(auto item, read_item(Item(request, i, batch), context));
    item.usage_parameters = usage_parameters;
    out.push_back(std::move(item));
  }
  const auto is_pooled = [](const GenerationRequest& g) {
    return g.request.output.pooling.has_value();
  };
  if (std::ranges::all_of(out, is_pooled)) return out;
  for (const char* name : {"output_ids", "sequence_length"}) {
    if (name == std::string_view("sequence_length") && !context.declares_lengths) continue;
    if (!request.wants_output(name)) {
      return invalid_argument(
          "Error encountered while populating response: {} tensor must be "
          "present in list of output tensors",
          name);
    }
  }
  return out;
}

}  // namespace nereid::backend
