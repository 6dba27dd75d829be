// Mixtures of experts rounded by `nereid quantize`: each expert's calibration rows, and experts
// stacked in one tensor.
#include "cli/tools/quantize_fixture.h"
#include "io/safetensors.h"

namespace nereid::cli {
namespace {

using testing::HasSubstr;

constexpr kernels::WeightFormat kInt4Groups16 = {
    .scheme = kernels::Scheme::kInteger, .bits = 4, .group = 16};

class QuantizeExpertsTest : public QuantizeTest {
 protected:
  std::string bytes_of(const std::string& tensor) const {
    const auto file = io::TensorFile::open(out_ / "model.safetensors");
    const auto it = std::ranges::find(file->tensors(), tensor, &io::StoredTensor::name);
    if (it == file->tensors().end()) return "absent";
    return {reinterpret_cast<const char*>(it->data.data()), it->data.size()};
  }
};

// All experts together get the router's rows, once for each expert picked.
TEST_F(QuantizeExpertsTest, EachSeesTheRowsRoutedToIt) {
  for (const char* family : {"mixtral", "gpt_oss"}) {
    const auto calibration = calibrate(with_tokenizer(family));
    ASSERT_TRUE(calibration);
    constexpr int64_t kHidden = 48, kExpert = 16, kExperts = 4, kPicked = 2;
    quant::InputStatistics all(kHidden, true);
    std::vector<quant::InputStatistics> of_in, of_down;
    for (int i = 0; i < kExperts; ++i) of_in.emplace_back(kHidden, true);
    for (int i = 0; i < kExperts; ++i) of_down.emplace_back(kExpert, true);
    std::map<std::string, quant::InputStatistics*> wanted = {{"layers.1.mlp.router", &all}};
    for (size_t e = 0; e < kExperts; ++e) {
      wanted[fmt::format("layers.1.mlp.gate[{}]", e)] = &of_in[e];
      wanted[fmt::format("layers.1.mlp.down[{}]", e)] = &of_down[e];
    }
    ASSERT_TRUE(calibration->collect(wanted).ok());
    EXPECT_EQ(all.num_rows(), calibration->num_tokens());
    int64_t rows = 0;
    std::vector<double> sums(kHidden * kHidden);
    for (size_t e = 0; e < kExperts; ++e) {
      rows += of_in[e].num_rows();
      EXPECT_GT(of_in[e].num_rows(), 0);
      EXPECT_LT(of_in[e].num_rows(), calibration->num_tokens());
      EXPECT_EQ(of_in[e].num_rows(), of_down[e].num_rows());
      const auto products = of_in[e].mean_products();
      for (size_t i = 0; i < sums.size(); ++i)
        sums[i] += products[i] * static_cast<double>(of_in[e].num_rows());
      for (size_t other = 0; other < e; ++other)
        EXPECT_NE(of_down[e].mean_products(), of_down[other].mean_products());
    }
    EXPECT_EQ(rows, kPicked * calibration->num_tokens());
    const auto products = all.mean_products();
    for (size_t i = 0; i < sums.size(); ++i)
      EXPECT_NEAR(sums[i] / static_cast<double>(rows), products[i],
                  1e-3 * std::fabs(products[i]) + 1e-4);
  }
}

TEST_F(QuantizeExpertsTest, CalibrationMakesThemBetter) {
  std::vector<TokenId> ids;
  for (uint64_t i = 0; i < 200; ++i) ids.push_back(3 + philox(8, i)[0] % 26);
  const std::filesystem::path model = with_tokenizer("gpt_oss");
  const auto calibration = calibrate(model);
  ASSERT_TRUE(calibration);
  // Experts alone.
  convert::QuantizeOptions options{.model_dir = model, .format = kInt4Groups16};
  options.exclude = {"*.self_attn.*"};
  ASSERT_TRUE(quantize(options).ok());
  EXPECT_EQ(report_.num_matrices, 2 * 4 * 3);
  const double plain = divergence(model, ids);
  options.error_feedback = true;
  options.collect = [&](const auto& wanted) { return calibration->collect(wanted); };
  ASSERT_TRUE(quantize(options).ok());
  EXPECT_EQ(report_.num_unseen, 0);
  EXPECT_LT(divergence(model, ids), 0.9 * plain);
}

// An expert without rows is rounded to nearest; the others are calibrated.
TEST_F(QuantizeExpertsTest, FewRowsAreNotCalibratedOn) {
  convert::QuantizeOptions options{.model_dir = source_dir() + "/tests/models/gpt_oss",
                                   .format = kInt4Groups16};
  ASSERT_TRUE(quantize(options).ok());
  const std::string expert = "model.layers.1.mlp.experts.";
  const std::string unseen = bytes_of(expert + "1.up_proj.weight_packed"),
                    seen = bytes_of(expert + "2.up_proj.weight_packed");
  options.error_feedback = true;
  options.collect = [&](std::map<std::string, quant::InputStatistics*> wanted) {
    std::erase_if(wanted, [](const auto& one) { return one.first.ends_with("[1]"); });
    return make_up(wanted, *products_);
  };
  ASSERT_TRUE(quantize(options).ok());
  EXPECT_EQ(report_.num_unseen, 2 * 3);
  EXPECT_EQ(report_.num_matrices, 2 * (4 + 4 * 3));
  EXPECT_EQ(bytes_of(expert + "1.up_proj.weight_packed"), unseen);
  EXPECT_NE(bytes_of(expert + "2.up_proj.weight_packed"), seen);
}

// Float experts, and all biases, are written as separate tensors too.
TEST_F(QuantizeExpertsTest, StackedOnesAreWrittenApart) {
  const std::string model = source_dir() + "/tests/models/gpt_oss";
  ASSERT_EQ(run({"--model_dir", model, "--output_dir", out_.string(), "--qformat", "int8_wo",
                 "--exclude_modules", "model.layers.0.*", "*.down_proj"}),
            0)
      << printed_;
  EXPECT_THAT(printed_, HasSubstr("12 matrices as int8"));
  const std::string layer = "model.layers.0.mlp.experts.";
  EXPECT_EQ(bytes_of(layer + "3.gate_proj.weight").size(), 16u * 48 * 2);
  EXPECT_EQ(bytes_of(layer + "3.gate_proj.bias").size(), 16u * 2);
  EXPECT_EQ(bytes_of("model.layers.1.mlp.experts.0.down_proj.weight").size(), 48u * 16 * 2);
  EXPECT_EQ(bytes_of(layer + "gate_up_proj"), "absent");
  EXPECT_EQ(bytes_of(layer + "down_proj_bias"), "absent");
  std::vector<TokenId> ids;
  for (int32_t i = 0; i < 100; ++i) ids.push_back(3 + i * 37 % 500);
  EXPECT_LT(divergence(model, ids), 1e-3);
}

TEST_F(QuantizeExpertsTest, SequentialCalibrationIsRefused) {
  convert::QuantizeOptions options{.model_dir = source_dir() + "/tests/models/mixtral",
                                   .format = kInt4Groups16};
  options.error_feedback = options.sequential = true;
  options.collect = [&](const auto& wanted) { return make_up(wanted, *products_); };
  options.use_rounded = [](const auto&, auto, int64_t) { return ok(); };
  EXPECT_THAT(quantize(options).message(), HasSubstr("has experts"));
  options.exclude = {"*.experts.*"};
  EXPECT_TRUE(quantize(options).ok());
}

}  // namespace
}  // namespace nereid::cli
