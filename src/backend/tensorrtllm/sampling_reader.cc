// Sampling and output options of a tensorrt_llm request.
#include <cmath>
#include <limits>

#include "backend/tensorrtllm/tensor_fields.h"
#include "base/log_limit.h"

namespace nereid::backend {
namespace {

constexpr double kMaxInt = std::numeric_limits<int32_t>::max();
constexpr Range kAnyNumber{};
constexpr Range kNotNegative{0};
constexpr Range kCount{0, kMaxInt};
constexpr Range kAboveZeroToOne{0, 1, /*above_low=*/true};

// Reads a value that has two names: the one that the client sent.
template <class T>
Status read_either(const Item& item, std::string_view name, std::string_view alias,
                   const Range& range, std::optional<T>& to) {
  RETURN_IF_ERROR(read_number(item, name, range, to));
  return to ? ok() : read_number(item, alias, range, to);
}

Status read_top_p(const Item& item, SamplingConfig& s) {
  RETURN_IF_ERROR(read_number(item, "runtime_top_p", {-kMaxInt, 1}, s.top_p));
  if (s.top_p && *s.top_p <= 0) s.top_p.reset();  // on the wire, <= 0 is off
  RETURN_IF_ERROR(read_either(item, "runtime_top_p_min", "runtime_top_k_min", {0, 1}, s.top_p_min));
  if (s.top_p_min && *s.top_p_min == 0) s.top_p_min.reset();
  RETURN_IF_ERROR(read_number(item, "runtime_top_p_decay", kAboveZeroToOne, s.top_p_decay));
  RETURN_IF_ERROR(read_number(item, "runtime_top_p_reset_ids", {-1, kMaxInt}, s.top_p_reset_id));
  if (s.top_p_reset_id && *s.top_p_reset_id == -1) s.top_p_reset_id.reset();
  return ok();
}

// early_stopping: BOOL as in templates, or INT32 for its third value.
Status read_early_stopping(const Item& item, SamplingConfig& s) {
  ASSIGN_OR_RETURN(const auto view, item.input("early_stopping"));
  if (!view) return ok();
  if (view->datatype == TRITONSERVER_TYPE_INT32) {
    return read_number(item, "early_stopping", kCount, s.early_stopping);
  }
  ASSIGN_OR_RETURN(const auto flag, item.scalar<bool>("early_stopping"));
  s.early_stopping = *flag ? 1 : 0;
  return ok();
}

Status read_counts(const Item& item, const ReadContext& context, SamplingConfig& s) {
  std::optional<int32_t> beam_width;
  RETURN_IF_ERROR(read_number(item, "beam_width", {1, kMaxInt}, beam_width));
  s.beam_width = beam_width.value_or(1);
  if (s.beam_width > context.max_beam_width) {
    return invalid_argument(
        "input 'beam_width': Requested beam width {} is larger than configured max beam width {}",
        s.beam_width, context.max_beam_width);
  }
  RETURN_IF_ERROR(read_number(item, "num_return_sequences", {1, 128}, s.num_return_sequences));
  RETURN_IF_ERROR(read_number(item, "best_of", {1, 128}, s.best_of));
  const int32_t returned = s.num_return_sequences.value_or(1);
  if (s.beam_width > 1 && returned > s.beam_width) {
    return invalid_argument(
        "input 'num_return_sequences' is {}, expected at most the beam width {}", returned,
        s.beam_width);
  }
  if (s.beam_width == 1 && returned > 1 && !context.decoupled) {
    return invalid_argument(
        "input 'num_return_sequences' is {}: more than one response needs a model that is deployed "
        "using decoupled mode",
        returned);
  }
  return ok();
}

}  // namespace

std::string describe(const Range& range) {
  const bool has_low = std::isfinite(range.low), has_high = std::isfinite(range.high);
  if (has_low && has_high) {
    return fmt::format("a value in {}{}, {}]", range.above_low ? '(' : '[', range.low, range.high);
  }
  if (has_low)
    return fmt::format("{} {}", range.above_low ? "greater than" : "at least", range.low);
  return "a finite number";
}

Status check_value(std::string_view name, double value, const Range& range) {
  const bool inside = std::isfinite(value) && value <= range.high &&
                      (range.above_low ? value > range.low : value >= range.low);
  if (inside) return ok();
  return invalid_argument("input '{}' is {}, expected {}", name, value, describe(range));
}

Status read_sampling(const Item& item, const ReadContext& context, SamplingConfig& s) {
  RETURN_IF_ERROR(read_counts(item, context, s));
  RETURN_IF_ERROR(read_number(item, "runtime_top_k", kCount, s.top_k));
  RETURN_IF_ERROR(read_top_p(item, s));
  RETURN_IF_ERROR(read_number(item, "min_p", {0, 1}, s.min_p));
  RETURN_IF_ERROR(read_number(item, "temperature", kNotNegative, s.temperature));
  ASSIGN_OR_RETURN(s.seed, item.scalar<uint64_t>("random_seed"));
  if (!s.seed) {
    ASSIGN_OR_RETURN(s.seed, item.scalar<uint64_t>("seed"));
  }
  RETURN_IF_ERROR(read_either(item, "min_length", "min_tokens", kCount, s.min_tokens));
  RETURN_IF_ERROR(
      read_number(item, "repetition_penalty", {0, kAnyNumber.high, true}, s.repetition_penalty));
  RETURN_IF_ERROR(read_number(item, "presence_penalty", kAnyNumber, s.presence_penalty));
  RETURN_IF_ERROR(read_number(item, "frequency_penalty", kAnyNumber, s.frequency_penalty));
  RETURN_IF_ERROR(read_number(item, "prompt_ignore_length", kCount, s.prompt_ignore_length));
  RETURN_IF_ERROR(read_number(item, "no_repeat_ngram_size", kCount, s.no_repeat_ngram_size));
  // The executor API uses 2^30 for "never".
  if (s.no_repeat_ngram_size && *s.no_repeat_ngram_size >= 1 << 30) s.no_repeat_ngram_size.reset();
  ASSIGN_OR_RETURN(const auto last, item.scalar<bool>("temperature_last"));
  if (last.value_or(false)) s.order = SamplingOrder::kTemperatureLast;
  RETURN_IF_ERROR(
      read_either(item, "len_penalty", "length_penalty", kNotNegative, s.length_penalty));
  RETURN_IF_ERROR(read_early_stopping(item, s));
  return read_number(item, "beam_search_diversity_rate", kNotNegative,
                     s.beam_search_diversity_rate);
}

Status read_output_config(const Item& item, const SamplingConfig& sampling, bool streaming,
                          OutputConfig& output) {
  const auto flag = [&](const char* name, bool& to) -> Status {
    ASSIGN_OR_RETURN(const auto value, item.scalar<bool>(name));
    to = value.value_or(false);
    return ok();
  };
  RETURN_IF_ERROR(flag("return_log_probs", output.return_log_probs));
  if (!output.return_log_probs) {  // name in the oldest set of models
    RETURN_IF_ERROR(flag("output_log_probs", output.return_log_probs));
  }
  RETURN_IF_ERROR(flag("return_context_logits", output.return_context_logits));
  RETURN_IF_ERROR(flag("return_encoder_output", output.return_encoder_output));
  RETURN_IF_ERROR(flag("return_generation_logits", output.return_generation_logits));
  bool raw = false;
  RETURN_IF_ERROR(flag("raw_log_probs", raw));
  if (raw) output.log_probs_mode = LogProbsMode::kRaw;
  std::optional<int32_t> top;
  RETURN_IF_ERROR(read_number(item, "num_top_log_probs", {0, 32}, top));
  output.num_top_log_probs = top.value_or(0);
  RETURN_IF_ERROR(read_number(item, "num_prompt_log_probs", {0, 32}, output.num_prompt_log_probs));
  if (output.return_context_logits && sampling.beam_width > 1) {
    return unsupported(
        "input 'return_context_logits' is not supported with a beam width of {}; only 1 works",
        sampling.beam_width);
  }
  if (!output.return_generation_logits || sampling.beam_width == 1) return ok();
  if (!streaming) {
    return unsupported(
        "input 'return_generation_logits' is not supported with a beam width of {}; only 1 works",
        sampling.beam_width);
  }
  static LogLimit log;
  log.write(log_warning, "return_generation_logits is switched off: the request streams beams");
  output.return_generation_logits = false;
  return ok();
}

}  // namespace nereid::backend
