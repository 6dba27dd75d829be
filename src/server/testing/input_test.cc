// Input and output buffers between client and backend: data for host policies, buffer attributes,
// and the allocator's functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "server/testing/client.h"
#include "server/testing/probe.h"

namespace nereid::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Values = std::vector<int32_t>;
using Handle = std::array<char, 64>;

std::string probe_model(const std::string& more = "") {
  return "backend: \"nereid_probe\"\n"
         "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
         "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n" +
         more;
}

class Buffers : public testing::Test {
 protected:
  Buffers() { probe() = {}; }
  ~Buffers() override { probe() = {}; }

  static void append(TestCall& call, const Values& values, const char* policy) {
    const Outcome added(TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
        call.request(), "IN", values.data(), values.size() * sizeof(int32_t),
        TRITONSERVER_MEMORY_CPU, 0, policy));
    EXPECT_TRUE(added.ok()) << added.text;
  }

  // The input's data for a policy; null: without a policy.
  static Values read(TRITONBACKEND_Request* request, const char* policy) {
    TRITONBACKEND_Input* input = nullptr;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestInput(request, "IN", &input));
    uint64_t total = 0;
    uint32_t count = 0;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_InputPropertiesForHostPolicy(
        input, policy, nullptr, nullptr, nullptr, nullptr, &total, &count));
    Values out;
    for (uint32_t i = 0; i < count; ++i) {
      const void* base = nullptr;
      uint64_t size = 0;
      TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_GPU;
      int64_t id = 1;
      TRITONSERVER_ErrorDelete(
          TRITONBACKEND_InputBufferForHostPolicy(input, policy, i, &base, &size, &type, &id));
      EXPECT_EQ(type, TRITONSERVER_MEMORY_CPU);
      const auto* values = static_cast<const int32_t*>(base);
      out.insert(out.end(), values, values + size / sizeof(int32_t));
    }
    EXPECT_EQ(total, out.size() * sizeof(int32_t));
    return out;
  }
};

TEST_F(Buffers, HostPoliciesHaveTheirOwnData) {
  TestServer server({{"m", probe_model()}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  Values near, far, plain;
  probe().request = [&](auto*, TRITONBACKEND_Request* request) {
    near = read(request, "near");
    far = read(request, "far");
    plain = read(request, nullptr);
  };
  const Values first = {5}, second = {6, 7};
  TestCall call(server.get(), "m", {1, 2, 3});
  append(call, first, "near");
  append(call, second, "near");
  ASSERT_TRUE(call.send().ok() && call.wait());
  EXPECT_THAT(near, ElementsAre(5, 6, 7));
  EXPECT_THAT(far, ElementsAre(1, 2, 3))
      << "what names no policy is for all that have nothing else";
  EXPECT_THAT(plain, ElementsAre(1, 2, 3));

  const Values whole = {7, 8, 9};
  TestCall only(server.get(), "m", {1, 2, 3});
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestRemoveAllInputData(only.request(), "IN"));
  append(only, whole, "near");
  ASSERT_TRUE(only.send().ok() && only.wait());
  EXPECT_THAT(near, ElementsAre(7, 8, 9));
  EXPECT_THAT(far, IsEmpty());
}

TEST_F(Buffers, HostPolicyDataIsChecked) {
  TestServer server({{"m", probe_model()}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  const Values one = {5};
  TestCall call(server.get(), "m", {1, 2});
  append(call, one, "near");
  const Outcome sent = call.send();
  EXPECT_EQ(sent.code, TRITONSERVER_ERROR_INVALID_ARG);
  EXPECT_THAT(sent.text, HasSubstr("host policy 'near'"));
  EXPECT_THAT(sent.text, HasSubstr("Expected 8, got 4"));
  const Outcome unknown(TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
      call.request(), "nope", one.data(), 4, TRITONSERVER_MEMORY_CPU, 0, "near"));
  EXPECT_THAT(unknown.text, HasSubstr("input 'nope' does not exist in request"));
  // All data is removed, that for policies too.
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestRemoveAllInputData(call.request(), "IN"));
  EXPECT_THAT(call.send().text, HasSubstr("Expected 8, got 0"));
}

Handle handle_of(TRITONSERVER_BufferAttributes* attributes) {
  void* bytes = nullptr;
  TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesCudaIpcHandle(attributes, &bytes));
  Handle out{};
  if (bytes != nullptr) std::memcpy(out.data(), bytes, out.size());
  return out;
}

TEST_F(Buffers, InputsKeepTheirAttributes) {
  TestServer server({{"m", probe_model()}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  Handle handle, seen{};
  handle.fill('h');
  size_t size = 0;
  probe().request = [&](auto*, TRITONBACKEND_Request* request) {
    TRITONBACKEND_Input* input = nullptr;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestInput(request, "IN", &input));
    const void* base = nullptr;
    TRITONSERVER_BufferAttributes* attributes = nullptr;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_InputBufferAttributes(input, 0, &base, &attributes));
    seen = handle_of(attributes);
    TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesByteSize(attributes, &size));
    const Outcome outside(TRITONBACKEND_InputBufferAttributes(input, 1, &base, &attributes));
    EXPECT_EQ(outside.code, TRITONSERVER_ERROR_INVALID_ARG);
  };
  const Values values = {4, 5};
  TestCall call(server.get(), "m", {0, 0});
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestRemoveAllInputData(call.request(), "IN"));
  TRITONSERVER_BufferAttributes* attributes = nullptr;
  TRITONSERVER_BufferAttributesNew(&attributes);
  TRITONSERVER_BufferAttributesSetByteSize(attributes, values.size() * sizeof(int32_t));
  TRITONSERVER_BufferAttributesSetMemoryType(attributes, TRITONSERVER_MEMORY_CPU);
  TRITONSERVER_BufferAttributesSetMemoryTypeId(attributes, 0);
  TRITONSERVER_BufferAttributesSetCudaIpcHandle(attributes, handle.data());
  const Outcome added(TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
      call.request(), "IN", values.data(), attributes));
  TRITONSERVER_BufferAttributesDelete(attributes);
  ASSERT_TRUE(added.ok()) << added.text;
  ASSERT_TRUE(call.send().ok() && call.wait());
  EXPECT_EQ(seen, handle);
  EXPECT_EQ(size, 8u);
}

// An allocator with an IPC handle for its buffers, or an error for the query.
struct KnowingAllocator {
  Handle handle;
  bool fails = false;
  int num_asked = 0, num_held = 0;
  TRITONSERVER_ResponseAllocator* get = nullptr;

  KnowingAllocator() {
    handle.fill('o');
    TRITONSERVER_ResponseAllocatorNew(&get, alloc, release, nullptr);
    TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(get, attributes);
    TRITONSERVER_ResponseAllocatorSetQueryFunction(get, query);
  }
  ~KnowingAllocator() { TRITONSERVER_ResponseAllocatorDelete(get); }

  static TRITONSERVER_Error* alloc(TRITONSERVER_ResponseAllocator*, const char*, size_t size,
                                   TRITONSERVER_MemoryType, int64_t, void* self, void** buffer,
                                   void** buffer_userp, TRITONSERVER_MemoryType* type,
                                   int64_t* id) {
    *buffer = std::malloc(size);
    *buffer_userp = self;
    *type = TRITONSERVER_MEMORY_CPU_PINNED;
    *id = 3;
    ++static_cast<KnowingAllocator*>(self)->num_held;
    return nullptr;
  }
  static TRITONSERVER_Error* release(TRITONSERVER_ResponseAllocator*, void* buffer,
                                     void* buffer_userp, size_t, TRITONSERVER_MemoryType, int64_t) {
    std::free(buffer);
    --static_cast<KnowingAllocator*>(buffer_userp)->num_held;
    return nullptr;
  }
  static TRITONSERVER_Error* attributes(TRITONSERVER_ResponseAllocator*, const char* name,
                                        TRITONSERVER_BufferAttributes* attributes, void* userp,
                                        void* buffer_userp) {
    auto* self = static_cast<KnowingAllocator*>(userp);
    EXPECT_EQ(userp, buffer_userp);
    EXPECT_STREQ(name, "OUT");
    ++self->num_asked;
    TRITONSERVER_BufferAttributesSetCudaIpcHandle(attributes, self->handle.data());
    return self->fails ? TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "no handle") : nullptr;
  }
  static TRITONSERVER_Error* query(TRITONSERVER_ResponseAllocator*, void*, const char* name,
                                   size_t* byte_size, TRITONSERVER_MemoryType* type, int64_t* id) {
    EXPECT_STREQ(name, "OUT");
    *byte_size *= 2;
    *type = TRITONSERVER_MEMORY_CPU_PINNED;
    *id = 4;
    return nullptr;
  }
};

// Only the backend can decide whether a null buffer is an error.
TEST_F(Buffers, AnAllocatorMayGiveNoneOrThrow) {
  TestServer server({{"m", probe_model()}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  TRITONSERVER_ResponseAllocator* none = nullptr;
  TRITONSERVER_ResponseAllocatorNew(
      &none,
      [](TRITONSERVER_ResponseAllocator*, const char*, size_t, TRITONSERVER_MemoryType, int64_t,
         void* userp, void** buffer, void**, TRITONSERVER_MemoryType*,
         int64_t*) -> TRITONSERVER_Error* {
        const auto& what = *static_cast<const std::string*>(userp);
        if (what == "memory") throw std::bad_alloc();
        if (!what.empty()) throw std::runtime_error(what);
        *buffer = nullptr;
        return nullptr;
      },
      [](TRITONSERVER_ResponseAllocator*, void*, void*, size_t, TRITONSERVER_MemoryType,
         int64_t) -> TRITONSERVER_Error* { return nullptr; },
      nullptr);
  std::string failure = "not asked";
  void* buffer = &failure;
  probe().response = [&](TRITONBACKEND_Response* response) {
    TRITONBACKEND_Output* output = nullptr;
    const int64_t shape[] = {2};
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, shape, 1));
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    failure = Outcome(TRITONBACKEND_OutputBuffer(output, &buffer, 8, &type, &id)).text;
  };
  const auto ask = [&](std::string thrown) {
    TestCall call(server.get(), "m", {1});
    call.use_allocator(none, &thrown);
    EXPECT_TRUE(call.send().ok() && call.wait());
    return failure;
  };
  EXPECT_EQ(ask(""), "");
  EXPECT_EQ(buffer, nullptr);
  // An exception of a callback does not leave the C API.
  EXPECT_EQ(ask("no room"), "no room");
  EXPECT_EQ(ask("memory"), "out of memory");
  TRITONSERVER_ResponseAllocatorDelete(none);
}

TEST_F(Buffers, AllocatorsCompleteTheAttributesOfOutputs) {
  TestServer server({{"m", probe_model()}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  KnowingAllocator allocator;
  Handle seen{};
  std::string failure;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  probe().response = [&](TRITONBACKEND_Response* response) {
    const int64_t shape[] = {1};
    TRITONBACKEND_Output* output = nullptr;
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_INT32, shape, 1));
    void* buffer = nullptr;
    TRITONSERVER_MemoryType wanted = TRITONSERVER_MEMORY_CPU;
    int64_t wanted_id = 0;
    failure = Outcome(TRITONBACKEND_OutputBuffer(output, &buffer, 4, &wanted, &wanted_id)).text;
    TRITONSERVER_BufferAttributes* attributes = nullptr;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_OutputBufferAttributes(output, &attributes));
    seen = handle_of(attributes);
    TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesMemoryType(attributes, &type));
    TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesMemoryTypeId(attributes, &id));
  };
  TestCall call(server.get(), "m", {1});
  call.use_allocator(allocator.get, &allocator);
  ASSERT_TRUE(call.send().ok() && call.wait());
  EXPECT_EQ(failure, "");
  EXPECT_EQ(seen, allocator.handle);
  EXPECT_EQ(type, TRITONSERVER_MEMORY_CPU_PINNED);
  EXPECT_EQ(id, 3);
  EXPECT_EQ(allocator.num_asked, 1);
  allocator.fails = true;
  TestCall failing(server.get(), "m", {1});
  failing.use_allocator(allocator.get, &allocator);
  ASSERT_TRUE(failing.send().ok() && failing.wait());
  EXPECT_EQ(failure, "no handle");
  EXPECT_EQ(allocator.num_held, 0) << "the buffer goes back all the same";
}

TEST_F(Buffers, BackendsMayAskWhereAnOutputWillBe) {
  TestServer server({{"m", probe_model()}});
  ASSERT_TRUE(server.started().ok()) << server.started().text;
  size_t size = 0;
  Outcome asked(nullptr);
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  probe().request = [&](auto*, TRITONBACKEND_Request* request) {
    size = 6;
    asked = Outcome(TRITONBACKEND_RequestOutputBufferProperties(request, "OUT", &size, &type, &id));
  };
  KnowingAllocator allocator;
  TestCall call(server.get(), "m", {1});
  call.use_allocator(allocator.get, &allocator);
  ASSERT_TRUE(call.send().ok() && call.wait());
  EXPECT_TRUE(asked.ok()) << asked.text;
  EXPECT_EQ(size, 12u);
  EXPECT_EQ(type, TRITONSERVER_MEMORY_CPU_PINNED);
  EXPECT_EQ(id, 4);
  TestCall other(server.get(), "m", {1});
  ASSERT_TRUE(other.send().ok() && other.wait());
  EXPECT_EQ(asked.code, TRITONSERVER_ERROR_UNAVAILABLE) << "an allocator without a query function";
}

}  // namespace
}  // namespace nereid::server
