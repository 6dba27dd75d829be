// The C API of nereid.h on top of nereid::Executor.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "capi/options_json.h"
#include "nereid/executor.h"
#include "nereid/nereid.h"

using nereid::message;
using nereid::Response;
using nereid::SequenceOutput;
using nereid::Status;
using nereid::StatusOr;

struct nereid_error {
  Status status;
  std::string text;
};

struct nereid_executor {
  std::unique_ptr<nereid::Executor> executor;
};

struct nereid_responses {
  std::vector<Response> list;
  std::vector<std::string> errors;  // error texts of failed requests; empty for the others
};

namespace {

nereid_error* error_of(const Status& status) {
  if (status.ok()) return nullptr;
  return new nereid_error{status, std::string(message(status))};
}

// The error returned when there is no memory for an error: made at the first call, never freed.
nereid_error* out_of_memory() {
  static nereid_error error{nereid::resource_exhausted("out of memory"), "out of memory"};
  return &error;
}

// Runs `body`, a function that returns Status, and turns exceptions into errors.
template <class Body>
nereid_error* guarded(Body body) noexcept {
  try {
    try {
      out_of_memory();
      return error_of(body());
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {
      return error_of(nereid::internal_error("{}", e.what()));
    }
  } catch (...) {
    return out_of_memory();
  }
}

Status no_null(const void* pointer, const char* name) {
  return pointer ? nereid::ok() : nereid::invalid_argument("{}: is NULL", name);
}

StatusOr<nereid::Request> request_of(const nereid_request& in) {
  RETURN_IF_ERROR(no_null(in.options_json, "options_json"));
  ASSIGN_OR_RETURN(nereid::Request request, nereid::capi::parse_request(in.options_json));
  if (in.num_input_tokens > 0) {
    RETURN_IF_ERROR(no_null(in.input_token_ids, "input_token_ids"));
    request.input_token_ids.assign(in.input_token_ids, in.input_token_ids + in.num_input_tokens);
  }
  return request;
}

nereid::Timeout timeout_of(int64_t milliseconds) {
  if (milliseconds < 0) return std::nullopt;
  return std::chrono::milliseconds(milliseconds);
}

Status hand_over(std::vector<Response> list, nereid_responses** out) {
  auto responses = std::make_unique<nereid_responses>();
  for (const Response& r : list) responses->errors.emplace_back(message(r.status));
  responses->list = std::move(list);
  *out = responses.release();
  return nereid::ok();
}

double seconds_since(std::chrono::steady_clock::time_point from,
                     std::chrono::steady_clock::time_point to) {
  if (to == std::chrono::steady_clock::time_point()) return -1;
  return std::chrono::duration<double>(to - from).count();
}

const SequenceOutput* output_at(const nereid_responses* responses, size_t index, size_t output) {
  if (!responses || index >= responses->list.size()) return nullptr;
  const auto& outputs = responses->list[index].outputs;
  return output < outputs.size() ? &outputs[output] : nullptr;
}

template <class T>
const T* data_or_null(const std::vector<T>& list) {
  return list.empty() ? nullptr : list.data();
}

// NULL when there is no memory.
template <class Make>
char* text_of(Make make) noexcept {
  try {
    return strdup(make().c_str());
  } catch (...) {
    return nullptr;
  }
}

template <class Items, class ToJson>
std::string array_of(const Items& items, ToJson to_json) {
  std::string text = "[";
  for (const auto& item : items) text.append(text.size() > 1 ? "," : "").append(to_json(item));
  return text + "]";
}

}  // namespace

nereid_code nereid_error_code(const nereid_error* error) {
  return error ? static_cast<nereid_code>(error->status.code()) : NEREID_OK;
}

const char* nereid_error_message(const nereid_error* error) {
  return error ? error->text.c_str() : "";
}

void nereid_error_free(nereid_error* error) {
  if (error != out_of_memory()) delete error;
}

nereid_error* nereid_executor_create(const char* model_dir, const char* config_json,
                                     nereid_executor** executor) {
  return guarded([&]() -> Status {
    RETURN_IF_ERROR(no_null(model_dir, "model_dir"));
    RETURN_IF_ERROR(no_null(executor, "executor"));
    ASSIGN_OR_RETURN(const auto config,
                     nereid::capi::parse_config(config_json ? config_json : "{}"));
    auto created = std::make_unique<nereid_executor>();
    ASSIGN_OR_RETURN(created->executor, nereid::Executor::create(model_dir, config));
    *executor = created.release();
    return nereid::ok();
  });
}

void nereid_executor_free(nereid_executor* executor) { delete executor; }

nereid_error* nereid_enqueue(nereid_executor* executor, const nereid_request* request,
                             uint64_t* id) {
  return guarded([&]() -> Status {
    RETURN_IF_ERROR(no_null(executor, "executor"));
    RETURN_IF_ERROR(no_null(request, "request"));
    ASSIGN_OR_RETURN(nereid::Request one, request_of(*request));
    ASSIGN_OR_RETURN(const auto accepted, executor->executor->enqueue(std::move(one)));
    if (id) *id = accepted;
    return nereid::ok();
  });
}

nereid_error* nereid_enqueue_many(nereid_executor* executor, const nereid_request* requests,
                                  size_t count, uint64_t* ids) {
  return guarded([&]() -> Status {
    RETURN_IF_ERROR(no_null(executor, "executor"));
    if (count > 0) RETURN_IF_ERROR(no_null(requests, "requests"));
    std::vector<nereid::Request> all;
    for (size_t i = 0; i < count; ++i) {
      auto one = request_of(requests[i]);
      if (!one.ok()) return nereid::annotate(one.status(), fmt::format("requests[{}]", i));
      all.push_back(*std::move(one));
    }
    ASSIGN_OR_RETURN(const auto accepted, executor->executor->enqueue_requests(std::move(all)));
    if (ids) std::copy(accepted.begin(), accepted.end(), ids);
    return nereid::ok();
  });
}

void nereid_cancel(nereid_executor* executor, uint64_t id) {
  nereid_error_free(guarded([&] {
    executor->executor->cancel(id);
    return nereid::ok();
  }));
}

nereid_error* nereid_await(nereid_executor* executor, int64_t timeout_ms,
                           nereid_responses** responses) {
  return guarded([&]() -> Status {
    RETURN_IF_ERROR(no_null(executor, "executor"));
    RETURN_IF_ERROR(no_null(responses, "responses"));
    return hand_over(executor->executor->await_responses(timeout_of(timeout_ms)), responses);
  });
}

nereid_error* nereid_await_request(nereid_executor* executor, uint64_t id, int64_t timeout_ms,
                                   nereid_responses** responses) {
  return guarded([&]() -> Status {
    RETURN_IF_ERROR(no_null(executor, "executor"));
    RETURN_IF_ERROR(no_null(responses, "responses"));
    return hand_over(executor->executor->await_responses(id, timeout_of(timeout_ms)), responses);
  });
}

int64_t nereid_num_responses_ready(const nereid_executor* executor, uint64_t id) {
  return executor->executor->num_responses_ready(id ? std::optional<uint64_t>(id) : std::nullopt);
}

size_t nereid_responses_size(const nereid_responses* responses) {
  return responses ? responses->list.size() : 0;
}

void nereid_responses_free(nereid_responses* responses) { delete responses; }

bool nereid_get_response(const nereid_responses* responses, size_t index,
                         nereid_response* response) {
  if (!responses || !response || index >= responses->list.size()) return false;
  const Response& r = responses->list[index];
  *response = {};
  response->request_id = r.request_id;
  response->has_client_id = r.client_id.has_value();
  response->client_id = r.client_id.value_or(0);
  response->code = static_cast<nereid_code>(r.status.code());
  response->error = r.status.ok() ? nullptr : responses->errors[index].c_str();
  response->is_final = r.is_final;
  response->is_sequence_final = r.is_sequence_final;
  response->sequence_index = r.sequence_index;
  response->num_input_tokens = r.num_input_tokens;
  response->num_outputs = r.outputs.size();
  if (r.context_logits) {
    response->context_logits = r.context_logits->data();
    response->num_context_logits = r.context_logits->size();
  }
  const nereid::RequestMetrics& m = r.metrics;
  response->seconds_to_first_scheduled = seconds_since(m.arrival, m.first_scheduled);
  response->seconds_to_first_token = seconds_since(m.arrival, m.first_token);
  response->seconds_to_last_token = seconds_since(m.arrival, m.last_token);
  response->reused_blocks = m.reused_blocks;
  response->missed_blocks = m.missed_blocks;
  response->allocated_blocks = m.allocated_blocks;
  response->num_preemptions = m.num_preemptions;
  return true;
}

bool nereid_get_output(const nereid_responses* responses, size_t index, size_t output,
                       nereid_output* out) {
  const SequenceOutput* o = output_at(responses, index, output);
  if (!o || !out) return false;
  *out = {};
  out->token_ids = data_or_null(o->token_ids);
  out->num_token_ids = o->token_ids.size();
  out->finish_reason = static_cast<nereid_finish_reason>(o->finish_reason);
  out->num_output_tokens = o->num_output_tokens;
  out->log_probs = data_or_null(o->log_probs);
  out->num_log_probs = o->log_probs.size();
  out->has_cum_log_prob = o->cum_log_prob.has_value();
  out->cum_log_prob = o->cum_log_prob.value_or(0);
  out->num_top_log_probs = o->top_log_probs.size();
  out->generation_logits = data_or_null(o->generation_logits);
  out->num_generation_logits = o->generation_logits.size();
  return true;
}

size_t nereid_get_top_log_probs(const nereid_responses* responses, size_t index, size_t output,
                                size_t position, nereid_token_log_prob* top, size_t room) {
  const SequenceOutput* o = output_at(responses, index, output);
  if (!o || position >= o->top_log_probs.size()) return 0;
  const auto& list = o->top_log_probs[position];
  for (size_t i = 0; top && i < list.size() && i < room; ++i)
    top[i] = {list[i].token, list[i].log_prob};
  return list.size();
}

void nereid_drain(nereid_executor* executor, int64_t timeout_ms) {
  nereid_error_free(guarded([&] {
    executor->executor->drain(std::chrono::milliseconds(timeout_ms < 0 ? 0 : timeout_ms));
    return nereid::ok();
  }));
}

void nereid_shutdown(nereid_executor* executor) {
  nereid_error_free(guarded([&] {
    executor->executor->shutdown();
    return nereid::ok();
  }));
}

bool nereid_can_enqueue(const nereid_executor* executor) {
  return executor->executor->can_enqueue();
}

char* nereid_stats_json(const nereid_executor* executor) {
  return text_of([&] { return nereid::capi::to_json(executor->executor->stats()); });
}

char* nereid_iteration_stats_json(nereid_executor* executor) {
  return text_of([&] {
    return array_of(executor->executor->latest_iteration_stats(),
                    [](const nereid::IterationStats& s) { return nereid::to_json(s); });
  });
}

char* nereid_request_stats_json(nereid_executor* executor) {
  return text_of([&] {
    return array_of(executor->executor->latest_request_stats(),
                    [](const nereid::RequestStatsPerIteration& s) { return nereid::to_json(s); });
  });
}

char* nereid_kv_cache_events_json(nereid_executor* executor) {
  return text_of([&] {
    return array_of(executor->executor->kv_cache_events(),
                    [](const nereid::KvCacheEvent& e) { return nereid::capi::to_json(e); });
  });
}

void nereid_string_free(char* text) { std::free(text); }

int32_t nereid_vocab_size(const nereid_executor* executor) {
  return executor->executor->vocab_size();
}

int32_t nereid_embedding_width(const nereid_executor* executor) {
  return executor->executor->embedding_width();
}

int32_t nereid_max_sequence_length(const nereid_executor* executor) {
  return executor->executor->max_sequence_length();
}

size_t nereid_default_end_ids(const nereid_executor* executor, int32_t* ids, size_t room) {
  size_t count = 0;
  nereid_error_free(guarded([&] {
    const auto all = executor->executor->default_end_ids();
    count = all.size();
    if (ids) std::copy_n(all.begin(), std::min(count, room), ids);
    return nereid::ok();
  }));
  return count;
}
