// Steps of few rows with fused calls, on a device other than a CPU with reference kernels, against
// the same engines without fused calls.
#include "exec/fused_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/testing/source_dir.h"
#include "convert/engine_cache.h"
#include "exec/memory.h"
#include "exec/test_harness.h"
#include "io/engine_file.h"
#include "kernels/api/validate.h"
#include "kernels/open.h"
#include "kernels/ref/ref.h"
#include "tensor/wrapped_device.h"

namespace nereid::exec {
namespace {

using kernels::FusedLinear;

const RunnerLimits kFusedLimits = roomy_limits(4, 64, 128, 16);
const Ids kFusedText = {1, 5, 9, 2, 30, 31, 0, 7, 7, 8, 11};

// A CPU device with another device type.
class OtherDevice : public WrappedDevice {
 public:
  explicit OtherDevice(std::unique_ptr<Device> device)
      : WrappedDevice(std::move(device)), info_(inner().info()) {
    info_.kind = DeviceKind::kCuda;
  }
  const DeviceInfo& info() const override { return info_; }
  StatusOr<Buffer> allocate(size_t bytes) override {
    num_bytes += bytes;
    return inner().allocate(bytes);
  }

  size_t num_bytes = 0;

 private:
  DeviceInfo info_;
};

bool can_all(const FusedLinear&, const DeviceInfo&) { return true; }

// Opens an OtherDevice; with a FusedLinear kernel of that name if given.
kernels::OpenedDevice open_other(std::string_view name = {},
                                 bool (*can)(const FusedLinear&, const DeviceInfo&) = can_all) {
  kernels::OpenedDevice opened = kernels::open_device("cpu", {.num_threads = 2}).value();
  kernels::Registry definitions;
  kernels::ref::add_kernels(definitions);
  opened.registry = {};
  opened.registry.add_all([&]<class Op>() {
    kernels::Table<Op> rows = definitions.table<Op>();
    for (kernels::Kernel<Op>& row : rows) row.device = DeviceKind::kCuda;
    return rows;
  });
  if (!name.empty())
    opened.registry.add<FusedLinear>({{name, DeviceKind::kCuda, can, kernels::rank<FusedLinear, 1>,
                                       [](const FusedLinear& args, Stream&) {
                                         RETURN_IF_ERROR(validate(args));
                                         reference(args);
                                         return ok();
                                       }}});
  opened.device = std::make_unique<OtherDevice>(std::move(opened.device));
  return opened;
}

std::filesystem::path engine_of(const std::string& model,
                                const convert::CompileOptions& compile = {}) {
  const kernels::OpenedDevice other = open_other();
  auto engine = convert::ensure_engine(std::filesystem::path(source_dir()) / "tests/models" / model,
                                       other.registry, other.device->info(),
                                       {.cache_dir = test_directory(), .compile = compile});
  NEREID_CHECK(engine.ok());
  return *engine;
}
convert::CompileOptions in_fp8() {
  convert::CompileOptions options;
  options.weights = kernels::kFp8PerRow;
  return options;
}

Harness harness_of(const std::filesystem::path& engine, kernels::OpenedDevice opened,
                   const RunnerLimits& limits = kFusedLimits) {
  return Harness(engine, limits, StatusOr<kernels::OpenedDevice>(std::move(opened)));
}

// Logits after the text, whose last `count` tokens are one step.
std::vector<float> logits_after(Harness& harness, size_t count) {
  const Sequence sequence(0, harness.runner().limits());
  const auto head = static_cast<int32_t>(kFusedText.size() - count);
  harness.prefill(sequence, Ids(kFusedText.begin(), kFusedText.begin() + head), 64);
  return harness.prefill(sequence, kFusedText, 64, nullptr, head);
}

// Number of calls by op in such a step.
std::map<std::string, int64_t> ops_of(Harness& harness, size_t count) {
  const Sequence sequence(0, harness.runner().limits());
  harness.runner().set_profiling(true);
  harness.prefill(sequence, Ids(kFusedText.begin(), kFusedText.begin() + count), 64);
  std::map<std::string, int64_t> calls;
  for (const OpTime& op : harness.runner().profile()) calls[op.op] += op.num_calls;
  harness.runner().set_profiling(false);
  return calls;
}

double deviation_of(const std::vector<float>& values) {
  double mean = 0, squares = 0;
  for (const float x : values) mean += x / static_cast<double>(values.size());
  for (const float x : values) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// Root mean square difference.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

struct Model {
  std::string name;
  convert::CompileOptions compile;
  int num_norms = 0, num_units = 0;  // fused calls
  int num_fused = 0;
  double tolerance = 0;  // of a logit, relative to the spread
};

// bf16 rounding happens at another point (before the norm's factor), each by at most 2^-9, about
// three per layer, two layers; amplification as in golden_test.cc.
const double kNarrow = 1.6 * 1.6 * 1.6 * 1.6 * 4.5 * 0x1p-9 / std::sqrt(3.) * std::sqrt(2 * 3.);

void expect_fused(const Model& model) {
  SCOPED_TRACE(model.name);
  const auto engine = engine_of(model.name, model.compile);
  Harness plain = harness_of(engine, open_other()), fused = harness_of(engine, open_other("ref"));
  const auto expected = logits_after(plain, 1), got = logits_after(fused, 1);
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::abs(double{got[i]} - expected[i]) / deviation_of(expected));
  EXPECT_LE(worst, model.tolerance);
  EXPECT_EQ(got == expected, model.num_fused == 0);
  auto before = ops_of(plain, 1), after = ops_of(fused, 1);
  EXPECT_EQ(before["norm"] - after["norm"], model.num_norms);
  EXPECT_EQ(before["glu"] - after["glu"], model.num_units);
  EXPECT_EQ(after["fused_linear"], model.num_fused);
  EXPECT_EQ(before["linear"], after["linear"] + after["fused_linear"]);
  // More rows than kMaxFusedRows: the plan's own calls, same bits.
  EXPECT_EQ(ops_of(fused, 9), ops_of(plain, 9));
  EXPECT_EQ(logits_after(fused, 11), logits_after(plain, 11));
}

// Two layers. Not fused: the first norm (no product before it), the last layer's norms (gathered or
// returned rows). Fused: the four products next to the other norms, and the last gate and up.
TEST(FusedCalls, TakeThePlaceOfNormsAndUnits) {
  expect_fused({"llama", {}, 2, 2, 5, kNarrow});
  expect_fused({"qwen2", {}, 2, 2, 5, kNarrow});  // biases of queries, keys and values
  expect_fused({"gemma", {}, 2, 2, 5, kNarrow});  // 1 + weight, and GELU
}

// Attention's rows are rounded by the product behind it; the last gate and up reads rows rounded by
// a call. A changed bf16 number can become another f8e4m3 number: the error against the bf16 engine
// is at most that of the plan's own calls, and the difference to these is below the sum of both.
TEST(FusedCalls, RoundTheirRows) {
  const auto engine = engine_of("llama", in_fp8());
  Harness exact = harness_of(engine_of("llama"), open_other());
  Harness plain = harness_of(engine, open_other()), fused = harness_of(engine, open_other("ref"));
  for (const size_t count : {1, 3, 8}) {
    const auto want = logits_after(exact, count), one = logits_after(plain, count),
               other = logits_after(fused, count);
    EXPECT_LE(distance(other, want), 1.25 * distance(one, want)) << count;
    EXPECT_LE(distance(other, one), 1.25 * std::sqrt(2.) * distance(one, want)) << count;
  }
  auto before = ops_of(plain, 1), after = ops_of(fused, 1);
  EXPECT_EQ(before["norm"] - after["norm"], 2);
  EXPECT_EQ(before["glu"] - after["glu"], 1);
  EXPECT_EQ(before["quantize"] - after["quantize"], 2);
  EXPECT_EQ(after["fused_linear"], 5);
}

TEST(FusedCalls, LeaveWhatDoesNotFit) {
  expect_fused({"gemma2", {}, 0, 2, 2, kNarrow});  // norms before the residual add
  expect_fused({"cohere", {}, 0, 1, 1, kNarrow});  // centred norms; gathered rows: last gate and up
  expect_fused({"gpt2", {}, 0, 0, 0, 0});          // LayerNorm with bias; no gated activation
  convert::CompileOptions adapters;
  adapters.adapters = true;
  expect_fused({"llama", adapters, 0, 0, 0, 0});  // adapter calls stand between the products
}

TEST(FusedCalls, OfEveryArchitectureMakeTheSame) {
  int num_fused = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(source_dir()) / "tests/models")) {
    const std::string name = entry.path().filename();
    SCOPED_TRACE(name);
    const auto engine = engine_of(name);
    Harness plain = harness_of(engine, open_other()), fused = harness_of(engine, open_other("ref"));
    const bool is_fused = ops_of(fused, 1).contains("fused_linear");
    num_fused += is_fused;
    const auto expected = logits_after(plain, 1), got = logits_after(fused, 1);
    if (!is_fused) {
      EXPECT_EQ(got, expected);
      continue;
    }
    // kNarrow covers 4.5 standard deviations.
    EXPECT_LE(distance(got, expected), kNarrow / 4.5 * deviation_of(expected));
  }
  EXPECT_GT(num_fused, 30);
}

TEST(FusedCalls, AreThoseOfThePlansKernelsAndOfNoOthers) {
  const auto engine = engine_of("llama");
  Harness plain = harness_of(engine, open_other()), other = harness_of(engine, open_other("fast"));
  EXPECT_EQ(ops_of(other, 1), ops_of(plain, 1));
  EXPECT_EQ(logits_after(other, 1), logits_after(plain, 1));
}

// Each product is fused up to the row count of its own kernel.
TEST(FusedCalls, AreAsManyAsTheirKernelsCan) {
  const auto engine = engine_of("llama", in_fp8());
  Harness harness =
      harness_of(engine, open_other("ref", [](const FusedLinear& a, const DeviceInfo&) {
                   return a.x.rows <= (a.gated ? 2 : 4);
                 }));
  EXPECT_EQ(ops_of(harness, 2)["fused_linear"], 5);
  // The activation's f8e4m3 result cannot feed the product that adds to the residual.
  const auto three = ops_of(harness, 3);
  EXPECT_EQ(three.at("glu"), 2);
  EXPECT_EQ(three.at("norm"), 4);
  EXPECT_EQ(three.at("fused_linear"), 3);
  EXPECT_EQ(ops_of(harness, 4), three);
  EXPECT_FALSE(ops_of(harness, 5).contains("fused_linear"));
}

TEST(FusedCalls, AnObserverSeesThePlansCalls) {
  const auto engine = engine_of("llama");
  Harness plain = harness_of(engine, open_other()), fused = harness_of(engine, open_other("ref"));
  std::vector<std::string> seen[2];
  for (const int i : {0, 1})
    (i ? fused : plain).runner().set_observer([&, i](const std::string& weight, kernels::Linear&) {
      seen[i].push_back(weight);
      return true;
    });
  EXPECT_EQ(logits_after(fused, 1), logits_after(plain, 1));
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_GT(seen[0].size(), 8u);
}

// The first pick of each row is no expert (-1), as with expert parallelism.
Status route_to_one_less(const kernels::Route& args, Stream&) {
  reference(args);
  for (int64_t row = 0; row < args.experts.rows; ++row) args.experts.row<int32_t>(row)[0] = -1;
  return ok();
}

TEST(FusedCalls, AnObserverSeesNoPicksThatAreNoExpert) {
  std::map<std::string, int64_t> rows[2];  // rows seen by each expert
  for (const int i : {0, 1}) {
    kernels::OpenedDevice opened = open_other();
    if (i == 1) {
      auto& routes = std::get<kernels::Table<kernels::Route>>(opened.registry.tables);
      for (kernels::Kernel<kernels::Route>& kernel : routes) kernel.run = route_to_one_less;
    }
    Harness harness = harness_of(engine_of("mixtral"), std::move(opened));
    harness.runner().set_observer([&](const std::string& weight, kernels::Linear& call) {
      if (weight.ends_with(']')) rows[i][weight] += call.x.rows;
      return true;
    });
    logits_after(harness, 1);
  }
  const auto total = [](const std::map<std::string, int64_t>& of) {
    int64_t sum = 0;
    for (const auto& [weight, count] : of) sum += count;
    return sum;
  };
  EXPECT_GT(total(rows[0]), 0);
  EXPECT_EQ(2 * total(rows[1]), total(rows[0]));  // top-2 routing
}

TEST(FusedCalls, MemoryIsInTheTable) {
  const auto engine = engine_of("llama", in_fp8());
  const auto file = io::EngineFile::open(engine).value();
  kernels::OpenedDevice opened = open_other("ref");
  auto& device = static_cast<OtherDevice&>(*opened.device);
  const size_t bytes = FusionSites(file.plan()).bytes();
  ASSERT_GT(bytes, 0u);
  EXPECT_EQ(fused_bytes(file.plan(), device.info()), bytes);
  EXPECT_EQ(fused_bytes(file.plan(), DeviceInfo{}), 0u);
  Harness harness = harness_of(engine, std::move(opened));
  size_t in_table = 0;
  for (const MemoryItem& item : harness.runner().memory()) {
    if (item.what == "activations of few tokens") in_table = item.bytes;
  }
  EXPECT_EQ(in_table, bytes);
}

}  // namespace
}  // namespace nereid::exec
