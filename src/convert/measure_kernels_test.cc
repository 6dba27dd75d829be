// Product kernels that report their time by a test clock.
#include "convert/measure_kernels.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "convert/compile.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "convert/inspect.h"
#include "io/engine_file.h"
#include "kernels/api/pack.h"
#include "kernels/ref/ref.h"
#include "tensor/cpu_device.h"

namespace nereid::convert {
namespace {

using kernels::Linear;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

Time g_now;
std::map<int64_t, int> g_brisk_us;  // per call, by rows of the weight; default 100 us
bool g_costly_ran = false;
std::set<const void*> g_weights;  // read by products
uint64_t g_most_bytes = 0;        // max per product

void take(int microseconds) { g_now += std::chrono::microseconds(microseconds); }
Status run_usual(const Linear& a, Stream&) {
  if (a.weight.n <= 1024) reference(a);  // reads and writes all its arguments
  g_most_bytes = std::max(g_most_bytes, kernels::stored_bytes(a.weight));
  g_weights.insert(a.weight.data);
  take(100);
  return ok();
}
Status run_brisk(const Linear& a, Stream&) {
  const auto at = g_brisk_us.find(a.weight.n);
  take(at == g_brisk_us.end() ? 100 : at->second);
  return ok();
}
Status run_costly(const Linear&, Stream&) {
  g_costly_ran = true;
  return ok();
}
bool can(const Linear&, const DeviceInfo&) { return true; }
bool can_few(const Linear& a, const DeviceInfo&) { return a.x.rows <= 16; }
template <int kCost>
double cost(const Linear&, const DeviceInfo&) {
  return kCost;
}

class MeasureKernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    g_now = {}, g_brisk_us = {}, g_costly_ran = false, g_weights = {}, g_most_bytes = 0;
    device_ = *make_cpu_device({.num_threads = 1});
    kernels::ref::add_kernels(registry_);
    std::get<kernels::Table<Linear>>(registry_.tables) = {
        {"brisk", DeviceKind::kCpu, can, cost<3>, run_brisk},
        {"usual", DeviceKind::kCpu, can, cost<2>, run_usual},
        {"costly", DeviceKind::kCpu, can, cost<9>, run_costly},
        {"few", DeviceKind::kCpu, can_few, cost<1>, run_costly},
    };
    std::string name = testing::TempDir() + "/measure.XXXXXX";
    dir_ = ::mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  io::Plan measured() { return measured(kModel); }
  io::Plan measured(const std::filesystem::path& model) {
    auto compiled = compile_model(model, registry_, device_->info());
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    const Status status =
        measure_kernels(compiled->plan, registry_, *device_, [] { return g_now; });
    EXPECT_TRUE(status.ok()) << status;
    return std::move(compiled->plan);
  }
  // The products' kernels, by rows of the weight.
  static std::map<int64_t, std::set<std::string>> kernels_of(const io::Plan& plan) {
    std::map<int64_t, std::set<std::string>> found;
    for (const io::Call& call : plan.calls)
      if (const auto* linear = std::get_if<kernels::ids::Linear>(&call.op))
        found[plan.weights[static_cast<size_t>(linear->weight)].n].insert(call.kernel);
    return found;
  }

  const std::filesystem::path kModel = std::filesystem::path(source_dir()) / "tests/models/llama";
  std::filesystem::path dir_;
  std::unique_ptr<Device> device_;
  kernels::Registry registry_;
};

TEST_F(MeasureKernelsTest, AFasterKernelTakesThePlaceOfTheCheapest) {
  const auto by_cost = kernels_of(measured());
  ASSERT_GE(by_cost.size(), 2u) << "products of several shapes";
  for (const auto& [n, names] : by_cost) EXPECT_THAT(names, Each("usual"));
  g_brisk_us[by_cost.begin()->first] = 90;
  g_weights = {};
  for (const auto& [n, names] : kernels_of(measured()))
    EXPECT_THAT(names, Each(n == by_cost.begin()->first ? "brisk" : "usual")) << n;
  EXPECT_FALSE(g_costly_ran) << "too costly, or not for all numbers of rows";
  EXPECT_GT(g_weights.size(), by_cost.size()) << "several layers' weights take turns";
}

TEST_F(MeasureKernelsTest, LessThanATenthIsNotWorthIt) {
  const auto by_cost = kernels_of(measured());
  for (const auto& [n, names] : by_cost) g_brisk_us[n] = 91;
  EXPECT_EQ(kernels_of(measured()), by_cost);
}

TEST_F(MeasureKernelsTest, ALargeMatrixIsCut) {
  json::object config = read_json_file(kModel / "config.json")->as_object();
  config["vocab_size"] = 1000000;
  ASSERT_TRUE(write_file_atomic(dir_ / "config.json", json::serialize(config)).ok());
  const auto found = kernels_of(measured(dir_));
  EXPECT_TRUE(found.contains(1000000)) << "the plan has it whole";
  EXPECT_EQ(g_most_bytes, uint64_t{64} << 20);
}

TEST_F(MeasureKernelsTest, ThePlanSaysWhereItWasMeasured) {
  auto compiled = compile_model(kModel, registry_, device_->info());
  EXPECT_EQ(measured_on(compiled->plan), "");
  const io::Plan plan = measured();
  EXPECT_EQ(measured_on(plan), device_->info().name);
  EXPECT_EQ(isa_of(plan), compiled->plan.target) << "as without the measurement";
  EXPECT_EQ(isa_of(compiled->plan), compiled->plan.target);
}

// A user-built engine keeps its measurements wherever it is loaded; the cache's engine is separate.
TEST_F(MeasureKernelsTest, AnEngineKeepsItsKernels) {
  EngineDirOptions options{.checkpoint_dir = kModel, .output_dir = dir_ / "engine"};
  const auto build = [&](Device* measure_on) {
    options.measure_on = measure_on;
    BuildReport report;
    const Status status = build_engine_dir(options, registry_, device_->info(), &report);
    EXPECT_TRUE(status.ok()) << status;
    return report.key;
  };
  const auto text = [&] { return *inspect(dir_ / "engine", registry_, device_->info(), {}); };
  const std::string by_cost = build(nullptr);
  EXPECT_THAT(text(), Not(HasSubstr("measured")));
  EXPECT_NE(build(device_.get()), by_cost);
  EXPECT_THAT(text(), HasSubstr(", measured on " + device_->info().name + "\n"));
  DeviceInfo other = device_->info();
  other.name = "another processor";
  BuildOptions cache{.cache_dir = dir_ / "cache"};
  EXPECT_EQ(*ensure_engine(dir_ / "engine", registry_, other, cache), dir_ / "engine/rank0.engine");
  const auto own = io::EngineFile::open(*ensure_engine(kModel, registry_, other, cache));
  EXPECT_EQ(measured_on(own->plan()), "");
}

// A product library with one algorithm, worth taking for <= 256 rows.
int g_num_measured = 0;
Status g_measure_status;
std::vector<std::string> g_measured;  // "kernel [n, k]"
StatusOr<kernels::AlgorithmChoices> measure_fake(
    std::span<const kernels::ProductTuner::Product> products, Device& device) {
  ++g_num_measured;
  RETURN_IF_ERROR(g_measure_status);
  kernels::AlgorithmChoices choices{"fake 7", device.info().name, {}};
  for (const auto& [problem, kernel] : products) {
    const kernels::WeightView& w = problem.weight;
    g_measured.push_back(fmt::format("{} [{}, {}]", kernel, w.n, w.k));
    for (const int64_t rows : {256, 512})
      choices.products.push_back({w.n, w.k, problem.x.dtype, problem.out.dtype, rows,
                                  rows == 256 ? std::vector{66, 20} : std::vector<int32_t>()});
  }
  return choices;
}

class MeasureProductsTest : public MeasureKernelsTest {
 protected:
  void SetUp() override {
    MeasureKernelsTest::SetUp();
    g_num_measured = 0, g_measure_status = ok(), g_measured = {};
    registry_.tuner.measure = measure_fake;
    options_ = {.cache_dir = dir_ / "cache", .measure_on = device_.get()};
  }
  StatusOr<io::Plan> try_build() {
    ASSIGN_OR_RETURN(const auto path,
                     ensure_engine(kModel, registry_, device_->info(), options_, &report_));
    ASSIGN_OR_RETURN(const io::EngineFile file, io::EngineFile::open(path));
    return file.plan();
  }
  io::Plan built() {
    const StatusOr<io::Plan> plan = try_build();
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.value_or(io::Plan());
  }

  BuildOptions options_;
  BuildReport report_;
};

TEST_F(MeasureProductsTest, AnEngineKeepsWhatWasMeasuredWhenItWasBuilt) {
  options_.measure_on = nullptr;
  EXPECT_EQ(built().choices.library, "");
  const std::string key = report_.key;
  options_.measure_on = device_.get(), options_.rebuild = true;
  const kernels::AlgorithmChoices choices = built().choices;
  EXPECT_EQ(report_.key, key) << "the engine is found whatever was measured";
  EXPECT_EQ(choices.library, "fake 7");
  EXPECT_EQ(choices.device, device_->info().name);
  ASSERT_EQ(choices.products.size(), 2 * g_measured.size());
  EXPECT_EQ(choices.products[0].algorithm, (std::vector<int32_t>{66, 20}));
  EXPECT_EQ(num_chosen(choices), g_measured.size());
  options_.rebuild = false;
  EXPECT_EQ(built().choices.products.size(), choices.products.size()) << "from the cache";
  EXPECT_EQ(g_num_measured, 1);
  const std::string text = *inspect(report_.path, registry_, device_->info(), {});
  EXPECT_THAT(text, HasSubstr("products measured with fake 7 on " + device_->info().name));
  EXPECT_THAT(text, HasSubstr(" bf16 to f32, up to 256 rows: 66 20\n"));
}

TEST_F(MeasureProductsTest, EachProductOfAllTokensIsMeasuredOnce) {
  const io::Plan plan = built();
  std::set<std::string> expected;
  for (const io::Call& call : plan.calls) {
    const auto* const linear = std::get_if<kernels::ids::Linear>(&call.op);
    if (!linear || linear->out == plan.logits) continue;
    const io::PlanWeight& w = plan.weights[static_cast<size_t>(linear->weight)];
    expected.insert(fmt::format("{} [{}, {}]", call.kernel, w.n, w.k));
  }
  EXPECT_THAT(g_measured, testing::UnorderedElementsAreArray(expected));
}

TEST_F(MeasureProductsTest, ADeviceWithoutMemoryForItGetsAnEngineAllTheSame) {
  g_measure_status = resource_exhausted("0 bytes are free");
  EXPECT_EQ(built().choices.library, "");
  options_.rebuild = true;
  g_measure_status = internal_error("the device is lost");
  EXPECT_EQ(try_build().status(), g_measure_status);
}

TEST_F(MeasureProductsTest, AnEngineInMemoryIsMeasuredToo) {
  ASSERT_TRUE(write_file_atomic(dir_ / "cache", "a file").ok());
  EXPECT_EQ(built().choices.library, "fake 7");
}

}  // namespace
}  // namespace nereid::convert
