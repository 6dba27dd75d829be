// Benchmarks cuBLASLt's algorithms for an engine's products, and applies stored choices.
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/round_up.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/table.h"
#include "tensor/cuda_check.h"

namespace nereid::kernels::cuda {
namespace {

// Row counts measured; each choice applies to counts above the previous one. Up to 1,024 the number
// of 128-row tiles is constant within an interval.
constexpr auto kRows = std::to_array<int64_t>({16, 32, 64, 128, 192, 256, 384, 512, 640, 768, 896,
                                               1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192});
// Max time relative to the library's first choice for an algorithm to be taken.
constexpr double kWorthwhile = 0.98;
// Algorithms slower than kFarBehind * the fastest in the first round are dropped.
constexpr double kFarBehind = 1.15;
constexpr int kRounds = 5;
// The fastest is compared with the library's first choice this often and must win all but one: by
// noise, one of eight equally fast algorithms always measures as the fastest.
constexpr int kComparisons = 9;
constexpr double kBurstSeconds = 1e-3;
constexpr double kMostCalls = 32;
// Weights used in turn: several times the L2 cache.
constexpr int64_t kColdBytes = int64_t{256} << 20;
// Time limit; remaining products use the library's choice.
constexpr double kMostSeconds = 30;
const std::vector<int32_t> kFirst;  // the library's own choice
constexpr size_t kPatternBytes = size_t{4} << 20;

// Random numbers of a type: products of zeros use less power, so that other algorithms win.
std::vector<uint32_t> pattern_of(DType type) {
  std::vector<uint32_t> words(kPatternBytes / sizeof(uint32_t));
  for (size_t i = 0; i < words.size(); i += 4) {
    const auto random = philox(1, i);
    for (size_t j = 0; j < 4; ++j) {
      // Two bf16 in ±[1/16, 1), or four f8e4m3 in ±[1/4, 4).
      const uint32_t kept = type == DType::kF8E4M3 ? 0x9f9f9f9f : 0x81ff81ff;
      const uint32_t exponent = type == DType::kF8E4M3 ? 0x28282828 : 0x3d803d80;
      words[i + j] = (random[j] & kept) + exponent;
    }
  }
  return words;
}

// A product with random operands in device memory.
class Bench {
 public:
  static StatusOr<Bench> create(const Linear& problem, Device& device) {
    Bench out(problem, device);
    ASSIGN_OR_RETURN(out.stream_, device.create_stream());
    const std::vector<uint32_t> pattern = pattern_of(problem.x.dtype);
    ASSIGN_OR_RETURN(out.pattern_, device.upload(pattern.data(), kPatternBytes));
    RETURN_IF_ERROR(out.place());
    return out;
  }

  // The fastest algorithm for a row count; empty: the library's first.
  StatusOr<std::vector<int32_t>> fastest(int64_t rows) {
    set_rows(problem_, rows, rows);
    ASSIGN_OR_RETURN(const auto algorithms, list_algorithms(problem_, stream()));
    std::vector<Candidate> candidates;
    for (const auto& algorithm : algorithms) {
      StatusOr<Candidate> candidate = prepare(algorithm);
      RETURN_IF_ERROR(device_.health().failure());
      if (candidate.ok()) candidates.push_back(*std::move(candidate));
    }
    // Listed algorithms that cannot run are skipped.
    if (candidates.size() < 2 || candidates[0].algorithm != algorithms[0]) return kFirst;
    for (int round = 0; round < kRounds; ++round) {
      for (Candidate& c : candidates) {
        ASSIGN_OR_RETURN(c.seconds.emplace_back(), time(c));
      }
      if (round == 0) leave_out_slow(candidates);
    }
    const auto best = std::ranges::min_element(candidates, {}, &Candidate::median);
    if (best->median() > kWorthwhile * candidates[0].median()) return kFirst;
    ASSIGN_OR_RETURN(const bool is_faster, is_worthwhile(*best, candidates[0]));
    return is_faster ? best->algorithm : kFirst;
  }

  // Whether the product's kernel uses the library for this row count.
  bool is_left(std::string_view kernel, int64_t rows) {
    set_rows(problem_, rows, rows);
    return is_for_library(kernel, problem_, device_.info().sm);
  }

 private:
  struct Candidate {
    std::vector<int32_t> algorithm;
    int num_calls = 1;
    std::unique_ptr<Recording> calls = {};
    std::vector<double> seconds = {};  // per call, by round

    double median() const {
      std::vector<double> sorted = seconds;
      std::ranges::sort(sorted);
      return sorted[sorted.size() / 2];
    }
  };
  struct Timer {
    cudaEvent_t ends[2] = {};
    ~Timer() {
      for (const cudaEvent_t end : ends)
        if (end) (void)cudaEventDestroy(end);
    }
  };

  Bench(const Linear& problem, Device& device) : problem_(problem), device_(device) {}

  CudaStream& stream() { return static_cast<CudaStream&>(*stream_); }

  // Allocates all operands.
  Status place() {
    Linear& a = problem_;
    set_rows(a, kRows.back(), kRows.back());
    for (View* const value : {&a.x, &a.scales, &a.out}) {
      value->stride = value->cols;
      const auto bytes = static_cast<size_t>(value->rows * value->cols) * size_of(value->dtype);
      ASSIGN_OR_RETURN(value->data, numbers(bytes));
    }
    const auto size = static_cast<int64_t>(size_of(a.x.dtype));  // x and weight are of one type
    weight_bytes_ = round_up(a.weight.n * a.weight.k * size, int64_t{256});
    num_weights_ = std::max<int64_t>(kColdBytes / weight_bytes_, 1);
    ASSIGN_OR_RETURN(void* const weights,
                     numbers(static_cast<size_t>(weight_bytes_ * num_weights_)));
    weights_ = static_cast<const std::byte*>(weights);
    a.weight.data = weights_;
    if (a.x.dtype == DType::kF8E4M3) {
      ASSIGN_OR_RETURN(void* const scales, numbers(static_cast<size_t>(a.weight.n) * 4));
      a.weight.scales = static_cast<const float*>(scales);
    }
    if (is_given(a.bias)) {
      ASSIGN_OR_RETURN(a.bias.data, numbers(static_cast<size_t>(a.bias.k) * sizeof(BF16)));
    }
    return ok();
  }

  // Device memory filled with the pattern.
  StatusOr<void*> numbers(size_t bytes) {
    ASSIGN_OR_RETURN(Buffer buffer, device_.allocate(bytes));
    std::byte* const data = buffer.bytes();
    memory_.push_back(std::move(buffer));
    RETURN_IF_ERROR(submit([&](Stream& stream) {
      for (size_t at = 0; at < bytes; at += kPatternBytes)
        RETURN_IF_ERROR(
            stream.copy(data + at, pattern_.data(), std::min(kPatternBytes, bytes - at)));
      return ok();
    }));
    return data;
  }

  Status submit(const std::function<Status(Stream&)>& work) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Event> event, stream_->submit(work));
    return event->wait();
  }

  // Removes candidates far behind, except the library's first.
  static void leave_out_slow(std::vector<Candidate>& candidates) {
    const double least = std::ranges::min_element(candidates, {}, &Candidate::median)->median();
    const std::vector<int32_t> first = candidates[0].algorithm;
    std::erase_if(candidates, [&](const Candidate& c) {
      return c.median() > kFarBehind * least && c.algorithm != first;
    });
  }

  // Runs it once and records it.
  StatusOr<Candidate> prepare(const std::vector<int32_t>& algorithm) {
    const Linear& a = problem_;
    set_choices({{}, {}, {{a.weight.n, a.weight.k, a.x.dtype, a.out.dtype, a.x.rows, algorithm}}},
                stream());
    Candidate candidate{algorithm};
    const auto run = [&](Stream& s) { return run_calls(candidate.num_calls, s); };
    RETURN_IF_ERROR(submit(run));
    ASSIGN_OR_RETURN(const double once, timed(run));
    candidate.num_calls = static_cast<int>(std::clamp(kBurstSeconds / once, 1.0, kMostCalls));
    RETURN_IF_ERROR(submit([&](Stream& s) -> Status {
      ASSIGN_OR_RETURN(candidate.calls, s.record(run));
      return ok();
    }));
    return candidate;
  }

  Status run_calls(int num_calls, Stream& s) {
    for (int i = 0; i < num_calls; ++i) {
      problem_.weight.data = weights_ + next_++ % num_weights_ * weight_bytes_;
      RETURN_IF_ERROR(run_cublaslt(problem_, static_cast<CudaStream&>(s)));
    }
    return ok();
  }

  // Seconds on the device.
  StatusOr<double> timed(const std::function<Status(Stream&)>& work) {
    Timer timer;
    const int index = device_.info().index;
    for (cudaEvent_t& end : timer.ends) RETURN_IF_CUDA_ERROR(index, cudaEventCreate(&end));
    RETURN_IF_ERROR(submit([&](Stream& s) -> Status {
      RETURN_IF_CUDA_ERROR(index, cudaEventRecord(timer.ends[0], stream().handle()));
      RETURN_IF_ERROR(work(s));
      RETURN_IF_CUDA_ERROR(index, cudaEventRecord(timer.ends[1], stream().handle()));
      return ok();
    }));
    float milliseconds = 0;
    RETURN_IF_CUDA_ERROR(index, cudaEventElapsedTime(&milliseconds, timer.ends[0], timer.ends[1]));
    return milliseconds * 1e-3;
  }
  StatusOr<double> time(const Candidate& c) {
    ASSIGN_OR_RETURN(const double all, timed([&](Stream& s) { return s.replay(*c.calls); }));
    return all / c.num_calls;
  }

  // Compares it with the library's first choice, alternating.
  StatusOr<bool> is_worthwhile(const Candidate& best, const Candidate& first) {
    std::vector<double> ratios;
    for (int i = 0; i < kComparisons; ++i) {
      const bool swapped = i % 2 == 1;
      ASSIGN_OR_RETURN(double a, time(swapped ? best : first));
      ASSIGN_OR_RETURN(double b, time(swapped ? first : best));
      if (swapped) std::swap(a, b);
      ratios.push_back(b / a);
    }
    std::ranges::sort(ratios);
    return ratios[kComparisons / 2] <= kWorthwhile && ratios[kComparisons - 2] < 1;
  }

  Linear problem_;
  Device& device_;
  std::vector<Buffer> memory_;
  Buffer pattern_;
  const std::byte* weights_ = nullptr;
  int64_t weight_bytes_ = 0, num_weights_ = 1, next_ = 0;
  std::unique_ptr<Stream> stream_;  // destroyed before its memory
};

Status measure(const ProductTuner::Product& product, Device& device, AlgorithmChoices& choices) {
  ASSIGN_OR_RETURN(Bench bench, Bench::create(product.problem, device));
  const Linear& a = product.problem;
  int num_rows = 0, num_chosen = 0;
  for (const int64_t rows : kRows) {
    if (!bench.is_left(product.kernel, rows)) continue;
    StatusOr<std::vector<int32_t>> algorithm = bench.fastest(rows);
    if (absl::IsUnimplemented(algorithm.status())) continue;
    RETURN_IF_ERROR(algorithm.status());
    ++num_rows;
    num_chosen += !algorithm->empty();
    choices.products.push_back(
        {a.weight.n, a.weight.k, a.x.dtype, a.out.dtype, rows, *std::move(algorithm)});
  }
  log_info("product [{}, {}] of {}: for {} of {} numbers of rows another than {}'s first choice",
           a.weight.n, a.weight.k, name_of(a.x.dtype), num_chosen, num_rows, choices.library);
  return ok();
}

}  // namespace

StatusOr<AlgorithmChoices> measure_products(std::span<const ProductTuner::Product> products,
                                            Device& device) {
  AlgorithmChoices choices{cublaslt_name(), device.info().name, {}};
  const Time start = now();
  for (const ProductTuner::Product& product : products) {
    const Linear& a = product.problem;
    Linear many = a;
    set_rows(many, kRows.back(), kRows.back());
    if (!is_for_library(product.kernel, many, device.info().sm)) continue;
    if (seconds(now() - start) > kMostSeconds) {
      log_info("product [{}, {}]: not measured, as {} s have passed", a.weight.n, a.weight.k,
               kMostSeconds);
      continue;
    }
    RETURN_IF_ERROR(measure(product, device, choices));
  }
  if (choices.products.empty()) return AlgorithmChoices();
  return choices;
}

void use_choices(const AlgorithmChoices& choices, Stream& stream) {
  const std::string& device = stream.device().info().name;
  const std::string library = cublaslt_name();
  if (choices.library.empty()) return;
  if (choices.library != library || choices.device != device) {
    log_info(
        "the engine's products were measured with {} on {}, this is {} on {}: {} chooses by "
        "itself; build the engine anew to measure here",
        choices.library, choices.device, library, device, library);
    return;
  }
  set_choices(choices, static_cast<CudaStream&>(stream));
}

}  // namespace nereid::kernels::cuda
