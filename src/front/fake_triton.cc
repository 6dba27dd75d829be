#include "front/fake_triton.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <thread>
#include <variant>

#include "front/fake_metadata.h"

using nereid::front::FakeTriton;
using nereid::front::kLlmMetadata;
using nereid::front::kTypesMetadata;

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  std::string message;
};
struct TRITONSERVER_Message {
  std::string text;
};
struct TRITONSERVER_Metrics {
  std::string text;
};
struct TRITONSERVER_ResponseAllocator {
  TRITONSERVER_ResponseAllocatorAllocFn_t alloc;
  TRITONSERVER_ResponseAllocatorReleaseFn_t release;
};

namespace {

struct FakeTensor {
  std::string name;
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;
  std::string bytes;
  void* buffer = nullptr;
  void* userp = nullptr;
};
using Value = std::variant<std::string, int64_t, bool, double>;

TRITONSERVER_Error* fail(TRITONSERVER_Error_Code code, std::string text) {
  return new TRITONSERVER_Error{code, std::move(text)};
}

}  // namespace

struct TRITONSERVER_InferenceRequest {
  std::string model;
  std::string id;
  std::vector<FakeTensor> inputs;
  std::map<std::string, Value> parameters;
  TRITONSERVER_InferenceRequestReleaseFn_t release = nullptr;
  void* release_userp = nullptr;
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
  void* allocator_userp = nullptr;
  TRITONSERVER_InferenceResponseCompleteFn_t respond = nullptr;
  void* respond_userp = nullptr;
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
};

struct TRITONSERVER_InferenceResponse {
  std::string model;
  std::string id;
  TRITONSERVER_Error* error = nullptr;
  std::vector<std::pair<std::string, Value>> parameters;
  std::vector<FakeTensor> outputs;
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
};

namespace nereid::front {

FakeTriton& FakeTriton::get() {
  static FakeTriton fake;
  return fake;
}

void FakeTriton::reset() {
  std::lock_guard lock(mutex);
  script.clear();
  metrics.clear();
  fail_after = -1;
  ready = true;
  max_tokens_now = INT_MAX;
  max_seq_len = 64;
  queue_full = false;
  num_cancelled = 0;
  num_sent = 0;
}

TRITONSERVER_Server* fake_server() {
  static int anything = 0;
  return reinterpret_cast<TRITONSERVER_Server*>(&anything);
}

}  // namespace nereid::front

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

// Everything a running request needs after its object may be gone.
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

// What a request asks of the scripted engine.
struct LlmRequest {
  std::vector<int32_t> script;
  int32_t max_tokens = 0, end_id = -1, num_sequences = 1, beam_width = 1, num_top = 0;
  bool log_probs = false;
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

// Sequence s starts s tokens into the script; all advance together.
void run_llm(Job job, const LlmRequest& r) {
  std::vector<std::string> ended(static_cast<size_t>(r.num_sequences));
  const auto send = [&](int32_t s, std::vector<FakeTensor> outputs, bool final) {
    if (r.num_sequences > 1) outputs.push_back(ids_tensor("sequence_index", {1, 1}, {s}));
    std::vector<std::pair<std::string, Value>> parameters;
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
    for (int32_t s = 0; s < r.num_sequences; ++s) {
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

void run_types(Job job, std::vector<FakeTensor> inputs, int64_t replies, int64_t code) {
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

TRITONSERVER_Error* check_model(const char* name, int64_t version) {
  const std::string n = name;
  if (n != "tensorrt_llm" && n != "preprocessing" && n != "types") {
    return fail(TRITONSERVER_ERROR_NOT_FOUND,
                "Request for unknown model: '" + n + "' is not found");
  }
  if (version > 1) {
    return fail(TRITONSERVER_ERROR_NOT_FOUND, "Request for unknown model: '" + n + "' version " +
                                                  std::to_string(version) + " is not found");
  }
  if (!FakeTriton::get().ready) {
    return fail(TRITONSERVER_ERROR_UNAVAILABLE,
                "Request for unknown model: '" + n + "' version 1 is not at ready state");
  }
  return nullptr;
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* msg) {
  return fail(code, msg);
}
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) { delete error; }
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) { return error->code; }
const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return error->message.c_str(); }

const char* TRITONSERVER_DataTypeString(TRITONSERVER_DataType type) {
  static const char* const kNames[] = {"<invalid>", "BOOL", "UINT8", "UINT16", "UINT32",
                                       "UINT64",    "INT8", "INT16", "INT32",  "INT64",
                                       "FP16",      "FP32", "FP64",  "BYTES",  "BF16"};
  return kNames[type];
}
TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char* name) {
  for (int i = 1; i <= 14; ++i) {
    const auto type = static_cast<TRITONSERVER_DataType>(i);
    if (std::string(name) == TRITONSERVER_DataTypeString(type)) return type;
  }
  return TRITONSERVER_TYPE_INVALID;
}
uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType type) {
  static const uint32_t kSizes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 0, 2};
  return kSizes[type];
}

TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  delete message;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message,
                                                        const char** base, size_t* size) {
  *base = message->text.data();
  *size = message->text.size();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerIsLive(TRITONSERVER_Server*, bool* live) {
  *live = true;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerIsReady(TRITONSERVER_Server*, bool* ready) {
  *ready = FakeTriton::get().ready;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerModelIsReady(TRITONSERVER_Server*, const char* name,
                                                    int64_t version, bool* ready) {
  TRITONSERVER_Error* error = check_model(name, version);
  *ready = error == nullptr;
  return error;
}
TRITONSERVER_Error* TRITONSERVER_ServerMetadata(TRITONSERVER_Server*, TRITONSERVER_Message** out) {
  *out = new TRITONSERVER_Message{R"({"name":"triton","version":"2.51.0","extensions":[]})"};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerModelMetadata(TRITONSERVER_Server*, const char* name,
                                                     int64_t version, TRITONSERVER_Message** out) {
  if (TRITONSERVER_Error* error = check_model(name, version)) return error;
  *out = new TRITONSERVER_Message{std::string(name) == "types" ? kTypesMetadata : kLlmMetadata};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerModelConfig(TRITONSERVER_Server*, const char* name,
                                                   int64_t version, uint32_t,
                                                   TRITONSERVER_Message** out) {
  if (TRITONSERVER_Error* error = check_model(name, version)) return error;
  *out = new TRITONSERVER_Message{
      R"({"name":"x","model_transaction_policy":{"decoupled":true},"parameters":{"max_seq_len":)"
      R"({"string_value":")" +
      std::to_string(FakeTriton::get().max_seq_len) + R"("},"tokenizer_dir":{"string_value":")" +
      FakeTriton::get().tokenizer_dir + R"("}}})"};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerModelTransactionProperties(TRITONSERVER_Server*,
                                                                  const char* name, int64_t version,
                                                                  uint32_t* flags, void**) {
  *flags = std::string(name) == "tensorrt_llm" ? TRITONSERVER_TXN_DECOUPLED
                                               : TRITONSERVER_TXN_ONE_TO_ONE;
  return check_model(name, version);
}
TRITONSERVER_Error* TRITONSERVER_ServerMetrics(TRITONSERVER_Server*, TRITONSERVER_Metrics** out) {
  *out = new TRITONSERVER_Metrics{"# HELP nv_fake x\n# TYPE nv_fake gauge\nnv_fake 1\n" +
                                  FakeTriton::get().metrics};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MetricsFormatted(TRITONSERVER_Metrics* metrics,
                                                  TRITONSERVER_MetricFormat, const char** base,
                                                  size_t* size) {
  *base = metrics->text.data();
  *size = metrics->text.size();
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MetricsDelete(TRITONSERVER_Metrics* metrics) {
  delete metrics;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorNew(
    TRITONSERVER_ResponseAllocator** out, TRITONSERVER_ResponseAllocatorAllocFn_t alloc,
    TRITONSERVER_ResponseAllocatorReleaseFn_t release, TRITONSERVER_ResponseAllocatorStartFn_t) {
  *out = new TRITONSERVER_ResponseAllocator{alloc, release};
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest** out,
                                                     TRITONSERVER_Server*, const char* model,
                                                     const int64_t version) {
  if (TRITONSERVER_Error* error = check_model(model, version)) return error;
  *out = new TRITONSERVER_InferenceRequest();
  (*out)->model = model;
  ++FakeTriton::get().num_live;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest* request) {
  delete request;
  --FakeTriton::get().num_live;
  return nullptr;
}
// Sequences are not part of the fake, nor running on the caller's thread.
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetFlags(TRITONSERVER_InferenceRequest*,
                                                          uint32_t) {
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetId(TRITONSERVER_InferenceRequest* request,
                                                       const char* id) {
  request->id = id;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest* request,
                                                          const char* name,
                                                          const TRITONSERVER_DataType type,
                                                          const int64_t* shape,
                                                          uint64_t dim_count) {
  request->inputs.push_back({name, type, {shape, shape + dim_count}, {}});
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputData(
    TRITONSERVER_InferenceRequest* request, const char*, const void* base, size_t size,
    TRITONSERVER_MemoryType, int64_t) {
  request->inputs.back().bytes.append(static_cast<const char*>(base), size);
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRequestedOutput(TRITONSERVER_InferenceRequest*,
                                                                    const char*) {
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetStringParameter(
    TRITONSERVER_InferenceRequest* request, const char* key, const char* value) {
  request->parameters[key] = std::string(value);
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetIntParameter(
    TRITONSERVER_InferenceRequest* request, const char* key, const int64_t value) {
  request->parameters[key] = value;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetBoolParameter(
    TRITONSERVER_InferenceRequest* request, const char* key, const bool value) {
  request->parameters[key] = value;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetDoubleParameter(
    TRITONSERVER_InferenceRequest* request, const char* key, const double value) {
  request->parameters[key] = value;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest* request, TRITONSERVER_InferenceRequestReleaseFn_t fn,
    void* userp) {
  request->release = fn;
  request->release_userp = userp;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest* request, TRITONSERVER_ResponseAllocator* allocator,
    void* allocator_userp, TRITONSERVER_InferenceResponseCompleteFn_t fn, void* userp) {
  request->allocator = allocator;
  request->allocator_userp = allocator_userp;
  request->respond = fn;
  request->respond_userp = userp;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceRequestCancel(TRITONSERVER_InferenceRequest* request) {
  if (!request->cancelled->exchange(true)) ++FakeTriton::get().num_cancelled;
  return nullptr;
}

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
  if (request->model == "tensorrt_llm") {
    const FakeTensor* ids = find(request->inputs, "input_ids");
    fake.last_prompt.assign(ids->bytes.size() / 4, 0);
    std::memcpy(fake.last_prompt.data(), ids->bytes.data(), ids->bytes.size());
    fake.last_bytes.clear();
    for (const FakeTensor& t : request->inputs) fake.last_bytes[t.name] = t.bytes;
    LlmRequest r{fake.script};
    r.max_tokens = int_input(*request, "request_output_len", 1);
    r.end_id = int_input(*request, "end_id", -1);
    r.num_sequences = int_input(*request, "num_return_sequences", 1);
    r.beam_width = int_input(*request, "beam_width", 1);
    r.num_top = int_input(*request, "num_top_log_probs", 0);
    r.log_probs = find(request->inputs, "return_log_probs") != nullptr;
    r.fail_after = fake.fail_after;
    std::thread(r.beam_width > 1 ? run_beams : run_llm, job, r).detach();
  } else {
    std::thread(run_types, job, request->inputs, int_parameter(*request, "replies", 1),
                int_parameter(*request, "fail", -1))
        .detach();
  }
  request->release(request, TRITONSERVER_REQUEST_RELEASE_ALL, request->release_userp);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse* response) {
  for (FakeTensor& t : response->outputs) {
    response->allocator->release(response->allocator, t.buffer, t.userp, t.bytes.size(),
                                 TRITONSERVER_MEMORY_CPU, 0);
  }
  delete response->error;
  delete response;
  --FakeTriton::get().num_responses;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse* response) {
  return response->error == nullptr ? nullptr : new TRITONSERVER_Error(*response->error);
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseModel(TRITONSERVER_InferenceResponse* response,
                                                        const char** name, int64_t* version) {
  *name = response->model.c_str();
  *version = 1;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseId(TRITONSERVER_InferenceResponse* response,
                                                     const char** id) {
  *id = response->id.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameterCount(
    TRITONSERVER_InferenceResponse* response, uint32_t* count) {
  *count = static_cast<uint32_t>(response->parameters.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameter(
    TRITONSERVER_InferenceResponse* response, const uint32_t index, const char** name,
    TRITONSERVER_ParameterType* type, const void** value) {
  const auto& [key, v] = response->parameters[index];
  *name = key.c_str();
  if (const auto* text = std::get_if<std::string>(&v)) {
    *type = TRITONSERVER_PARAMETER_STRING;
    *value = text->c_str();
  } else {
    *type = TRITONSERVER_PARAMETER_INT;
    *value = std::get_if<int64_t>(&v);
  }
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputCount(
    TRITONSERVER_InferenceResponse* response, uint32_t* count) {
  *count = static_cast<uint32_t>(response->outputs.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutput(TRITONSERVER_InferenceResponse* response,
                                                         const uint32_t index, const char** name,
                                                         TRITONSERVER_DataType* type,
                                                         const int64_t** shape, uint64_t* dim_count,
                                                         const void** base, size_t* byte_size,
                                                         TRITONSERVER_MemoryType* memory_type,
                                                         int64_t* memory_type_id, void** userp) {
  const FakeTensor& t = response->outputs[index];
  *name = t.name.c_str();
  *type = t.type;
  *shape = t.shape.data();
  *dim_count = t.shape.size();
  *base = t.buffer;
  *byte_size = t.bytes.size();
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  *userp = t.userp;
  return nullptr;
}

}  // extern "C"
