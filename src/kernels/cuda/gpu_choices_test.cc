#include "kernels/cuda/gpu_choices_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/testing/cases.h"
#include "tensor/floats.h"

namespace nereid::kernels {
namespace {

constexpr int64_t kOutputs = 768, kColumns = 8192, kManyRows = 300;
constexpr std::string_view kKernels[] = {"hopper", "cublaslt"};  // kernels that use the library

// A product in device memory.
class Product {
 public:
  explicit Product(OpenedDevice& opened) : opened_(opened) {}

  Status make() {
    ASSIGN_OR_RETURN(x_, opened_.device->upload(x_numbers_.data(), bytes_of(x_numbers_)));
    ASSIGN_OR_RETURN(weight_,
                     opened_.device->upload(weight_numbers_.data(), bytes_of(weight_numbers_)));
    ASSIGN_OR_RETURN(out_, opened_.device->allocate(kManyRows * kOutputs * sizeof(float)));
    ASSIGN_OR_RETURN(host_, opened_.device->allocate_host(out_.size()));
    problem_.x = View::matrix(x_.data(), DType::kBF16, kManyRows, kColumns);
    problem_.weight = {weight_.data(), WeightLayout::kRowMajor, kOutputs, kColumns};
    problem_.out = View::matrix(out_.data(), DType::kF32, kManyRows, kOutputs);
    for (const Kernel<Linear>& kernel : opened_.registry.table<Linear>())
      for (const std::string_view name : kKernels)
        if (!kernel_ && kernel.name == name && kernel.can(problem_, opened_.device->info()))
          kernel_ = &kernel;
    return kernel_ ? ok() : unsupported("no kernel that uses the library takes the product");
  }

  StatusOr<AlgorithmChoices> measure() {
    const ProductTuner::Product product = {problem_, kernel_->name};
    return opened_.registry.tuner.measure({&product, 1}, *opened_.device);
  }

  // On a new stream.
  StatusOr<std::vector<float>> multiply(const AlgorithmChoices& choices) {
    ASSIGN_OR_RETURN(const auto stream, opened_.device->create_stream());
    opened_.registry.tuner.use(choices, *stream);
    ASSIGN_OR_RETURN(const auto event, stream->submit([&](Stream& s) -> Status {
      RETURN_IF_ERROR(s.fill(out_.data(), 0xff, out_.size()));
      RETURN_IF_ERROR(kernel_->run(problem_, s));
      return s.copy(host_.data(), out_.data(), out_.size());
    }));
    RETURN_IF_ERROR(event->wait());
    const auto* const values = static_cast<const float*>(host_.data());
    return std::vector<float>(values, values + kManyRows * kOutputs);
  }

  // Max error relative to the error bound of f32 sums.
  double worst_error(const std::vector<float>& results) const {
    double worst = 0;
    for (int64_t row = 0; row < kManyRows; ++row)
      for (int64_t output = 0; output < kOutputs; ++output) {
        double sum = 0, magnitudes = 0;
        for (int64_t k = 0; k < kColumns; ++k) {
          const double product = double{to_float(x_numbers_[row * kColumns + k])} *
                                 double{to_float(weight_numbers_[output * kColumns + k])};
          sum += product;
          magnitudes += std::abs(product);
        }
        const double error = std::abs(double{results[row * kOutputs + output]} - sum) /
                             (testing::sum_error(kColumns) * magnitudes);
        worst = error <= worst ? worst : error;  // keeps NaN
      }
    return worst;
  }

 private:
  static std::vector<BF16> random(uint64_t seed, int64_t size) {
    std::vector<BF16> numbers;
    for (int64_t i = 0; i < size; ++i)
      numbers.push_back(to_bf16(2 * uniform(seed, static_cast<uint64_t>(i)) - 1));
    return numbers;
  }
  static size_t bytes_of(const std::vector<BF16>& numbers) { return numbers.size() * sizeof(BF16); }

  OpenedDevice& opened_;
  const std::vector<BF16> x_numbers_ = random(7, int64_t{kManyRows} * kColumns);
  const std::vector<BF16> weight_numbers_ = random(8, int64_t{kOutputs} * kColumns);
  Buffer x_, weight_, out_, host_;
  Linear problem_;
  const Kernel<Linear>* kernel_ = nullptr;
};

// Description of the failure; empty: none.
StatusOr<std::string> problem_of(OpenedDevice& opened, size_t& num_chosen) {
  Product product(opened);
  RETURN_IF_ERROR(product.make());
  ASSIGN_OR_RETURN(const AlgorithmChoices measured, product.measure());
  if (measured.library.empty() || measured.device != opened.device->info().name)
    return std::string("it was not measured");
  for (const ProductChoice& c : measured.products)
    if (c.n != kOutputs || c.k != kColumns || c.rows < 1)
      return std::string("a choice is of another product");
  num_chosen = static_cast<size_t>(std::ranges::count_if(
      measured.products, [](const ProductChoice& c) { return !c.algorithm.empty(); }));

  ASSIGN_OR_RETURN(const std::vector<float> first, product.multiply({}));
  ASSIGN_OR_RETURN(const std::vector<float> chosen, product.multiply(measured));
  ASSIGN_OR_RETURN(const std::vector<float> again, product.multiply(measured));
  if (chosen != again) return std::string("two streams with the same choices differ");
  const double first_error = product.worst_error(first), error = product.worst_error(chosen);
  std::printf("      choices of products: error %.3f of the tolerance, the library's first %.3f\n",
              error, first_error);
  if (!(first_error <= 1 && error <= 1)) return std::string("results are wrong");

  AlgorithmChoices other = measured;
  other.library = "another";
  AlgorithmChoices hostile = measured;
  for (ProductChoice& c : hostile.products)
    c.algorithm.assign(16, std::numeric_limits<int32_t>::max());
  hostile.products.push_back({kOutputs, kColumns, DType::kBF16, DType::kF32, 1, {-1}});
  for (const AlgorithmChoices& unusable : {other, hostile}) {
    ASSIGN_OR_RETURN(const std::vector<float> got, product.multiply(unusable));
    if (got != first) return std::string("choices that cannot be used change results");
  }
  return std::string();
}

}  // namespace

bool check_choices(OpenedDevice& opened) {
  if (!opened.registry.tuner.measure) {
    std::printf("SKIP  choices of products: there is no library\n");
    return true;
  }
  size_t num_chosen = 0;
  const StatusOr<std::string> problem = problem_of(opened, num_chosen);
  const std::string text = problem.ok() ? *problem : std::string(message(problem.status()));
  if (text.empty())
    std::printf("PASS  choices of products: %zu are not the library's first\n", num_chosen);
  else
    std::printf("FAIL  choices of products: %s\n", text.c_str());
  return text.empty();
}

}  // namespace nereid::kernels
