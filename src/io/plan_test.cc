#include "io/plan.h"

#include <gmock/gmock.h>

#include <functional>

#include "io/test_plan.h"

namespace nereid::io {
namespace {

using testing::HasSubstr;

TEST(Plan, JsonRoundTripKeepsEverything) {
  Plan plan = test_plan();
  plan.weights[0].planes[0].checksum = 0xfedcba9876543210;
  const json::value first = plan_to_json(plan);
  const auto again = plan_from_json(first);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(json::serialize(plan_to_json(*again)), json::serialize(first));
  EXPECT_EQ(again->weights[0].planes[0].checksum, 0xfedcba9876543210);
  EXPECT_EQ(again->model.ropes[0].inverse_frequencies, plan.model.ropes[0].inverse_frequencies);
  EXPECT_EQ(std::get<kernels::ids::Attention>(again->calls[3].op).scale, .25f);
  ASSERT_EQ(again->choices.products.size(), 1u);
  EXPECT_EQ(again->choices.device, "a GPU");
  EXPECT_EQ(again->choices.products[0].algorithm, (std::vector<int32_t>{6, 0, -1}));
}

TEST(Plan, EveryMissingFieldIsNamed) {
  const json::value good = plan_to_json(test_plan());
  for (const auto& [key, value] : good.get_object()) {
    if (key == "modules" || key == "hidden" || key == "choices" || key == "mapping" ||
        key == "caches" || key == "module_parts")
      continue;  // optional
    json::value bad = good;
    bad.get_object().erase(key);
    const auto plan = plan_from_json(bad);
    ASSERT_FALSE(plan.ok()) << std::string_view(key);
    EXPECT_THAT(std::string(message(plan.status())), HasSubstr(std::string_view(key)));
  }
}

// A file written before the fields existed.
TEST(Plan, AbsentFieldsHaveTheirDefaults) {
  json::value old = plan_to_json(test_plan());
  json::object& plan = old.get_object();
  for (const char* key : {"modules", "hidden", "choices", "mapping", "caches", "module_parts"})
    plan.erase(key);
  for (const char* key : {"latent", "bos_id", "pad_id", "end_ids", "kv_dtype"})
    plan["model"].get_object().erase(key);
  for (json::value& value : plan["values"].get_array()) value.get_object().erase("column");
  for (json::value& weight : plan["weights"].get_array()) {
    weight.get_object().erase("experts");
    for (const char* key : {"zeros", "minima", "ordered", "inputs"})
      weight.get_object()["format"].get_object().erase(key);
  }
  json::object& attention = plan["calls"].get_array()[3].get_object();
  ASSERT_EQ(attention["op"].as_string(), "attention");
  for (const char* key : {"alibi_scale", "alibi_first", "alibi_heads"}) attention.erase(key);
  attention["heads"].get_object().erase("latent");
  const auto read = plan_from_json(old);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->choices.products.empty());
  EXPECT_TRUE(read->hidden.empty());
  EXPECT_EQ(read->mapping, Mapping());
  EXPECT_EQ(read->model.bos_id, kNone);
  EXPECT_EQ(read->model.kv_dtype, DType::kBF16);
  EXPECT_EQ(read->weights[2].experts, 1);
  EXPECT_EQ(read->weights[2].format, test_plan().weights[2].format);
  EXPECT_EQ(std::get<kernels::ids::Attention>(read->calls[3].op).alibi_scale,
            kernels::ids::Attention().alibi_scale);
}

// Fields of newer writers may change a call's semantics.
TEST(Plan, FieldsThatAreNotKnownAreRefused) {
  const json::value good = plan_to_json(test_plan());
  const auto error_with = [&](const std::function<json::object&(json::object&)>& where) {
    json::value newer = good;
    where(newer.get_object())["twist"] = 1;
    return std::string(message(plan_from_json(newer).status()));
  };
  EXPECT_EQ(error_with([](auto& p) -> json::object& { return p; }), "plan: twist: is not known");
  EXPECT_EQ(error_with([](auto& p) -> json::object& { return p["model"].get_object(); }),
            "plan: model: twist: is not known");
  EXPECT_EQ(
      error_with([](auto& p) -> json::object& { return p["calls"].get_array()[3].get_object(); }),
      "plan: calls: [3]: twist: is not known");
}

std::string plan_error(const std::function<void(Plan&)>& damage) {
  Plan plan = test_plan();
  damage(plan);
  return std::string(message(check_plan(plan)));
}

TEST(Plan, CheckRefusesUnsafePlans) {
  ASSERT_TRUE(check_plan(test_plan()).ok()) << check_plan(test_plan());
  EXPECT_THAT(plan_error([](Plan& p) { p.model.vocab_size = 33; }),
              HasSubstr("is not f32 [sampled, 33]"));
  EXPECT_THAT(plan_error([](Plan& p) { p.model.num_layers = -1; }), HasSubstr("num_layers"));
  EXPECT_THAT(plan_error([](Plan& p) { p.model.ropes[0].inverse_frequencies.push_back(1); }),
              HasSubstr("the angles are wider than a head"));
  EXPECT_THAT(plan_error([](Plan& p) { p.model.end_ids = {32}; }), HasSubstr("id 32"));
  EXPECT_THAT(plan_error([](Plan& p) { p.values[2].offset = 256; }), HasSubstr("value 'qkv'"));
  EXPECT_THAT(plan_error([](Plan& p) { p.values[2].offset = -64; }), HasSubstr("value 'qkv'"));
  EXPECT_THAT(plan_error([](Plan& p) { p.values[1].column = 1; }),
              HasSubstr("do not fit in a stride"));
  EXPECT_THAT(plan_error([](Plan& p) { p.values[1].dtype = DType::kI8; }), HasSubstr("i8"));
  EXPECT_THAT(plan_error([](Plan& p) { p.weights[1].planes[0].offset = 0; }), HasSubstr("overlap"));
  EXPECT_THAT(plan_error([](Plan& p) { p.weights[1].planes[0].shape.bytes += 1; }),
              HasSubstr("weight 'norm'"));
  EXPECT_THAT(plan_error([](Plan& p) { p.weights[2].experts = 0; }), HasSubstr("0 experts"));
  EXPECT_THAT(plan_error([](Plan& p) { p.weights[2].experts = 1 << 20; }),
              HasSubstr("1048576 experts"));
  EXPECT_THAT(plan_error([](Plan& p) { p.weights[2].experts = 2; }),
              HasSubstr("weight 'qkv': plane 0"));
  EXPECT_THAT(plan_error([](Plan& p) { p.weights[2].experts = 2, place_weights(p); }),
              HasSubstr("call 2 (linear): 'weight' bf16 [2, 64, 32] has 2 experts"));
  EXPECT_THAT(plan_error([](Plan& p) { p.blob_bytes -= 1; }),
              HasSubstr("does not fit in the blob"));
  EXPECT_THAT(plan_error([](Plan& p) { std::get<kernels::ids::Embed>(p.calls[0].op).table = 3; }),
              HasSubstr("call 0 (embed): 'table': no weight 3"));
  EXPECT_THAT(plan_error([](Plan& p) { std::get<kernels::ids::Linear>(p.calls[2].op).x = 0; }),
              HasSubstr("call 2 (linear): 'x' is f32 [32], wanted bf16"));
  EXPECT_THAT(plan_error([](Plan& p) { std::get<kernels::ids::Linear>(p.calls[6].op).x = 1; }),
              HasSubstr("wrong kind of rows"));
  EXPECT_THAT(
      plan_error([](Plan& p) { std::get<kernels::ids::Attention>(p.calls[3].op).cache = 1; }),
      HasSubstr("no layer 1"));
  EXPECT_THAT(
      plan_error([](Plan& p) { std::get<kernels::ids::Attention>(p.calls[3].op).heads.num = 1; }),
      HasSubstr("out is not as wide as its heads"));
  EXPECT_THAT(plan_error([](Plan& p) { p.calls[1].kernel = ""; }), HasSubstr("no kernel"));
  EXPECT_THAT(plan_error([](Plan& p) {
                p.logits = 4;
                p.model.vocab_size = 32;
                p.logits = 1;
              }),
              HasSubstr("logits"));
  EXPECT_THAT(plan_error([](Plan& p) { p.hidden = {7}; }), HasSubstr("hidden: no value 7"));
  EXPECT_THAT(plan_error([](Plan& p) {
                p.hidden = {5, 1};
              }),
              HasSubstr("hidden: value 'h' is not bf16 [sampled, 32]"));
  EXPECT_THAT(plan_error([](Plan& p) { p.hidden = {4}; }), HasSubstr("hidden: value 'last'"));
}

TEST(Plan, CheckRefusesUnsafeChoices) {
  EXPECT_THAT(plan_error([](Plan& p) { p.choices.products[0].rows = 0; }),
              HasSubstr("choices: 0 rows by [64, 32]"));
  EXPECT_THAT(plan_error([](Plan& p) { p.choices.products[0].n = int64_t{1} << 40; }),
              HasSubstr("choices: 256 rows by [1099511627776, 32]"));
  EXPECT_THAT(plan_error([](Plan& p) { p.choices.products[0].algorithm.resize(17); }),
              HasSubstr("choices: an algorithm of 17 numbers, at most 16 are allowed"));
  EXPECT_THAT(plan_error([](Plan& p) { p.choices.products.resize(10'001, p.choices.products[0]); }),
              HasSubstr("choices: 10001 of them, at most 10000 are allowed"));
  EXPECT_THAT(plan_error([](Plan& p) { p.choices.device.resize(257); }),
              HasSubstr("choices: a name of 257 bytes, at most 256 are allowed"));
}

TEST(Plan, MayHaveNoHiddenStates) {
  Plan plan = test_plan();
  plan.hidden = {};
  EXPECT_TRUE(check_plan(plan).ok());
}

// The test plan with an integer qkv weight.
Plan integer_plan() {
  Plan plan = test_plan();
  plan.weights[2].format = kernels::kInt4Groups;
  plan.weights[2].format.group = 16;
  plan.weights[2].format.zeros = true;
  place_weights(plan);
  return plan;
}

TEST(Plan, FormatsAndPlanesSurviveJson) {
  Plan plan = integer_plan();
  plan.weights[2].planes[2].checksum = 77;
  const auto again = plan_from_json(plan_to_json(plan));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->weights[2].format, plan.weights[2].format);
  EXPECT_EQ(json::serialize(plan_to_json(*again)), json::serialize(plan_to_json(plan)));
  ASSERT_EQ(again->weights[2].planes.size(), 3u);
  EXPECT_EQ(again->weights[2].planes[2].checksum, 77u);
  const auto blob = std::vector<std::byte>(plan.blob_bytes);
  const kernels::WeightView view = view_of(again->weights[2], blob.data());
  EXPECT_EQ(view.as_bytes(),
            reinterpret_cast<const uint8_t*>(&blob[plan.weights[2].planes[0].offset]));
  EXPECT_EQ(view.scales, reinterpret_cast<const float*>(&blob[plan.weights[2].planes[1].offset]));
  EXPECT_EQ(view.minima, nullptr);
  EXPECT_EQ(view.zeros, reinterpret_cast<const uint8_t*>(&blob[plan.weights[2].planes[2].offset]));
}

// Plane sizes follow from the format; planes do not overlap.
TEST(Plan, CheckProvesEveryPlane) {
  ASSERT_TRUE(check_plan(integer_plan()).ok()) << check_plan(integer_plan());
  const auto error = [](const std::function<void(PlanWeight&)>& damage) {
    Plan plan = integer_plan();
    damage(plan.weights[2]);
    return std::string(message(check_plan(plan)));
  };
  EXPECT_THAT(error([](PlanWeight& w) { w.planes.pop_back(); }),
              HasSubstr("weight 'qkv': 2 planes, int4 in groups of 16 with zero points has 3"));
  EXPECT_THAT(error([](PlanWeight& w) { w.planes[1].shape.bytes -= 4; }),
              HasSubstr("plane 1 (scales f32 [64, 2], 508 bytes) is not scales f32 [64, 2], 512"));
  EXPECT_THAT(error([](PlanWeight& w) { w.planes[1].shape.type = DType::kF16; }),
              HasSubstr("plane 1"));
  EXPECT_THAT(error([](PlanWeight& w) { w.planes[2].shape.role = kernels::PlaneRole::kIndex; }),
              HasSubstr("plane 2"));
  EXPECT_THAT(error([](PlanWeight& w) { w.planes[0].shape.rows = 32; }), HasSubstr("plane 0"));
  EXPECT_THAT(error([](PlanWeight& w) { w.planes[2].offset = w.planes[1].offset; }),
              HasSubstr("weights 'qkv' and 'qkv' overlap"));
  EXPECT_THAT(error([](PlanWeight& w) { w.planes[2].offset += uint64_t{1} << 40; }),
              HasSubstr("does not fit in the blob"));
  EXPECT_THAT(error([](PlanWeight& w) { w.format.group = 32; }), HasSubstr("plane 1"));
  EXPECT_THAT(error([](PlanWeight& w) { w.format.bits = 8; }), HasSubstr("plane 0"));
  EXPECT_THAT(error([](PlanWeight& w) { w.format.bits = 6; }),
              HasSubstr("weight 'qkv': integers have 4 or 8 bits"));
  EXPECT_THAT(error([](PlanWeight& w) { w.format.group = 17; }), HasSubstr("multiple of 16"));
  // Vectors have no format.
  Plan plan = integer_plan();
  plan.weights[1].format = kernels::kInt8PerRow;
  place_weights(plan);
  EXPECT_THAT(std::string(message(check_plan(plan))),
              HasSubstr("'weight' int8 [1, 32] is not a vector"));
}

TEST(Plan, ChecksumIsChainedOverPieces) {
  std::string data(2 * kChecksumPiece + 5, 'x');
  const uint64_t sum = weight_checksum(data.data(), data.size());
  data.back() = 'y';
  EXPECT_NE(weight_checksum(data.data(), data.size()), sum);
  data.back() = 'x', data.front() = 'y';
  EXPECT_NE(weight_checksum(data.data(), data.size()), sum);
}

}  // namespace
}  // namespace nereid::io
