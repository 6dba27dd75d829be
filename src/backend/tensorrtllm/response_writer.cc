// Output tensors of the tensorrt_llm model.
#include "backend/tensorrtllm/response_writer.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <utility>

#include "backend/tensorrtllm/half.h"
#include "base/clock.h"

namespace nereid::backend {
namespace {

const char* reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNotFinished:
      return "not_finished";
    case FinishReason::kEndId:
      return "end_id";
    case FinishReason::kStopWords:
      return "stop_words";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kTimedOut:
      return "timed_out";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

int64_t nanoseconds(Time t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

template <class T>
Output padded(const char* name, const std::vector<std::vector<T>>& rows, T padding) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.size());
  std::vector<T> flat;
  flat.reserve(rows.size() * width);
  for (const auto& row : rows) {
    flat.insert(flat.end(), row.begin(), row.end());
    flat.insert(flat.end(), width - row.size(), padding);
  }
  return make_output(name, {1, static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)},
                     flat);
}

// A tensor [1, 1] of one value.
template <class T>
Output single(const char* name, T value) {
  return make_output(name, {1, 1}, std::vector<T>{value});
}

}  // namespace

std::vector<ResponseParameter> response_parameters(const ActiveItem& item,
                                                   const Response& response) {
  std::vector<ResponseParameter> out;
  if (response.is_final || response.is_sequence_final) {
    std::string reasons;
    for (const auto& output : response.outputs) {
      if (!reasons.empty()) reasons += ',';
      reasons += reason_name(output.finish_reason);
    }
    out.push_back({"nereid_finish_reason", std::move(reasons)});
  }
  if (!item.generation.usage_parameters) return out;
  const RequestMetrics& m = response.metrics;
  const auto add = [&](const char* name, int64_t count) {
    if (count > 0) out.push_back({name, count});
  };
  add("nereid_cached_tokens", m.cached_tokens);
  add("nereid_draft_tokens", m.num_drafts);
  add("nereid_accepted_draft_tokens", m.num_accepted_drafts);
  return out;
}

// The rows of a response, one entry for each beam. Lists are aligned with the row's generated
// tokens; log_probs in a stream are those of all tokens so far.
struct ResponseWriter::Rows {
  std::vector<std::vector<TokenId>> tokens;  // generated tokens
  std::vector<std::vector<float>> log_probs;
  std::vector<std::vector<std::vector<TokenLogProb>>> tops;
  std::vector<float> cum_log_probs;
  std::vector<float> logits;  // of the only row
  bool nothing_new = false;
};

Status ResponseWriter::check() const {
  for (const char* name : {"context_logits", "generation_logits"}) {
    const auto* spec = settings_.output(name);
    if (spec == nullptr || spec->datatype == TRITONSERVER_TYPE_FP32 ||
        spec->datatype == TRITONSERVER_TYPE_FP16) {
      continue;
    }
    return invalid_argument("model '{}': output '{}' has type {}; logits are FP32 or FP16",
                            settings_.name, name, TRITONSERVER_DataTypeString(spec->datatype));
  }
  return ok();
}

bool ResponseWriter::wants(const Request& request, const char* name) const {
  return settings_.output(name) != nullptr && request.wants_output(name);
}

ResponseWriter::Rows ResponseWriter::rows_of(ActiveItem& item, Response& response,
                                             SequenceState& state) const {
  const auto& wanted = item.generation.request;
  Rows rows;
  const bool whole = !wanted.streaming || wanted.return_all_generated_tokens ||
                     wanted.sampling.beam_width > 1 || response.outputs.size() != 1;
  for (SequenceOutput& output : response.outputs) {
    if (output.finish_reason == FinishReason::kCancelled) {
      output.token_ids.clear();
      output.log_probs.clear();
      output.top_log_probs.clear();
      output.generation_logits.clear();
    }
    if (output.cum_log_prob) rows.cum_log_probs.push_back(*output.cum_log_prob);
  }
  if (whole) {
    for (SequenceOutput& output : response.outputs) {
      rows.tokens.push_back(std::move(output.token_ids));
      rows.log_probs.push_back(std::move(output.log_probs));
      rows.tops.push_back(std::move(output.top_log_probs));
    }
    if (rows.tokens.size() == 1) rows.logits = std::move(response.outputs[0].generation_logits);
    return rows;
  }
  SequenceOutput& output = response.outputs[0];
  state.log_probs.insert(state.log_probs.end(), output.log_probs.begin(), output.log_probs.end());
  std::move(output.top_log_probs.begin(), output.top_log_probs.end(),
            std::back_inserter(state.held_tops));
  state.held_logits.insert(state.held_logits.end(), output.generation_logits.begin(),
                           output.generation_logits.end());
  const bool is_last = response.is_final || response.is_sequence_final;
  rows.tokens.push_back(state.characters.push(output.token_ids, is_last));
  const size_t count = rows.tokens[0].size();
  rows.nothing_new = count == 0 && !is_last;
  state.num_sent += count;
  rows.log_probs.emplace_back(
      state.log_probs.begin(),
      state.log_probs.begin() +
          static_cast<ptrdiff_t>(std::min(state.log_probs.size(), state.num_sent)));
  auto& tops = rows.tops.emplace_back();
  for (size_t i = 0; i < count && !state.held_tops.empty(); ++i) {
    tops.push_back(std::move(state.held_tops.front()));
    state.held_tops.pop_front();
  }
  const size_t floats =
      std::min(count * static_cast<size_t>(vocab_size_), state.held_logits.size());
  const auto end = state.held_logits.begin() + static_cast<ptrdiff_t>(floats);
  rows.logits.assign(state.held_logits.begin(), end);
  state.held_logits.erase(state.held_logits.begin(), end);
  return rows;
}

std::vector<Output> ResponseWriter::write(const Request& request, ActiveItem& item,
                                          Response& response) const {
  const auto index = static_cast<size_t>(std::max(response.sequence_index, 0));
  while (item.sequences.size() <= index) item.sequences.emplace_back(tokenizer_);
  std::vector<Output> out;
  if (item.generation.request.output.pooling) {
    if (wants(request, "embedding"))
      out.push_back(make_output("embedding", {1, static_cast<int64_t>(response.embedding.size())},
                                response.embedding));
    add_numbers(request, item, response, out);
    return out;
  }
  if (response.context_logits != nullptr) item.context_logits = response.context_logits;
  if (response.prompt_log_probs != nullptr) item.prompt_log_probs = response.prompt_log_probs;
  if (response.attention_scores != nullptr) item.attention_scores = response.attention_scores;
  if (response.encoder_output != nullptr) item.encoder_output = response.encoder_output;
  Rows rows = rows_of(item, response, item.sequences[index]);
  if (rows.nothing_new) return out;
  std::vector<std::vector<TokenId>> ids;
  std::vector<int32_t> lengths;
  for (const auto& tokens : rows.tokens) {
    auto& row = ids.emplace_back(item.prompt);
    row.insert(row.end(), tokens.begin(), tokens.end());
    lengths.push_back(static_cast<int32_t>(row.size()));
    item.num_tokens_sent += static_cast<int64_t>(tokens.size());
  }
  out.push_back(padded<TokenId>("output_ids", ids, -1));
  if (settings_.output("sequence_length") != nullptr) {
    out.push_back(
        make_output("sequence_length", {1, static_cast<int64_t>(lengths.size())}, lengths));
  }
  add_logits(request, item, response, rows, out);
  add_log_probs(request, item, response, rows, out);
  add_prompt_log_probs(request, item, out);
  add_attention_scores(request, item, out);
  add_encoder_output(request, item, out);
  add_numbers(request, item, response, out);
  return out;
}

Output ResponseWriter::logits_output(const char* name, Shape shape, Logits values) const {
  if (settings_.output(name)->datatype == TRITONSERVER_TYPE_FP16) {
    return {name, TRITONSERVER_TYPE_FP16, std::move(shape), to_half_bytes(*values)};
  }
  return {name, TRITONSERVER_TYPE_FP32, std::move(shape), {}, std::move(values)};
}

uint64_t ResponseWriter::logits_bytes(const nereid::Request& request) const {
  const auto num_prompt = static_cast<int64_t>(request.input_token_ids.size());
  int64_t rows = request.output.return_context_logits ? num_prompt : 0;
  const SamplingConfig& sampling = request.sampling;
  if (request.output.return_generation_logits)
    rows += int64_t{sampling.best_of.value_or(sampling.num_return_sequences.value_or(1))} *
            std::max(request.max_tokens, 0);
  return static_cast<uint64_t>(rows * vocab_size_) * sizeof(float);
}

void ResponseWriter::add_absent(const Request& request, const char* name, Shape shape,
                                std::vector<Output>& out) const {
  if (!fills_in_ || !wants(request, name)) return;
  const auto count = static_cast<size_t>(
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
  out.push_back(logits_output(name, std::move(shape), std::make_shared<std::vector<float>>(count)));
}

void ResponseWriter::add_logits(const Request& request, ActiveItem& item, const Response& response,
                                Rows& rows, std::vector<Output>& out) const {
  const auto& wanted = item.generation.request;
  const int64_t vocab = vocab_size_;
  // The tensor is in every response, since clients compare outputs with the names they requested;
  // its rows are in one response.
  if (!wanted.output.return_context_logits) {
    add_absent(request, "context_logits", {1, 1, 1}, out);
  } else if (wants(request, "context_logits")) {
    Logits context = std::exchange(item.context_logits, nullptr);
    const int64_t rows_sent = context ? response.num_input_tokens : 0;
    if (!context) context = std::make_shared<std::vector<float>>();
    out.push_back(logits_output("context_logits", {1, rows_sent, vocab}, std::move(context)));
  }
  if (!wanted.output.return_generation_logits || rows.tokens.size() != 1) {
    return add_absent(request, "generation_logits", {1, 1, 1, 1}, out);
  }
  if (!wants(request, "generation_logits")) return;
  const auto count = static_cast<int64_t>(rows.logits.size()) / vocab;
  Shape shape = {1, count, 1, vocab};
  if (!wanted.streaming) {
    // The largest length of the output; positions that were not generated are zero.
    const int64_t length = std::max<int64_t>(wanted.max_tokens, count);
    rows.logits.resize(static_cast<size_t>(length * vocab));
    shape = {1, 1, length, vocab};
  }
  out.push_back(logits_output("generation_logits", std::move(shape),
                              std::make_shared<const std::vector<float>>(std::move(rows.logits))));
}

void ResponseWriter::add_log_probs(const Request& request, const ActiveItem& item,
                                   const Response& response, const Rows& rows,
                                   std::vector<Output>& out) const {
  const OutputConfig& config = item.generation.request.output;
  // "log_probs" is the name in the oldest set of models.
  for (const char* name : {"output_log_probs", "log_probs"}) {
    if (!config.return_log_probs || !wants(request, name)) continue;
    out.push_back(padded<float>(name, rows.log_probs, -1.0f));
  }
  if (!config.return_log_probs) {
    add_absent(request, "output_log_probs", {1, 1, response.num_input_tokens}, out);
    add_absent(request, "cum_log_probs", {1, 1}, out);
  }
  if (config.return_log_probs && wants(request, "cum_log_probs") && !rows.cum_log_probs.empty()) {
    out.push_back(make_output("cum_log_probs", {1, static_cast<int64_t>(rows.cum_log_probs.size())},
                              rows.cum_log_probs));
  }
  if (config.num_top_log_probs == 0 || !wants(request, "top_log_probs")) return;
  const auto depth = static_cast<size_t>(config.num_top_log_probs);
  size_t width = 0;
  for (const auto& row : rows.tops) width = std::max(width, row.size());
  std::vector<TokenId> ids(rows.tops.size() * width * depth, -1);
  std::vector<float> values(ids.size(), 0.0f);
  for (size_t r = 0; r < rows.tops.size(); ++r) {
    for (size_t t = 0; t < rows.tops[r].size(); ++t) {
      const auto& top = rows.tops[r][t];
      for (size_t k = 0; k < std::min(depth, top.size()); ++k) {
        ids[(r * width + t) * depth + k] = top[k].token;
        values[(r * width + t) * depth + k] = top[k].log_prob;
      }
    }
  }
  const Shape shape = {1, static_cast<int64_t>(rows.tops.size()), static_cast<int64_t>(width),
                       static_cast<int64_t>(depth)};
  out.push_back(make_output("top_log_probs", shape, values));
  out.push_back(make_output("top_log_prob_ids", shape, ids));
}

// Adds them to the first response that has tokens.
void ResponseWriter::add_prompt_log_probs(const Request& request, ActiveItem& item,
                                          std::vector<Output>& out) const {
  const auto scores = std::exchange(item.prompt_log_probs, nullptr);
  if (scores == nullptr) return;
  const auto count = static_cast<int64_t>(scores->log_probs.size());
  if (wants(request, "prompt_log_probs"))
    out.push_back(make_output("prompt_log_probs", {1, count}, scores->log_probs));
  if (wants(request, "prompt_log_prob_ranks"))
    out.push_back(make_output("prompt_log_prob_ranks", {1, count}, scores->ranks));
  if (scores->num_top == 0 || !wants(request, "prompt_top_log_probs")) return;
  std::vector<TokenId> ids;
  std::vector<float> values;
  for (const TokenLogProb& entry : scores->top) {
    ids.push_back(entry.token);
    values.push_back(entry.log_prob);
  }
  const Shape shape = {1, count, scores->num_top};
  out.push_back(make_output("prompt_top_log_probs", shape, values));
  out.push_back(make_output("prompt_top_log_prob_ids", shape, ids));
}

// Adds them to the first response that has tokens.
void ResponseWriter::add_attention_scores(const Request& request, ActiveItem& item,
                                          std::vector<Output>& out) const {
  const auto scores = std::exchange(item.attention_scores, nullptr);
  if (scores == nullptr || !wants(request, "alignment_scores")) return;
  out.push_back({"alignment_scores",
                 TRITONSERVER_TYPE_FP32,
                 {1, scores->num_heads, scores->num_tokens, scores->num_positions},
                 {},
                 Logits(scores, &scores->scores)});
}

// Adds it to the first response that has tokens.
void ResponseWriter::add_encoder_output(const Request& request, ActiveItem& item,
                                        std::vector<Output>& out) const {
  const auto output = std::exchange(item.encoder_output, nullptr);
  if (output == nullptr || !wants(request, "encoder_output")) return;
  out.push_back({"encoder_output",
                 TRITONSERVER_TYPE_FP32,
                 {1, output->num_positions, output->width},
                 {},
                 Logits(output, &output->values)});
}

void ResponseWriter::add_numbers(const Request& request, const ActiveItem& item,
                                 const Response& response, std::vector<Output>& out) const {
  const GenerationRequest& generation = item.generation;
  if ((item.batch > 1 || fills_in_) && wants(request, "batch_index")) {
    out.push_back(
        settings_.as_declared(single("batch_index", static_cast<int32_t>(item.batch_index))));
  }
  if (generation.request.sampling.num_return_sequences.value_or(1) > 1 &&
      wants(request, "sequence_index")) {
    out.push_back(single("sequence_index", response.sequence_index));
  }
  if (generation.return_num_input_tokens && wants(request, "num_input_tokens")) {
    out.push_back(single("num_input_tokens", response.num_input_tokens));
  }
  if (generation.return_num_output_tokens && wants(request, "num_output_tokens")) {
    out.push_back(single("num_output_tokens", response.outputs[0].num_output_tokens));
  }
  if (!generation.return_perf_metrics) return;
  // Perf outputs are sent whether or not the client requested them by name.
  const auto add = [&](const char* name, auto value) {
    if (settings_.output(name) != nullptr) out.push_back(single(name, value));
  };
  const RequestMetrics& m = response.metrics;
  const bool ended = response.is_final || response.is_sequence_final;
  add("kv_cache_alloc_new_blocks", m.allocated_blocks);
  add("kv_cache_reused_blocks", m.reused_blocks);
  add("kv_cache_alloc_total_blocks", m.allocated_blocks);
  add("arrival_time_ns", nanoseconds(m.arrival));
  add("first_scheduled_time_ns", nanoseconds(m.first_scheduled));
  add("first_token_time_ns", nanoseconds(m.first_token));
  add("last_token_time_ns", ended ? nanoseconds(m.last_token) : int64_t{0});
  const int32_t accepted = m.num_accepted_drafts, tested = m.num_drafts;
  add("acceptance_rate",
      tested > 0 ? static_cast<float>(accepted) / static_cast<float>(tested) : 0.0f);
  add("total_accepted_draft_tokens", accepted);
  add("total_draft_tokens", tested);
}

}  // namespace nereid::backend
