#include "front/testing/fake_triton.h"

#include <chrono>
#include <functional>
#include <thread>

#include "base/testing/source_dir.h"
#include "front/testing/fake_metadata.h"
#include "front/testing/fake_objects.h"
#include "nereid/server.h"

using nereid::front::FakeTriton;
using nereid::front::kLlmMetadata;
using nereid::front::kPictureInputs;
using nereid::front::kSpeechInputs;
using nereid::front::kTypesMetadata;

namespace nereid::front {

FakeTriton& FakeTriton::get() {
  static FakeTriton fake;
  return fake;
}

void FakeTriton::reset() {
  std::lock_guard lock(mutex);
  script.clear();
  metrics.clear();
  usage.clear();
  fail_after = -1;
  hear = nullptr;
  picture_patch_width = 0;
  num_heard = num_hearing = 0;
  most_hearing = INT_MAX;
  ready = true;
  max_tokens_now = INT_MAX;
  max_seq_len = 64;
  embedding_size = 3;
  max_pooled = INT_MAX;
  num_refused = refusals_awaited = 0;
  queue_full = false;
  types_is_decoupled = hold_types = false;
  num_cancelled = 0;
  num_sent = 0;
  tokenizer_dir = source_dir() + "/models/quickstart";
  tokenizer_hash.clear();
  lora_load_dir.clear();
  engine_name = "tensorrt_llm";
  has_encoder = false;
  lacked_inputs.clear();
}

TRITONSERVER_Server* fake_server() {
  static int anything = 0;
  return reinterpret_cast<TRITONSERVER_Server*>(&anything);
}

}  // namespace nereid::front

namespace {

// The configuration of a model.
std::string config_text(std::string_view name) {
  const FakeTriton& fake = FakeTriton::get();
  return R"({"name":"x",)" +
         std::string(name == fake.engine_name ? R"("backend":"tensorrtllm",)" : "") +
         R"("model_transaction_policy":{"decoupled":true},"parameters":{"max_seq_len":)"
         R"({"string_value":")" +
         std::to_string(fake.max_seq_len) + R"("},"num_mel_bins":{"string_value":")" +
         (fake.hear ? "80" : "0") + R"("},"encoder_positions":{"string_value":")" +
         (fake.has_encoder || fake.hear ? "1500" : "0") +
         R"("},"max_beam_width":{"string_value":"5"},"embedding_size":{"string_value":")" +
         std::to_string(fake.embedding_size) + R"("},"picture_patch_width":{"string_value":")" +
         std::to_string(fake.picture_patch_width) +
         R"("},"picture_merge":{"string_value":"1"},"picture_max_patches":{"string_value":"64"},)" +
         R"("tokenizer_dir":{"string_value":")" + fake.tokenizer_dir +
         R"("},"lora_load_dir":{"string_value":")" + fake.lora_load_dir +
         R"("},"tokenizer_hash":{"string_value":")" + fake.tokenizer_hash + R"("}}})";
}

TRITONSERVER_Error* check_model(const char* name, int64_t version) {
  const std::string n = name;
  if (n != FakeTriton::get().engine_name && n != "preprocessing" && n != "types") {
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
  FakeTriton& fake = FakeTriton::get();
  ++fake.num_asking_live;
  while (fake.hold_live) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  --fake.num_asking_live;
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
  std::string text = std::string(name) == "types" ? kTypesMetadata : kLlmMetadata;
  if (FakeTriton::get().hear && name == FakeTriton::get().engine_name)
    text.replace(text.find("\"inputs\":["), 10, kSpeechInputs);
  if (FakeTriton::get().picture_patch_width > 0 && name == FakeTriton::get().engine_name)
    text.replace(text.find("\"inputs\":["), 10, kPictureInputs);
  for (const std::string& input : FakeTriton::get().lacked_inputs) {
    const size_t begin = text.find("{\"name\":\"" + input + "\"");
    text.erase(begin, text.find('\n', begin) + 1 - begin);
  }
  *out = new TRITONSERVER_Message{text};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerModelConfig(TRITONSERVER_Server*, const char* name,
                                                   int64_t version, uint32_t,
                                                   TRITONSERVER_Message** out) {
  if (TRITONSERVER_Error* error = check_model(name, version)) return error;
  ++FakeTriton::get().num_configs_read;
  *out = new TRITONSERVER_Message{config_text(name)};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ServerModelTransactionProperties(TRITONSERVER_Server*,
                                                                  const char* name, int64_t version,
                                                                  uint32_t* flags, void**) {
  const FakeTriton& fake = FakeTriton::get();
  const bool is_decoupled =
      name == fake.engine_name || (std::string(name) == "types" && fake.types_is_decoupled);
  *flags = is_decoupled ? TRITONSERVER_TXN_DECOUPLED : TRITONSERVER_TXN_ONE_TO_ONE;
  return check_model(name, version);
}
// A test loads a model by changing its configuration.
TRITONSERVER_Error* NEREID_ServerHoldMemory(uint64_t) { return nullptr; }
void NEREID_ServerReleaseMemory(uint64_t) {}

void NEREID_ServerSetTenant(TRITONSERVER_InferenceRequest*, uint64_t tenant) {
  FakeTriton::get().last_tenant = tenant;
}

uint64_t NEREID_ServerModelChanges(TRITONSERVER_Server*) {
  const FakeTriton& fake = FakeTriton::get();
  return std::hash<std::string>()(fake.engine_name + config_text(fake.engine_name)) + fake.ready;
}
TRITONSERVER_Error* TRITONSERVER_ServerModelIndex(TRITONSERVER_Server*, uint32_t,
                                                  TRITONSERVER_Message** out) {
  *out = new TRITONSERVER_Message{R"([{"name":"preprocessing"},{"name":")" +
                                  FakeTriton::get().engine_name + R"("}])"};
  return nullptr;
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

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorSetQueryFunction(
    TRITONSERVER_ResponseAllocator* allocator, TRITONSERVER_ResponseAllocatorQueryFn_t query) {
  allocator->query = query;
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
// The fake has neither sequences nor execution on the caller's thread.
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
