// The fake's scripted models; see fake_triton.h.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <sstream>
#include <thread>

#include "front/testing/fake_objects.h"
#include "front/testing/fake_triton.h"

using nereid::front::FakeTriton;
using nereid::front::HeardTokens;

namespace {

const FakeTensor* find(const std::vector<FakeTensor>& tensors, const std::string& name) {
  for (const FakeTensor& t : tensors) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

int32_t int_input(const TRITONSERVER_InferenceRequest& r, const std::string& name, int32_t other) {
  const FakeTensor* t = find(r.inputs, name);
  if (t == nullptr) return other;
  std::memcpy(&other, t->bytes.data(), sizeof other);
  return other;
}

// State of a running request, which may outlive its object.
struct Job {
  explicit Job(const TRITONSERVER_InferenceRequest& r)
      : model(r.model),
        id(r.id),
        allocator(r.allocator),
        allocator_userp(r.allocator_userp),
        respond(r.respond),
        userp(r.respond_userp),
        cancelled(r.cancelled) {}
  std::string model, id;
  TRITONSERVER_ResponseAllocator* allocator;
  void* allocator_userp;
  TRITONSERVER_InferenceResponseCompleteFn_t respond;
  void* userp;
  std::shared_ptr<std::atomic<bool>> cancelled;

  void send(std::vector<FakeTensor> outputs, bool final, TRITONSERVER_Error* error = nullptr,
            std::vector<std::pair<std::string, Value>> parameters = {}) {
    auto* response =
        new TRITONSERVER_InferenceResponse{model, id, error, std::move(parameters), {}, allocator};
    ++FakeTriton::get().num_responses;
    for (FakeTensor& t : outputs) {
      TRITONSERVER_MemoryType type;
      int64_t type_id;
      allocator->alloc(allocator, t.name.c_str(), t.bytes.size(), TRITONSERVER_MEMORY_CPU, 0,
                       allocator_userp, &t.buffer, &t.userp, &type, &type_id);
      std::memcpy(t.buffer, t.bytes.data(), t.bytes.size());
      response->outputs.push_back(std::move(t));
    }
    respond(response, final ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, userp);
    ++FakeTriton::get().num_sent;
  }
};

FakeTensor ids_tensor(const char* name, std::vector<int64_t> shape, std::vector<int32_t> values) {
  return {name, TRITONSERVER_TYPE_INT32, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4)};
}

template <class T>
FakeTensor values_tensor(const char* name, TRITONSERVER_DataType type, std::vector<int64_t> shape,
                         const std::vector<T>& values) {
  return {name, type, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

// The inputs of a request to the scripted engine.
struct LlmRequest {
  std::vector<int32_t> script;
  int32_t max_tokens = 0, end_id = -1, num_sequences = 1, beam_width = 1, num_top = 0;
  int32_t num_prompt = 0, num_prompt_top = -1;  // -1: no log-probabilities of the prompt
  bool log_probs = false;
  std::vector<std::pair<std::string, int64_t>> usage = {};
  int fail_after = -1;
};

// Token i has the log-probability -i; token 5 is the likeliest everywhere with -0.5, then 6, ....
void add_scores(const LlmRequest& r, int32_t num_so_far, std::vector<FakeTensor>& outputs) {
  if (!r.log_probs) return;
  std::vector<float> scores;
  for (int32_t i = 0; i < num_so_far; ++i) scores.push_back(-static_cast<float>(i));
  outputs.push_back(
      values_tensor("output_log_probs", TRITONSERVER_TYPE_FP32, {1, 1, num_so_far}, scores));
  if (r.num_top == 0) return;
  std::vector<float> tops;
  std::vector<int32_t> ids;
  for (int32_t k = 0; k < r.num_top; ++k) {
    tops.push_back(-0.5f - static_cast<float>(k));
    ids.push_back(5 + k);
  }
  outputs.push_back(
      values_tensor("top_log_probs", TRITONSERVER_TYPE_FP32, {1, 1, 1, r.num_top}, tops));
  outputs.push_back(ids_tensor("top_log_prob_ids", {1, 1, 1, r.num_top}, ids));
}

// Token i of the prompt has the log-probability -10 i and the rank i; the likeliest are as above.
void add_prompt_scores(const LlmRequest& r, std::vector<FakeTensor>& outputs) {
  if (r.num_prompt_top < 0) return;
  std::vector<float> scores, tops;
  std::vector<int32_t> ranks, ids;
  for (int32_t i = 1; i < r.num_prompt; ++i) {
    scores.push_back(-10.0f * static_cast<float>(i));
    ranks.push_back(i);
    for (int32_t k = 0; k < r.num_prompt_top; ++k) {
      tops.push_back(-0.5f - static_cast<float>(k));
      ids.push_back(5 + k);
    }
  }
  const int64_t count = r.num_prompt - 1;
  outputs.push_back(values_tensor("prompt_log_probs", TRITONSERVER_TYPE_FP32, {1, count}, scores));
  outputs.push_back(ids_tensor("prompt_log_prob_ranks", {1, count}, ranks));
  if (r.num_prompt_top == 0) return;
  const std::vector<int64_t> shape = {1, count, r.num_prompt_top};
  outputs.push_back(values_tensor("prompt_top_log_probs", TRITONSERVER_TYPE_FP32, shape, tops));
  outputs.push_back(ids_tensor("prompt_top_log_prob_ids", shape, ids));
}

// Sequence s starts s tokens into the script; all advance together, the last one first.
void run_llm(Job job, const LlmRequest& r) {
  std::vector<std::string> ended(static_cast<size_t>(r.num_sequences));
  const auto send = [&](int32_t s, std::vector<FakeTensor> outputs, bool final) {
    if (r.num_sequences > 1) outputs.push_back(ids_tensor("sequence_index", {1, 1}, {s}));
    std::vector<std::pair<std::string, Value>> parameters(r.usage.begin(), r.usage.end());
    const std::string& reason = ended[static_cast<size_t>(s)];
    if (!reason.empty()) parameters.emplace_back("nereid_finish_reason", reason);
    job.send(std::move(outputs), final, nullptr, std::move(parameters));
  };
  const auto end = [&](int32_t s, const char* reason) {
    ended[static_cast<size_t>(s)] = reason;
    const bool final = std::none_of(ended.begin(), ended.end(), [](auto& e) { return e.empty(); });
    send(s, {ids_tensor("output_ids", {1, 1, 0}, {}), ids_tensor("sequence_length", {1, 1}, {0})},
         final);
  };
  for (int32_t i = 0; i <= r.max_tokens; ++i) {
    while (i >= FakeTriton::get().max_tokens_now && !*job.cancelled)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (i == r.fail_after) {
      job.send({}, true, fail(TRITONSERVER_ERROR_INTERNAL, "engine failed"));
      return;
    }
    for (int32_t s = r.num_sequences - 1; s >= 0; --s) {
      if (!ended[static_cast<size_t>(s)].empty()) continue;
      const size_t at = static_cast<size_t>(i + s);
      const int32_t token = r.script.empty() ? r.end_id : r.script[at % r.script.size()];
      if (*job.cancelled) {
        end(s, "cancelled");
      } else if (i == r.max_tokens) {
        end(s, "length");
      } else if (token == r.end_id) {
        end(s, "end_id");
      } else {
        std::vector<FakeTensor> outputs = {ids_tensor("output_ids", {1, 1, 1}, {token}),
                                           ids_tensor("sequence_length", {1, 1}, {1})};
        add_scores(r, i + 1, outputs);
        if (s == 0 && i == 0) add_prompt_scores(r, outputs);
        send(s, std::move(outputs), false);
      }
    }
    if (std::none_of(ended.begin(), ended.end(), [](auto& e) { return e.empty(); })) return;
  }
}

// Beam b is the script without its first b tokens, all in one response.
void run_beams(Job job, const LlmRequest& r) {
  const auto width = static_cast<int64_t>(r.script.size());
  std::vector<int32_t> ids, lengths;
  std::string reasons;
  for (int32_t b = 0; b < r.num_sequences; ++b) {
    std::vector<int32_t> row(r.script.begin() + b, r.script.end());
    lengths.push_back(static_cast<int32_t>(row.size()));
    row.resize(r.script.size(), -1);
    ids.insert(ids.end(), row.begin(), row.end());
    reasons += b == 0 ? "length" : ",end_id";
  }
  job.send({ids_tensor("output_ids", {1, r.num_sequences, width}, ids),
            ids_tensor("sequence_length", {1, r.num_sequences}, lengths)},
           true, nullptr, {{"nereid_finish_reason", reasons}});
}

void run_pooled(Job job, const std::vector<int32_t>& ids, bool is_mean, const LlmRequest& r) {
  FakeTriton& fake = FakeTriton::get();
  while (fake.num_refused < fake.refusals_awaited && !*job.cancelled)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::vector<float> values = {static_cast<float>(std::accumulate(ids.begin(), ids.end(), 0)),
                                     static_cast<float>(ids.size()), is_mean ? 1.0f : 0.0f};
  --fake.num_pooled;
  if (*job.cancelled) return job.send({}, true, fail(TRITONSERVER_ERROR_CANCELLED, "cancelled"));
  job.send({values_tensor("embedding", TRITONSERVER_TYPE_FP32, {1, 3}, values)}, true, nullptr,
           {r.usage.begin(), r.usage.end()});
}

void run_speech(Job job, const FakeTriton::Inputs& inputs) {
  FakeTriton& fake = FakeTriton::get();
  while (fake.hold_types && !*job.cancelled)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const bool is_cancelled = *job.cancelled;
  const auto heard = is_cancelled ? HeardTokens() : fake.hear(inputs);
  --fake.num_hearing;
  if (is_cancelled) return job.send({}, true, fail(TRITONSERVER_ERROR_CANCELLED, "cancelled"));
  if (heard.fails) return job.send({}, true, fail(TRITONSERVER_ERROR_INTERNAL, "engine failed"));
  const auto size = static_cast<int64_t>(heard.tokens.size());
  const auto scored = static_cast<int64_t>(heard.log_probs.size());
  std::vector<FakeTensor> outputs = {
      ids_tensor("output_ids", {1, 1, size}, heard.tokens),
      ids_tensor("sequence_length", {1, 1}, {static_cast<int32_t>(size)})};
  if (heard.attention.empty()) {
    outputs.push_back(
        values_tensor("output_log_probs", TRITONSERVER_TYPE_FP32, {1, 1, scored}, heard.log_probs));
    if (heard.sum != 0)
      outputs.push_back(
          values_tensor("cum_log_probs", TRITONSERVER_TYPE_FP32, {1, 1}, std::vector{heard.sum}));
  } else {
    outputs.push_back(
        values_tensor("prompt_log_probs", TRITONSERVER_TYPE_FP32, {1, scored}, heard.log_probs));
    outputs.push_back(values_tensor("alignment_scores", TRITONSERVER_TYPE_FP32,
                                    heard.attention_shape, heard.attention));
  }
  job.send(std::move(outputs), true, nullptr, {{"nereid_finish_reason", std::string("end_id")}});
}

void run_types(Job job, std::vector<FakeTensor> inputs, int64_t replies, int64_t code, bool waits) {
  while (waits && FakeTriton::get().hold_types && !*job.cancelled)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (code >= 0) {
    job.send({}, true, fail(static_cast<TRITONSERVER_Error_Code>(code), "asked to fail"));
    return;
  }
  for (int64_t i = 0; i < replies; ++i) {
    std::vector<FakeTensor> outputs;
    for (const FakeTensor& t : inputs) {
      outputs.push_back({"OUT_" + t.name, t.type, t.shape, t.bytes});
    }
    job.send(std::move(outputs), false, nullptr, {{"index", i}});
  }
  job.respond(nullptr, TRITONSERVER_RESPONSE_COMPLETE_FINAL, job.userp);
}

int64_t int_parameter(const TRITONSERVER_InferenceRequest& r, const std::string& key,
                      int64_t other) {
  const auto it = r.parameters.find(key);
  const auto* value = it == r.parameters.end() ? nullptr : std::get_if<int64_t>(&it->second);
  return value ? *value : other;
}

std::string describe_inputs(const TRITONSERVER_InferenceRequest& r) {
  std::vector<std::string> names;
  for (const FakeTensor& t : r.inputs) {
    std::ostringstream out;
    out << t.name << "[";
    for (size_t i = 0; i < t.shape.size(); ++i) out << (i ? "," : "") << t.shape[i];
    out << "]";
    names.push_back(out.str());
  }
  std::sort(names.begin(), names.end());
  std::string out;
  for (const std::string& n : names) out += (out.empty() ? "" : " ") + n;
  return out;
}

}  // namespace

TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(TRITONSERVER_Server*,
                                                  TRITONSERVER_InferenceRequest* request,
                                                  TRITONSERVER_InferenceTrace*) {
  FakeTriton& fake = FakeTriton::get();
  if (fake.queue_full) {
    return fail(TRITONSERVER_ERROR_UNAVAILABLE, "Exceeds maximum queue size");
  }
  const Job job(*request);
  std::lock_guard lock(fake.mutex);
  fake.last_inputs = describe_inputs(*request);
  if (request->model == FakeTriton::get().engine_name && fake.hear) {
    fake.last_bytes.clear();
    for (const FakeTensor& t : request->inputs) fake.last_bytes[t.name] = t.bytes;
    ++fake.num_heard;
    if (++fake.num_hearing > fake.most_hearing) {
      --fake.num_hearing, ++fake.num_refused;
      return fail(TRITONSERVER_ERROR_UNAVAILABLE, "Exceeds maximum queue size");
    }
    std::thread(run_speech, job, fake.last_bytes).detach();
  } else if (request->model == FakeTriton::get().engine_name) {
    const FakeTensor* ids = find(request->inputs, "input_ids");
    fake.last_prompt.assign(ids->bytes.size() / 4, 0);
    std::memcpy(fake.last_prompt.data(), ids->bytes.data(), ids->bytes.size());
    fake.last_bytes.clear();
    for (const FakeTensor& t : request->inputs) fake.last_bytes[t.name] = t.bytes;
    LlmRequest r{fake.script};
    r.max_tokens = int_input(*request, "request_output_len", 1);
    r.end_id = int_input(*request, "end_id", -1);
    r.beam_width = int_input(*request, "beam_width", 1);
    r.num_sequences = int_input(*request, "num_return_sequences", r.beam_width);
    r.num_top = int_input(*request, "num_top_log_probs", 0);
    r.num_prompt = static_cast<int32_t>(fake.last_prompt.size());
    r.num_prompt_top = int_input(*request, "num_prompt_log_probs", -1);
    r.log_probs = find(request->inputs, "return_log_probs") != nullptr;
    r.fail_after = fake.fail_after;
    const auto wants_usage = request->parameters.find("nereid_usage");
    if (wants_usage != request->parameters.end() && wants_usage->second == Value(true))
      r.usage = fake.usage;
    if (const FakeTensor* pooling = find(request->inputs, "pooling")) {
      if (++fake.num_pooled > fake.max_pooled) {
        --fake.num_pooled, ++fake.num_refused;
        return fail(TRITONSERVER_ERROR_UNAVAILABLE, "Exceeds maximum queue size");
      }
      std::thread(run_pooled, job, fake.last_prompt, pooling->bytes.ends_with("mean"), r).detach();
    } else {
      std::thread(r.beam_width > 1 ? run_beams : run_llm, job, r).detach();
    }
  } else {
    std::thread(run_types, job, request->inputs, int_parameter(*request, "replies", 1),
                int_parameter(*request, "fail", -1), int_parameter(*request, "waits", 0) > 0)
        .detach();
  }
  request->release(request, TRITONSERVER_REQUEST_RELEASE_ALL, request->release_userp);
  return nullptr;
}
