// Requests that the tensorrt_llm model refuses by name.
#include "backend/testing/backend_fixture.h"

namespace nereid::backend {
namespace {

// Declares inputs that the template leaves out.
void declare_more(const fs::path& dir) {
  const fs::path llm = dir / "tensorrt_llm";
  fs::remove_all(dir / "ensemble");  // its types differ
  const std::string first = "input [\n";
  edit_config(llm, first, first + R"(
  { name: "multimodal_embedding" data_type: TYPE_FP16 dims: [ -1, -1 ] optional: true },
  { name: "multimodal_hashes" data_type: TYPE_INT32 dims: [ -1, -1 ] optional: true },
  { name: "multimodal_positions" data_type: TYPE_INT32 dims: [ -1 ] optional: true },
  { name: "multimodal_lengths" data_type: TYPE_INT32 dims: [ -1 ] optional: true },
  { name: "return_kv_cache_reuse_stats" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
)");
  edit_config(llm, "\"early_stopping\" data_type: TYPE_BOOL",
              "\"early_stopping\" data_type: TYPE_INT32");
  const std::string lengths = "{ name: \"input_lengths\" data_type: TYPE_INT32 dims: [ 1 ]";
  edit_config(llm, lengths, lengths + " optional: true");
}

class RefusalTest : public BackendTest {
 protected:
  static void SetUpTestSuite() {
    start(server_, dir_,
          {{"encoder_input_features_data_type", "TYPE_FP16"}, {"max_beam_width", "2"}},
          declare_more);
  }

  static std::vector<Output> valid() {
    return {make_output("input_ids", {1, 3}, Ids{5, 6, 7}), int_input("input_lengths", 3),
            int_input("request_output_len", 2)};
  }
  static Conversation with(std::vector<Output> more) {
    for (auto& input : valid()) more.push_back(std::move(input));
    return Talk(server_, "tensorrt_llm", std::move(more)).wait();
  }
};

Output bytes_input(const char* name, TRITONSERVER_DataType type, Shape shape, char fill = '\1') {
  size_t size = TRITONSERVER_DataTypeByteSize(type);
  for (const int64_t d : shape) size *= static_cast<size_t>(d);
  return {name, type, std::move(shape), std::string(size, fill)};
}

// Every input of refusals.cc, with the type that the templates declare.
std::vector<Output> refused_inputs(char fill) {
  constexpr auto kInt = TRITONSERVER_TYPE_INT32;
  constexpr auto kLong = TRITONSERVER_TYPE_UINT64;
  constexpr auto kFloat = TRITONSERVER_TYPE_FP32;
  constexpr auto kHalf = TRITONSERVER_TYPE_FP16;
  constexpr auto kBool = TRITONSERVER_TYPE_BOOL;
  return {bytes_input("encoder_input_features", kHalf, {1, 4, 8}, fill),
          bytes_input("encoder_output_lengths", kInt, {1, 1}, fill),
          bytes_input("cross_attention_mask", kBool, {1, 3, 2}, fill),
          bytes_input("skip_cross_attn_blocks", kBool, {1, 1}, fill),
          bytes_input("multimodal_embedding", kHalf, {1, 2, 8}, fill),
          bytes_input("multimodal_hashes", kInt, {1, 1, 8}, fill),
          bytes_input("multimodal_positions", kInt, {1, 2}, fill),
          bytes_input("multimodal_lengths", kInt, {1, 2}, fill),
          bytes_input("mrope_rotary_cos_sin", kFloat, {1, 16}, fill),
          bytes_input("mrope_position_deltas", TRITONSERVER_TYPE_INT64, {1, 1}, fill),
          bytes_input("lora_task_id", kLong, {1, 1}, fill),
          bytes_input("lora_weights", kHalf, {1, 2, 8}, fill),
          bytes_input("lora_config", kInt, {1, 2, 3}, fill),
          bytes_input("context_phase_params", TRITONSERVER_TYPE_UINT8, {1, 4}, fill)};
}

TEST_F(RefusalTest, EveryInputOfLaterReleasesIsNamed) {
  for (const Output& input : refused_inputs('\1')) {
    const auto got = with({input});
    EXPECT_THAT(message(got.status),
                testing::StartsWith(fmt::format("input '{}' is not supported", input.name)));
    EXPECT_EQ(got.status.code(), absl::StatusCode::kUnimplemented) << input.name;
  }
}

TEST_F(RefusalTest, OneThatSaysNoIsAccepted) {
  for (Output& input : refused_inputs('\0')) {
    const bool is_single = input.bytes.size() == TRITONSERVER_DataTypeByteSize(input.datatype) ||
                           input.datatype == TRITONSERVER_TYPE_BYTES;
    if (!is_single) continue;
    EXPECT_TRUE(with({input}).status.ok()) << input.name;
  }
}

TEST_F(RefusalTest, EncodersAreNamedWithoutTokens) {
  const auto error = [](std::vector<Output> inputs) {
    inputs.push_back(int_input("request_output_len", 2));
    return std::string(message(Talk(server_, "tensorrt_llm", std::move(inputs)).wait().status));
  };
  EXPECT_EQ(
      error({bytes_input("encoder_input_features", TRITONSERVER_TYPE_FP16, {1, 4, 8})}),
      "input 'encoder_input_features' is not supported: the model has no encoder of features");
  EXPECT_EQ(error({}), "input_ids or encoder_input_features is not present in the request.");
}

struct RawResult {
  std::mutex mutex;
  std::condition_variable changed;
  std::string error;
  bool is_final = false, is_released = false;
  void set(const std::function<void()>& change) {
    std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  }
};

// An allocator of CPU memory by malloc().
TRITONSERVER_ResponseAllocator* plain_allocator() {
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
  TRITONSERVER_ResponseAllocatorNew(
      &allocator,
      [](TRITONSERVER_ResponseAllocator*, const char*, size_t size, TRITONSERVER_MemoryType,
         int64_t, void*, void** buffer, void**, TRITONSERVER_MemoryType* type,
         int64_t* id) -> TRITONSERVER_Error* {
        *buffer = size == 0 ? nullptr : std::malloc(size);
        *type = TRITONSERVER_MEMORY_CPU;
        *id = 0;
        return nullptr;
      },
      [](TRITONSERVER_ResponseAllocator*, void* buffer, void*, size_t, TRITONSERVER_MemoryType,
         int64_t) -> TRITONSERVER_Error* {
        std::free(buffer);
        return nullptr;
      },
      nullptr);
  return allocator;
}

// The error of a request that InferCall cannot make: with a string parameter, or a list of outputs.
std::string raw_error(TRITONSERVER_Server* server, const std::vector<Output>& inputs,
                      const char* parameter, const char* output) {
  TRITONSERVER_InferenceRequest* request = nullptr;
  EXPECT_TRUE(take(TRITONSERVER_InferenceRequestNew(&request, server, "tensorrt_llm", -1)).ok());
  for (const auto& input : inputs) {
    TRITONSERVER_InferenceRequestAddInput(request, input.name.c_str(), input.datatype,
                                          input.shape.data(), input.shape.size());
    TRITONSERVER_InferenceRequestAppendInputData(request, input.name.c_str(), input.bytes.data(),
                                                 input.bytes.size(), TRITONSERVER_MEMORY_CPU, 0);
  }
  if (parameter != nullptr) {
    TRITONSERVER_InferenceRequestSetStringParameter(request, "request_type", parameter);
  }
  if (output != nullptr) TRITONSERVER_InferenceRequestAddRequestedOutput(request, output);
  RawResult result;
  TRITONSERVER_ResponseAllocator* const allocator = plain_allocator();
  TRITONSERVER_InferenceRequestSetReleaseCallback(
      request,
      [](TRITONSERVER_InferenceRequest*, const uint32_t, void* p) {
        auto* r = static_cast<RawResult*>(p);
        r->set([&] { r->is_released = true; });
      },
      &result);
  TRITONSERVER_InferenceRequestSetResponseCallback(
      request, allocator, nullptr,
      [](TRITONSERVER_InferenceResponse* response, const uint32_t flags, void* p) {
        auto* r = static_cast<RawResult*>(p);
        std::string error;
        if (response != nullptr) {
          error = message(take(TRITONSERVER_InferenceResponseError(response)));
          TRITONSERVER_InferenceResponseDelete(response);
        }
        r->set([&] {
          r->error += error;
          r->is_final = r->is_final || (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
        });
      },
      &result);
  EXPECT_TRUE(take(TRITONSERVER_ServerInferAsync(server, request, nullptr)).ok());
  {
    std::unique_lock lock(result.mutex);
    EXPECT_TRUE(result.changed.wait_for(lock, std::chrono::seconds(60),
                                        [&] { return result.is_final && result.is_released; }));
  }
  TRITONSERVER_InferenceRequestDelete(request);
  TRITONSERVER_ResponseAllocatorDelete(allocator);
  return result.error;
}

TEST_F(RefusalTest, HalvesOfDisaggregatedServing) {
  for (const char* type : {"context_only", "generation_only"}) {
    EXPECT_EQ(raw_error(server_, valid(), type, nullptr),
              fmt::format("request_type '{}' is not supported, only context_and_generation", type));
  }
  for (const char* type : {"context_and_generation", "something_else"}) {
    EXPECT_EQ(raw_error(server_, valid(), type, nullptr), "");
  }
}

TEST_F(RefusalTest, ListsOfOutputsNeedTheTokens) {
  EXPECT_THAT(raw_error(server_, valid(), nullptr, "sequence_length"),
              HasSubstr("output_ids tensor must be present in list of output tensors"));
  EXPECT_THAT(raw_error(server_, valid(), nullptr, "output_ids"),
              HasSubstr("sequence_length tensor must be present in list of output tensors"));
}

// Wording that scripts for the replaced backend search for.
TEST_F(RefusalTest, KnownWords) {
  const auto error = [](std::vector<Output> inputs) {
    return std::string(message(Talk(server_, "tensorrt_llm", std::move(inputs)).wait().status));
  };
  const auto length = int_input("request_output_len", 2);
  EXPECT_THAT(error({make_output("input_ids", {1, 0}, Ids{}), length}),
              HasSubstr("!mInputTokenIds.empty()"));
  EXPECT_THAT(error({make_output("input_ids", {1, 1}, Ids{5}), int_input("request_output_len", 0)}),
              HasSubstr("mMaxNewTokens > 0"));
  EXPECT_THAT(error({make_output("input_ids", {1, 2048}, Ids(2048, 5)), length}),
              HasSubstr("Prompt length (2048) exceeds maximum input length (2047)"));
  EXPECT_THAT(error({make_output("input_ids", {2, 1}, Ids{5, 6}),
                     make_output("request_output_len", {2, 1}, Ids{2, 2})}),
              HasSubstr("input lengths tensor not provided"));
}

TEST_F(RefusalTest, EarlyStoppingAsNumber) {
  const auto beams = [](int32_t early) {
    const auto got = with({int_input("beam_width", 2), int_input("early_stopping", early)});
    return got.status.ok() ? "" : std::string(message(got.status));
  };
  for (const int32_t value : {0, 1, 2}) EXPECT_EQ(beams(value), "") << value;
  EXPECT_THAT(beams(-1), HasSubstr("input 'early_stopping' is -1"));
}

TEST_F(RefusalTest, OldNameOfThePerfMetrics) {
  const auto got = with({bool_input("return_kv_cache_reuse_stats", true)});
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(elements<int32_t>(got.outputs.at(0), "kv_cache_alloc_total_blocks").size(), 1u);
  EXPECT_TRUE(elements<int32_t>(with({}).outputs.at(0), "kv_cache_alloc_total_blocks").empty());
}

// A separate server: requests cancelled by a refusal leave the queue a little later.
class FullQueueTest : public BackendTest {
 protected:
  static void SetUpTestSuite() {
    start(server_, dir_,
          {{"max_queue_size", "1"}, {"max_batch_size", "2"}, {"max_beam_width", "2"}});
  }
};

TEST_F(FullQueueTest, IsToldInBothWordings) {
  const Ids each(4, 1);
  const auto got = Talk(server_, "tensorrt_llm",
                        {make_output("input_ids", {4, 1}, Ids{5, 6, 7, 8}),
                         make_output("input_lengths", {4, 1}, each),
                         make_output("request_output_len", {4, 1}, Ids(4, 1000)),
                         make_output("end_id", {4, 1}, Ids(4, -1)),
                         make_output("beam_width", {4, 1}, Ids(4, 2))})
                       .wait();
  EXPECT_THAT(std::string(message(got.status)), HasSubstr("Maximum queue size of 1 has been"));
  EXPECT_THAT(std::string(message(got.status)), HasSubstr("Exceeds maximum queue size"));
  EXPECT_EQ(got.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(got.num_finals, 1);
}

}  // namespace
}  // namespace nereid::backend
