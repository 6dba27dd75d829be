#include "convert/measure_kernels.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/round_up.h"
#include "graph/candidates.h"
#include "io/engine_writer.h"
#include "kernels/api/pack.h"
#include "kernels/api/validate.h"

namespace nereid::convert {
namespace {

using kernels::Linear;

constexpr std::string_view kMeasuredOn = ", measured on ";
// Kernels estimated to cost more than this multiple of the cheapest are not measured (plain loops).
constexpr double kHopeless = 4;
// Weight memory for timing a product. Larger matrices are cut after some rows; of smaller ones
// there are as many copies as the model has, because layers evict each other from the caches.
constexpr uint64_t kMostWeightBytes = uint64_t{64} << 20;
constexpr int kRounds = 5;
constexpr double kSampleSeconds = 1e-3;  // makes submission time negligible
constexpr double kMostCalls = 256;

// Operand shapes of a plan, for look_up().
struct Shapes {
  const io::Plan& plan;
  View value(io::ValueId id) const {
    const io::Value& v = plan.values[static_cast<size_t>(id)];
    return View::matrix(nullptr, v.dtype, graph::kTypicalRows, v.cols);
  }
  kernels::WeightView weight(io::WeightId id) const {
    return io::view_of(plan.weights[static_cast<size_t>(id)], nullptr);
  }
};

// Calls of a plan with the same problem.
struct Product {
  Linear problem;  // without addresses
  std::vector<size_t> calls;
};

std::vector<Product> products_of(const io::Plan& plan) {
  std::vector<Product> products;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    const auto* const call = std::get_if<kernels::ids::Linear>(&plan.calls[i].op);
    if (!call) continue;
    const Linear problem = kernels::look_up(*call, Shapes{plan});
    const auto [it, is_new] = known.try_emplace(
        fmt::format("{}, {}, {}", kernels::operands_text(problem),
                    static_cast<int>(problem.weight.layout), plan.calls[i].kernel),
        products.size());
    if (is_new) products.push_back({problem, {}});
    products[it->second].calls.push_back(i);
  }
  return products;
}

// A product on zeros in device memory.
class Bench {
 public:
  static StatusOr<Bench> create(const Product& product, Device& device,
                                const std::function<Time()>& clock) {
    Bench out(product.problem, clock);
    ASSIGN_OR_RETURN(out.stream_, device.create_stream());
    out.shorten();
    out.place_weights(product.calls.size());
    Linear& a = out.problem_;
    for (View* const value : {&a.x, &a.scales, &a.out}) {
      const auto bytes = static_cast<size_t>(value->rows * value->stride) * size_of(value->dtype);
      ASSIGN_OR_RETURN(value->data, out.zeros(device, bytes));
    }
    if (is_given(a.bias)) {
      ASSIGN_OR_RETURN(a.bias.data, out.zeros(device, static_cast<size_t>(a.bias.k) * 4));
    }
    ASSIGN_OR_RETURN(void* const blob, out.zeros(device, out.weights_.blob_bytes));
    out.blob_ = static_cast<const std::byte*>(blob);
    return out;
  }

  // Seconds per call over `calls` calls.
  StatusOr<double> time(const kernels::Kernel<Linear>& kernel, int calls) {
    const Time start = clock_();
    RETURN_IF_ERROR(submit([&](Stream& stream) -> Status {
      for (int i = 0; i < calls; ++i) {
        const io::PlanWeight& weight = weights_.weights[next_++ % weights_.weights.size()];
        problem_.weight = io::view_of(weight, blob_);
        RETURN_IF_ERROR(kernel.run(problem_, stream));
      }
      return ok();
    }));
    return seconds(clock_() - start) / calls;
  }

 private:
  Bench(const Linear& problem, const std::function<Time()>& clock)
      : problem_(problem), clock_(clock) {}

  // Cuts a large matrix after some rows.
  void shorten() {
    const uint64_t row_bytes =
        kernels::stored_bytes(problem_.weight) / static_cast<uint64_t>(problem_.weight.n);
    constexpr uint64_t kStep = 256;  // whole panels and blocks
    const uint64_t most = kMostWeightBytes / std::max<uint64_t>(row_bytes, 1) / kStep * kStep;
    const int64_t n = std::min(problem_.weight.n, static_cast<int64_t>(std::max(most, kStep)));
    problem_.weight.n = problem_.out.cols = problem_.out.stride = n;
    if (is_given(problem_.bias)) problem_.bias.k = n;
  }

  // As many matrices as calls, within the memory limit, one behind the other.
  void place_weights(size_t calls) {
    const kernels::WeightView& w = problem_.weight;
    const uint64_t copies =
        std::clamp<uint64_t>(kMostWeightBytes / kernels::stored_bytes(w), 1, calls);
    weights_.weights.assign(copies, {"", w.format, w.n, w.k, w.layout, {}, 1});
    io::place_weights(weights_);
  }

  StatusOr<void*> zeros(Device& device, size_t bytes) {
    ASSIGN_OR_RETURN(Buffer buffer, device.allocate(bytes));
    void* const data = buffer.data();
    memory_.push_back(std::move(buffer));
    // Written, so that it is not the shared zero page.
    if (bytes > 0) RETURN_IF_ERROR(submit([&](Stream& s) { return s.fill(data, 0, bytes); }));
    return data;
  }

  Status submit(std::function<Status(Stream&)> work) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Event> event, stream_->submit(std::move(work)));
    return event->wait();
  }

  Linear problem_;
  const std::function<Time()>& clock_;
  io::Plan weights_;
  std::vector<Buffer> memory_;
  const std::byte* blob_ = nullptr;
  std::unique_ptr<Stream> stream_;  // ends before its memory
  size_t next_ = 0;                 // weight index
};

// Kernels to time: the plan's own first, then those within kHopeless.
kernels::Table<Linear> contenders(const Linear& problem, std::string_view chosen,
                                  const kernels::Registry& registry, const DeviceInfo& info) {
  kernels::Table<Linear> found = graph::candidates(registry, problem, info);
  double least = std::numeric_limits<double>::infinity();
  for (const auto& kernel : found) least = std::min(least, kernel.cost(problem, info));
  std::erase_if(found, [&](const auto& kernel) {
    return kernel.name != chosen && kernel.cost(problem, info) > kHopeless * least;
  });
  std::ranges::stable_partition(found, [&](const auto& kernel) { return kernel.name == chosen; });
  return found;
}

// The fastest kernel; empty: the plan's own.
StatusOr<std::string> faster_kernel(const Product& product, std::string_view chosen,
                                    const kernels::Registry& registry, Device& device,
                                    const std::function<Time()>& clock) {
  const kernels::Table<Linear> kernels =
      contenders(product.problem, chosen, registry, device.info());
  if (kernels.size() < 2 || kernels[0].name != chosen) return std::string();
  ASSIGN_OR_RETURN(Bench bench, Bench::create(product, device, clock));
  double slowest = 0;
  for (const auto& kernel : kernels) RETURN_IF_ERROR(bench.time(kernel, 1).status());
  for (const auto& kernel : kernels) {
    ASSIGN_OR_RETURN(const double time, bench.time(kernel, 1));
    slowest = std::max(slowest, time);
  }
  const int calls = static_cast<int>(std::clamp(kSampleSeconds / slowest, 1.0, kMostCalls));
  std::vector<double> best(kernels.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < kernels.size(); ++i) {
      ASSIGN_OR_RETURN(const double time, bench.time(kernels[i], calls));
      best[i] = std::min(best[i], time);
    }
  const auto fastest = static_cast<size_t>(std::ranges::min_element(best) - best.begin());
  if (best[fastest] > kWorthwhile * best[0]) return std::string();
  log_info("linear {}: {} takes {:.1f} us, {} {:.1f} us",
           kernels::operand_text(product.problem.weight), kernels[fastest].name,
           best[fastest] * 1e6, chosen, best[0] * 1e6);
  return std::string(kernels[fastest].name);
}

}  // namespace

Status measure_kernels(io::Plan& plan, const kernels::Registry& registry, Device& device,
                       const std::function<Time()>& clock) {
  if (device.info().kind != DeviceKind::kCpu)
    return unsupported("kernels are measured on CPUs only, not on {}", device.info().id());
  const Time start = now();
  const std::vector<Product> products = products_of(plan);
  size_t changed = 0;
  for (const Product& product : products) {
    ASSIGN_OR_RETURN(
        const std::string kernel,
        faster_kernel(product, plan.calls[product.calls[0]].kernel, registry, device, clock));
    if (kernel.empty()) continue;
    ++changed;
    for (const size_t call : product.calls) plan.calls[call].kernel = kernel;
  }
  plan.target += fmt::format("{}{}", kMeasuredOn, device.info().name);
  log_info("kernels of {} products measured in {:.2f} s: {} changed", products.size(),
           seconds(now() - start), changed);
  return ok();
}

Status measure_products(io::Plan& plan, const kernels::Registry& registry, Device& device) {
  if (!registry.tuner.measure || !plan.choices.library.empty()) return ok();
  std::vector<kernels::ProductTuner::Product> wanted;
  for (const Product& product : products_of(plan)) {
    const io::Call& call = plan.calls[product.calls[0]];
    const io::ValueId out = std::get<kernels::ids::Linear>(call.op).out;
    if (plan.values[static_cast<size_t>(out)].extent == io::RowCount::kTokens)
      wanted.push_back({product.problem, call.kernel});
  }
  const Time start = now();
  StatusOr<kernels::AlgorithmChoices> choices = registry.tuner.measure(wanted, device);
  if (absl::IsResourceExhausted(choices.status())) {
    log_warn("products are not measured: {}", message(choices.status()));
    return ok();
  }
  RETURN_IF_ERROR(choices.status());
  plan.choices = *std::move(choices);
  if (plan.choices.library.empty()) return ok();
  log_info("products of {} kinds measured in {:.2f} s: {} of {} choices are not the first of {}",
           wanted.size(), seconds(now() - start), num_chosen(plan.choices),
           plan.choices.products.size(), plan.choices.library);
  return ok();
}

size_t num_chosen(const kernels::AlgorithmChoices& choices) {
  return static_cast<size_t>(std::ranges::count_if(
      choices.products, [](const auto& choice) { return !choice.algorithm.empty(); }));
}

std::string_view measured_on(const io::Plan& plan) {
  const std::string_view target = plan.target;
  const size_t at = target.find(kMeasuredOn);
  return at == target.npos ? std::string_view() : target.substr(at + kMeasuredOn.size());
}

std::string_view isa_of(const io::Plan& plan) {
  return std::string_view(plan.target).substr(0, plan.target.find(kMeasuredOn));
}

}  // namespace nereid::convert
