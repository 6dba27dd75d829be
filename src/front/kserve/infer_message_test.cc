// Infer bodies: every source of data, every mistake, and replies in JSON, bytes and classes.
#include "front/kserve/infer_message.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/json.h"
#include "front/bridge/classify.h"
#include "front/kserve/json_body.h"
#include "nereid/server.h"

namespace nereid::front {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

StatusOr<InferRequest> parse(const std::string& json, const std::string& blobs = "",
                             const SharedMemory& regions = {}) {
  return parse_infer_request(std::make_shared<const std::string>(json + blobs),
                             blobs.empty() ? std::optional<size_t>() : json.size(), "m", regions);
}

std::string error(const std::string& json, const std::string& blobs = "") {
  const auto request = parse(json, blobs);
  return request.ok() ? "" : std::string(message(request.status()));
}

std::string input(const std::string& more, const std::string& type = "INT32",
                  const std::string& shape = "[1,2]") {
  return R"({"inputs":[{"name":"IN","shape":)" + shape + R"(,"datatype":")" + type + "\"," + more +
         "}]}";
}

TEST(InferRequest, ReadsJsonData) {
  const auto request = parse(input(R"("data":[[1],[2]])"));
  ASSERT_TRUE(request.ok()) << request.status();
  const Tensor& in = request->spec.inputs.at(0);
  EXPECT_THAT(in.shape, ElementsAre(1, 2));
  EXPECT_EQ(in.bytes, std::string("\1\0\0\0\2\0\0\0", 8));
}

// NaN and infinities as in replies; all other JSON is strict.
TEST(InferRequest, TheTreeOfABodyIsNotCopied) {
  struct Counted : boost::json::memory_resource {
    void* do_allocate(size_t size, size_t) override {
      allocated += size;
      return ::operator new(size);
    }
    void do_deallocate(void* at, size_t, size_t) override { ::operator delete(at); }
    bool do_is_equal(const memory_resource& other) const noexcept override {
      return this == &other;
    }
    size_t allocated = 0;
  };
  const std::string body = R"({"text":")" + std::string(1 << 20, 'x') + "\"}";
  Counted alone, as_body;
  EXPECT_TRUE(parse_json_once(body, 100, &alone).ok());
  EXPECT_TRUE(parse_json_body(body, &as_body).ok());
  EXPECT_EQ(as_body.allocated, alone.allocated);
}

TEST(InferRequest, NumbersThatAreNotFinite) {
  const auto request = parse(input(R"("data":[NaN, Infinity,[-Infinity, 1.5]])", "FP32", "[4]"));
  ASSERT_TRUE(request.ok()) << request.status();
  float values[4];
  const std::string& bytes = request->spec.inputs.at(0).bytes;
  ASSERT_EQ(bytes.size(), sizeof values);
  std::memcpy(values, bytes.data(), sizeof values);
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(values[2], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(values[3], 1.5f);
  EXPECT_TRUE(parse(input(R"("data":["NaN \\\" NaN","Infinity"])", "BYTES")).ok());
  EXPECT_THAT(error(input(R"("data":[NaN,1])")),
              HasSubstr("input 'IN' takes integers (INT32), got NaN or Infinity"));
  EXPECT_THAT(error(input(R"("data":[NaN,"x"])", "BYTES")), HasSubstr("got NaN or Infinity"));
  for (const char* bad : {"[nan,1]", "[-NaN,1]", "[Inf,1]", "[1NaN,1]", "[NaNNaN,1]", "[NaN,1]]"}) {
    EXPECT_THAT(error(input(std::string("\"data\":") + bad, "FP32")),
                HasSubstr("failed to parse the request JSON buffer"))
        << bad;
  }
  EXPECT_THAT(error(R"({"id":"a","id":"b","inputs":[NaN]})"), HasSubstr("'id' is given twice"));
}

TEST(InferRequest, CountsAreLimited) {
  const auto many = [](const char* key, const std::string& item, int count) {
    std::string out = fmt::format(R"({{"inputs":[],"{}":)", key);
    out = std::string(key) == "inputs" ? R"({"inputs":)" : out;
    for (int i = 0; i < count; ++i) {
      out += (i == 0 ? "[" : ",") + fmt::format(fmt::runtime(item), i);
    }
    return out + "]}";
  };
  const std::string in = R"({{"name":"i{}","shape":[0],"datatype":"INT32","data":[]}})";
  EXPECT_TRUE(parse(many("inputs", in, 4096)).ok());
  EXPECT_EQ(error(many("inputs", in, 4097)),
            "the request has 4097 inputs, at most 4096 are allowed");
  const std::string out = R"({{"name":"o{}"}})";
  EXPECT_EQ(parse(many("outputs", out, 4096))->spec.requested_outputs.size(), 4096u);
  EXPECT_EQ(error(many("outputs", out, 4097)),
            "the request has 4097 outputs, at most 4096 are allowed");
  std::string parameters = R"({"inputs":[],"parameters":{"p":1)";
  for (int i = 1; i <= 1024; ++i) parameters += fmt::format(R"(,"p{}":1)", i);
  EXPECT_EQ(error(parameters + "}}"), "the request has 1025 parameters, at most 1024 are allowed");
}

TEST(InferRequest, ReadsParameters) {
  const auto request = parse(
      R"({"id":"7","inputs":[],"parameters":{"sequence_id":"s","sequence_start":true,"priority":2,)"
      R"("timeout":9,"binary_data_output":true,"x":1,"y":"z","w":1.5}})");
  ASSERT_TRUE(request.ok()) << request.status();
  const InferenceSpec& spec = request->spec;
  EXPECT_EQ(spec.id, "7");
  EXPECT_EQ(std::get<std::string>(spec.correlation_id), "s");
  EXPECT_EQ(spec.flags, TRITONSERVER_REQUEST_FLAG_SEQUENCE_START);
  EXPECT_EQ(spec.priority, 2u);
  EXPECT_EQ(spec.timeout_us, 9u);
  EXPECT_TRUE(request->binary_by_default);
  EXPECT_EQ(spec.parameters.size(), 3u);
  const auto listed =
      parse(R"({"inputs":[],"parameters":{"binary_data_output":true},"outputs":[{"name":"o"}]})");
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_FALSE(listed->binary_by_default);
}

TEST(InferRequest, CutsBinaryDataFromTheBody) {
  const std::string eight = std::string(8, 'x');
  const auto request = parse(input(R"("parameters":{"binary_data_size":8})"), eight);
  ASSERT_TRUE(request.ok()) << request.status();
  const ExternalMemory& memory = request->spec.input_memory.at("IN");
  EXPECT_EQ(std::string(memory.base, memory.size), eight);
  EXPECT_EQ(error(input(R"("parameters":{"binary_data_size":12})"), eight),
            "unexpected size for input 'IN', expecting 4 additional bytes for model 'm'");
  EXPECT_EQ(error(input(R"("parameters":{"binary_data_size":4})"), eight),
            "unexpected additional input data for model 'm'");
  EXPECT_THAT(error(input(R"("parameters":{"binary_data_size":7})", "BYTES"),
                    std::string("\x09\0\0\0abc", 7)),
              HasSubstr("expecting string of length 9 but only 3 bytes available"));
}

TEST(InferRequest, NamesMistakes) {
  EXPECT_THAT(error("{"), HasSubstr("line 1, column"));
  EXPECT_THAT(error("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(error("{}"), HasSubstr("'inputs'"));
  EXPECT_THAT(error(input(R"("x":1)")), HasSubstr("But no field is set"));
  EXPECT_THAT(error(input(R"("data":[1,2],"parameters":{"binary_data_size":8})")),
              HasSubstr("But set 'data' 'binary_data_size'"));
  EXPECT_EQ(error(input(R"("data":[1])")),
            "Unable to parse 'data': Shape does not match true shape of 'data' field");
  EXPECT_THAT(error(input(R"("data":[1,3000000000])")), HasSubstr("2147483647"));
  EXPECT_THAT(error(input(R"("data":["1",2])")), HasSubstr("integers"));
  EXPECT_THAT(error(input(R"("data":[1,2])", "INT33")), HasSubstr("invalid datatype for input IN"));
  EXPECT_THAT(error(input(R"("data":[1,2])", "FP16")), HasSubstr("receiving FP16 data via JSON"));
  EXPECT_THAT(error(input(R"("data":[1,2])", "INT32", "[-1,2]")), HasSubstr("'shape'"));
  EXPECT_THAT(error(R"({"inputs":[],"parameters":{"triton_x":1}})"), HasSubstr("reserved"));
  EXPECT_THAT(error(R"({"inputs":[],"parameters":{"x":[1]}})"), HasSubstr("invalid type"));
  EXPECT_THAT(error(R"({"inputs":[],"outputs":[{"name":"O","parameters":{"classification":-1}}]})"),
              HasSubstr("'classification'"));
}

TEST(InferRequest, UsesSharedMemoryWithinItsBounds) {
  const std::string key = "/nereid-test-" + std::to_string(getpid());
  const int fd = shm_open(key.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  ASSERT_EQ(pwrite(fd, "abcdefgh", 8, 4100), 8);
  close(fd);
  SharedMemory regions;
  ASSERT_TRUE(regions.add("r", key, 4100, 100).ok());
  shm_unlink(key.c_str());
  EXPECT_EQ(regions.add("r", key, 0, 1).code(), absl::StatusCode::kAlreadyExists);
  const auto with = [&](const std::string& region, int offset, int size) {
    return parse(input(fmt::format(R"("parameters":{{"shared_memory_region":"{}",)"
                                   R"("shared_memory_offset":{},"shared_memory_byte_size":{}}})",
                                   region, offset, size)),
                 "", regions);
  };
  auto good = with("r", 2, 4);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_THAT(message(regions.remove("r")), HasSubstr("'r', it is currently in use"));
  EXPECT_THAT(message(regions.remove_all()), HasSubstr("memory regions: r ,"));
  EXPECT_EQ(std::string(good->spec.input_memory.at("IN").base, 4), "cdef");
  good = absl::UnknownError("the request is over");
  EXPECT_TRUE(regions.remove("r").ok());
  EXPECT_EQ(with("r", 2, 4).status().code(), absl::StatusCode::kNotFound);
}

// The owner of the object may truncate it at any time.
TEST(SharedMemory, AnObjectThatShrinksIsAnError) {
  const std::string key = fmt::format("/nereid-test-{}", ::getpid());
  const int fd = shm_open(key.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, 100000), 0);
  SharedMemory regions;
  ASSERT_TRUE(regions.add("r", key, 0, 100000).ok());
  auto memory = regions.find("r", 50000, 50000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  memory->base[0] = 'x';
  ASSERT_EQ(ftruncate(fd, 100), 0);
  EXPECT_FALSE(memory->is_lost->load());
  EXPECT_EQ(memory->base[49999], 0);  // no SIGBUS
  EXPECT_TRUE(memory->is_lost->load());
  memory->base[49999] = 'y';
  EXPECT_THAT(std::string(message(regions.find("r", 0, 1).status())),
              HasSubstr("'r': its object '" + key + "' has become smaller"));
  memory = absl::UnknownError("the request is over");
  EXPECT_TRUE(regions.remove("r").ok());
  EXPECT_TRUE(regions.add("r", key, 0, 100).ok());
  EXPECT_TRUE(regions.find("r", 0, 100).ok());
  close(fd);
  shm_unlink(key.c_str());
}

TEST(SharedMemory, OtherBusErrorsEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const int fd = static_cast<int>(memfd_create("file", 0));
        const int shared = static_cast<int>(memfd_create("region", 0));
        if (ftruncate(fd, 4096) != 0 || ftruncate(shared, 4096) != 0) std::exit(3);
        const auto region = GuardedRegion::map(shared, 0, 4096);
        auto* file = static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0));
        if (ftruncate(fd, 0) != 0) std::exit(4);
        std::exit(file[0]);
      },
      // AddressSanitizer reports the signal and exits with 1.
      [](int status) {
        return WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS : WEXITSTATUS(status) == 1;
      },
      "");
}

TEST(SharedMemory, RefusesWhatDoesNotFit) {
  const std::string key = "/nereid-test2-" + std::to_string(getpid());
  const int fd = shm_open(key.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, 64), 0);
  close(fd);
  SharedMemory regions;
  EXPECT_THAT(std::string(regions.add("r", key, 0, 65).message()),
              HasSubstr("invalid args: 65 bytes"));
  EXPECT_FALSE(regions.add("r", key, 1, 64).ok());
  EXPECT_FALSE(regions.add("r", key, UINT64_MAX, 64).ok());
  EXPECT_FALSE(regions.add("r", key, 0, 0).ok());
  EXPECT_FALSE(regions.add("r", "/no_such_segment", 0, 1).ok());
  EXPECT_FALSE(regions.add("r", "/../etc/passwd", 0, 1).ok());
  ASSERT_TRUE(regions.add("r", key, 0, 64).ok());
  EXPECT_TRUE(regions.find("r", 60, 4).ok());
  EXPECT_THAT(std::string(regions.find("r", 65, 0).status().message()),
              HasSubstr("Invalid offset for"));
  EXPECT_THAT(std::string(regions.find("r", 60, 5).status().message()),
              HasSubstr("Invalid offset + byte size"));
  EXPECT_FALSE(regions.find("r", 1, UINT64_MAX).ok());
  shm_unlink(key.c_str());
}

InferenceReply reply_with(std::vector<Tensor> outputs) {
  InferenceReply reply;
  reply.model_name = "m";
  reply.model_version = 1;
  reply.outputs = std::move(outputs);
  return reply;
}

// The whole body, made in parts of `size` bytes.
std::string body_of(const InferenceReply& reply, const InferRequest& request,
                    size_t size = kWhole) {
  auto text = InferReplyText::create(reply, request);
  EXPECT_TRUE(text.ok()) << text.status();
  std::string out, part;
  for (bool has_more = true; has_more; out += part) {
    part.clear();
    has_more = text->append_until(size, part);
  }
  return out;
}

TEST(InferReply, JsonAndBytes) {
  const InferenceReply reply =
      reply_with({make_tensor<int32_t>("A", {1, 2}, {3, 4}), make_tensor<int32_t>("B", {1}, {5})});
  InferRequest request;
  EXPECT_EQ(
      body_of(reply, request),
      R"({"model_name":"m","model_version":"1","outputs":[{"name":"A","datatype":"INT32",)"
      R"("shape":[1,2],"data":[3,4]},{"name":"B","datatype":"INT32","shape":[1],"data":[5]}]})");
  request.binary["B"] = true;
  const auto mixed = InferReplyText::create(reply, request);
  EXPECT_TRUE(mixed->has_binary());
  const std::string body = body_of(reply, request);
  EXPECT_EQ(body.substr(mixed->json_size()), std::string("\5\0\0\0", 4));
  EXPECT_THAT(body, HasSubstr(R"("parameters":{"binary_data_size":4})"));
  for (const size_t size : {1, 7, 100}) EXPECT_EQ(body_of(reply, request, size), body);
}

TEST(InferReply, Classes) {
  Tensor scores = make_tensor<float>("A", {1, 4}, {0.1f, 0.9f, 0.5f, 0.2f});
  scores.labels = {"cat", "dog"};
  InferRequest request;
  request.classifications["A"] = 2;
  EXPECT_THAT(
      body_of(reply_with({scores}), request),
      HasSubstr(R"("datatype":"BYTES","shape":[1,2],"data":["0.900000:1:dog","0.500000:2"])"));
  request.classifications["A"] = 99;
  EXPECT_THAT(body_of(reply_with({scores}), request), HasSubstr("[1,4]"));
  Tensor text{"A", TRITONSERVER_TYPE_BYTES, {1}, {}};
  append_string_element(text.bytes, "x");
  EXPECT_FALSE(InferReplyText::create(reply_with({text}), request).ok());
}

// A number of eight bytes may become a text of three hundred.
TEST(InferReply, ClassesCountInWhatTheServerHolds) {
  static std::atomic<uint64_t> used{0}, most{0};
  const auto hold = [](void*, uint64_t size) -> TRITONSERVER_Error* {
    if (used + size > most) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no room");
    used += size;
    return nullptr;
  };
  NEREID_ServerCountMemory(
      hold, [](void*, uint64_t size) { used -= size; }, nullptr);
  constexpr int64_t kMany = 20000;
  Tensor scores{"A", TRITONSERVER_TYPE_FP64, {kMany}, {}};
  const double large = 1e300;
  for (int64_t i = 0; i < kMany; ++i)
    scores.bytes.append(reinterpret_cast<const char*>(&large), sizeof large);
  most = 6 << 20;
  const auto refused = classify(scores, kMany, false);
  EXPECT_EQ(refused.status(), unavailable("no room"));
  EXPECT_EQ(used, 0u);
  most = 64 << 20;
  {
    const auto classes = classify(scores, kMany, false);
    ASSERT_TRUE(classes.ok()) << classes.status();
    EXPECT_GT(classes->tensor.bytes.size(), 300u * kMany);
    EXPECT_GE(used, classes->tensor.bytes.size());
  }
  EXPECT_EQ(used, 0u);
  NEREID_ServerCountMemory(nullptr, nullptr, nullptr);
}

// A model may return the shape that a client sent.
TEST(InferReply, ClassifiesWhatIsThere) {
  InferRequest request;
  request.classifications["A"] = 1;
  const Tensor rows{"A", TRITONSERVER_TYPE_FP32, {int64_t{1} << 48, 0}, {}};
  EXPECT_THAT(body_of(reply_with({rows}), request), HasSubstr("[281474976710656,0],\"data\":[]"));
  request.classifications["B"] = 2;
  const Tensor numbers =
      make_tensor<int32_t>("B", {2, 3}, {7, std::numeric_limits<int32_t>::min(), 7, 1, 2, 3});
  EXPECT_THAT(body_of(reply_with({numbers}), request),
              HasSubstr(R"("data":["7:0","7:2","3:2","2:1"])"));
}

}  // namespace
}  // namespace nereid::front
