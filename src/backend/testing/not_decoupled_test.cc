// A repository whose models answer once, with logits in half precision.
#include <algorithm>

#include "backend/testing/backend_fixture.h"

namespace nereid::backend {
namespace {

class NotDecoupledTest : public BackendTest {
 protected:
  static void SetUpTestSuite() {
    start(server_, dir_, {{"decoupled_mode", "false"}, {"logits_datatype", "TYPE_FP16"}});
  }
};

TEST_F(NotDecoupledTest, SeveralResponsesAreRefused) {
  const auto error = [](std::vector<Output> inputs) {
    return std::string(message(Talk(server_, "tensorrt_llm", std::move(inputs)).wait().status));
  };
  EXPECT_EQ(error({make_output("input_ids", {2, 1}, Ids{5, 6}),
                   make_output("input_lengths", {2, 1}, Ids{1, 1}),
                   make_output("request_output_len", {2, 1}, Ids{2, 2})}),
            "Batch size > 1 requires the tensorrt_llm backend to be using decoupled transaction "
            "policy");
  const std::string streams =
      "Streaming is only supported if model is deployed using decoupled mode.";
  const std::vector<Output> one = {make_output("input_ids", {1, 1}, Ids{5}),
                                   int_input("input_lengths", 1),
                                   int_input("request_output_len", 2)};
  const auto and_one = [&](Output more) {
    auto all = one;
    all.push_back(std::move(more));
    return all;
  };
  EXPECT_EQ(error(and_one(bool_input("streaming", true))), streams);
  EXPECT_EQ(error(and_one(bool_input("streaming", false))), "");
  EXPECT_THAT(error(and_one(int_input("num_return_sequences", 2))), HasSubstr("decoupled mode"));
  EXPECT_EQ(message(ask("tensorrt_llm_bls", kPrompt, 4, {bool_input("stream", true)}).status),
            streams);
}

// IEEE half precision to float.
float from_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const float mantissa = static_cast<float>(bits & 1023) / 1024;
  const float size =
      exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1 + mantissa, exponent - 15);
  return bits >> 15 ? -size : size;
}

TEST_F(NotDecoupledTest, LogitsInHalfPrecision) {
  for (const char* model : {"ensemble", "tensorrt_llm_bls", "tensorrt_llm"}) {
    const std::vector<Output> flags = {bool_input("return_context_logits", true),
                                       bool_input("return_generation_logits", true)};
    auto inputs = flags;
    inputs.push_back(make_output("input_ids", {1, 3}, Ids{50, 60, 70}));
    inputs.push_back(int_input("input_lengths", 3));
    inputs.push_back(int_input("request_output_len", 4));
    inputs.push_back(bool_input("exclude_input_in_output", true));
    const bool has_text = model != std::string_view("tensorrt_llm");
    const auto got =
        has_text ? ask(model, kPrompt, 4, flags) : Talk(server_, model, std::move(inputs)).wait();
    ASSERT_TRUE(got.status.ok()) << model << got.status;
    for (const auto& output : got.outputs.at(0)) {
      const bool is_logits = output.name.ends_with("_logits");
      EXPECT_EQ(output.datatype == TRITONSERVER_TYPE_FP16, is_logits) << output.name;
    }
    const auto shape = shape_of(got.outputs[0], "generation_logits");
    ASSERT_EQ(shape.size(), 4u) << model;
    const auto halves = elements<uint16_t>(got.outputs[0], "generation_logits");
    const auto vocab = static_cast<size_t>(shape[3]);
    ASSERT_EQ(halves.size(), 4 * vocab);
    EXPECT_EQ(shape_of(got.outputs[0], "context_logits").back(), shape[3]);
    const Ids tokens = elements<int32_t>(got.outputs[0], "output_ids");
    for (size_t i = 0; i < tokens.size(); ++i) {  // greedy
      const auto row = halves.begin() + static_cast<ptrdiff_t>(i * vocab);
      const float chosen = from_half(row[tokens[i]]);
      EXPECT_TRUE(std::all_of(row, row + static_cast<ptrdiff_t>(vocab),
                              [&](uint16_t other) { return from_half(other) <= chosen; }));
    }
  }
}

}  // namespace
}  // namespace nereid::backend
