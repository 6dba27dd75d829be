// Memory that backends and the core allocate for requests, as the process's
// memory budget counts it.
#include <atomic>
#include <chrono>
#include <thread>

#include "backend/testing/backend_fixture.h"
#include "base/clock.h"
#include "nereid/server.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::backend {
namespace {

class ClientMemoryTest : public BackendTest {
 protected:
  // Called before a server exists, as at the start of a process.
  static void SetUpTestSuite() {
    NEREID_ServerCountMemory(hold, release, nullptr);
    BackendTest::SetUpTestSuite();
  }
  static void TearDownTestSuite() {
    BackendTest::TearDownTestSuite();
    NEREID_ServerCountMemory(nullptr, nullptr, nullptr);
  }
  void SetUp() override {
    limit_ = uint64_t{1} << 40;
    peak_ = 0;
  }
  // A request is released after its final response.
  void TearDown() override {
    const Time end = now() + std::chrono::seconds(30);
    while (used_ > 0 && now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(used_, 0u);
  }

  static TRITONSERVER_Error* hold(void*, uint64_t size) {
    const uint64_t used = used_ += size;
    if (used > limit_) {
      used_ -= size;
      return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no room");
    }
    peak_ = std::max(peak_.load(), used);
    return nullptr;
  }
  static void release(void*, uint64_t size) { used_ -= size; }

  // One prompt of some 100000 tokens beside three short ones.
  static Conversation preprocess() {
    std::string text;
    for (int i = 0; i < 100000; ++i) text += "a ";
    const std::vector<int32_t> lengths(4, 1);
    return Talk(server_, "preprocessing",
                {make_output("QUERY", {4, 1}, std::vector<std::string>{text, "a", "a", "a"}),
                 make_output("REQUEST_OUTPUT_LEN", {4, 1}, lengths)})
        .wait();
  }

  static inline std::atomic<uint64_t> used_{0}, peak_{0}, limit_{0};
};

TEST_F(ClientMemoryTest, PreprocessingCountsWhatItPads) {
  const Conversation talk = preprocess();
  ASSERT_TRUE(talk.status.ok()) << talk.status;
  const Shape shape = shape_of(talk.outputs.at(0), "INPUT_ID");
  ASSERT_EQ(shape.size(), 2u);
  ASSERT_GT(shape[1], 50000);
  // The tensor is counted twice: in the backend and in its response. The text has 200000 bytes.
  EXPECT_GT(peak_, static_cast<uint64_t>(2 * 4 * shape[1] * 4) +
                       200000 * text::Tokenizer::kScratchPerByte);
}

TEST_F(ClientMemoryTest, WithoutRoomItRefuses) {
  limit_ = 1 << 20;
  const Conversation talk = preprocess();
  EXPECT_EQ(talk.status.code(), absl::StatusCode::kUnavailable) << talk.status;
  EXPECT_EQ(message(talk.status), "no room");
  EXPECT_LE(peak_, limit_);
}

// An empty text takes four bytes of a tensor, and many times that as a string.
TEST_F(ClientMemoryTest, ManyShortTextsCount) {
  constexpr int64_t kMany = 100000;
  const std::vector<std::string> none(kMany);
  const Conversation talk =
      Talk(server_, "preprocessing",
           {make_output("QUERY", {1, 1}, std::vector<std::string>{"a"}),
            int_input("REQUEST_OUTPUT_LEN", 1), make_output("STOP_WORDS_DICT", {1, kMany}, none)})
          .wait();
  EXPECT_TRUE(talk.status.ok()) << talk.status;
  EXPECT_GT(peak_, static_cast<uint64_t>(kMany) * sizeof(std::string));
}

TEST_F(ClientMemoryTest, PostprocessingCountsTexts) {
  const std::vector<int32_t> ids(200000, 1000), length(1, 200000);
  const Conversation talk = Talk(server_, "postprocessing",
                                 {make_output("TOKENS_BATCH", {1, 1, 200000}, ids),
                                  make_output("SEQUENCE_LENGTH", {1, 1}, length)})
                                .wait();
  ASSERT_TRUE(talk.status.ok()) << talk.status;
  EXPECT_GT(peak_, ids.size() * sizeof(int32_t) + 2 * talk.outputs.at(0).at(0).bytes.size());
}

// Counted twice: while logits gather in the engine, and in the response.
TEST_F(ClientMemoryTest, LogitsOfAPromptCount) {
  const std::vector<int32_t> ids(300, 5);
  const auto ask_for_logits = [&] {
    return Talk(server_, "tensorrt_llm",
                {make_output("input_ids", {1, 300}, ids), int_input("input_lengths", 300),
                 int_input("request_output_len", 1), bool_input("return_context_logits", true)})
        .wait();
  };
  const Conversation talk = ask_for_logits();
  ASSERT_TRUE(talk.status.ok()) << talk.status;
  const uint64_t size = [&] {
    const Shape shape = shape_of(talk.outputs.at(0), "context_logits");
    return sizeof(float) * static_cast<uint64_t>(shape.at(1) * shape.at(2));
  }();
  ASSERT_GT(size, 1u << 20);
  EXPECT_GE(peak_, 2 * size);
  limit_ = size / 2;
  const Conversation refused = ask_for_logits();
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kUnavailable) << refused.status;
}

// Tensors between the steps of an ensemble count while the model generates.
TEST_F(ClientMemoryTest, EnsemblesCountTheirTensors) {
  const Conversation talk = ask("ensemble", std::string(100000, 'q'), 1);
  EXPECT_FALSE(talk.status.ok());  // too long for the model
  EXPECT_GT(peak_, 100000u * text::Tokenizer::kScratchPerByte) << "what tokenizing takes";
}

}  // namespace
}  // namespace nereid::backend
