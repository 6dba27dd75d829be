// Exchange between GPUs: microseconds of one sum over ranks in a captured graph of 100, beside
// NCCL; with residual and norm; what the group measured for itself. usage: exchange_bench
// [--devices 0,1] [--calls N] [--repeats N] [--max-bytes N]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "kernels/open.h"

namespace nereid::kernels {
namespace {

struct BenchOptions {
  std::vector<int> devices;
  int calls = 100;   // in a graph
  int replays = 10;  // of the graph, behind each other
  int repeats = 7;   // timed; the median counts
  int64_t max_bytes = int64_t{64} << 20;
  int64_t width = 4096;  // of a row of norms
};

struct BenchRank {
  OpenedDevice opened;
  std::unique_ptr<Stream> stream;
  Buffer x, out, sum, weight;
};

enum class What : uint8_t { kSum, kFused, kApart, kColumns, kBroadcast };

class ExchangeBench {
 public:
  explicit ExchangeBench(const BenchOptions& options) : options_(options) {}

  Status prepare() {
    for (const int index : options_.devices) {
      BenchRank rank;
      ASSIGN_OR_RETURN(rank.opened, open_device(fmt::format("cuda:{}", index)));
      Device& device = *rank.opened.device;
      const auto bytes = static_cast<size_t>(options_.max_bytes);
      ASSIGN_OR_RETURN(rank.stream, device.create_stream());
      // Random bits of small numbers: zeros would flatter.
      std::vector<uint16_t> numbers(bytes / 2);
      uint32_t state = static_cast<uint32_t>(index) + 1;
      for (uint16_t& number : numbers) {
        state = state * 1664525u + 1013904223u;
        number = static_cast<uint16_t>(0x3c00u | (state >> 16 & 0x83ffu));
      }
      ASSIGN_OR_RETURN(rank.x, device.upload(numbers.data(), bytes));
      ASSIGN_OR_RETURN(rank.out, device.upload(numbers.data(), bytes));
      ASSIGN_OR_RETURN(rank.sum, device.upload(numbers.data(), bytes));
      ASSIGN_OR_RETURN(rank.weight, device.upload(numbers.data(), size_t(options_.width) * 2));
      ranks_.push_back(std::move(rank));
    }
    return ok();
  }

  Status join(const std::string& way) {
    endpoints_.clear();
    std::vector<const OpenedDevice*> devices;
    for (const BenchRank& rank : ranks_) devices.push_back(&rank.opened);
    ASSIGN_OR_RETURN(endpoints_, join_devices(devices, {.way = way}));
    return ok();
  }
  std::string text() const { return endpoints_[0]->text(); }

  // Median over repeats of the slowest rank's microseconds for one call.
  StatusOr<double> time(What what, int64_t bytes) {
    std::barrier<> meeting(static_cast<int64_t>(ranks_.size()));
    std::vector<Status> results(ranks_.size());
    std::vector<std::vector<double>> times(ranks_.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks_.size(); ++r)
      threads.emplace_back([&, r] {
        results[r] = time_rank(r, what, bytes, meeting, times[r]);
        if (!results[r].ok()) {
          endpoints_[r]->abort(results[r]);
          meeting.arrive_and_drop();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const Status& result : results) RETURN_IF_ERROR(result);
    std::vector<double> slowest;
    for (size_t i = 0; i < times[0].size(); ++i) {
      double most = 0;
      for (const auto& of_rank : times) most = std::max(most, of_rank[i]);
      slowest.push_back(most);
    }
    std::ranges::sort(slowest);
    return slowest[slowest.size() / 2];
  }

 private:
  Status time_rank(size_t r, What what, int64_t bytes, std::barrier<>& meeting,
                   std::vector<double>& times) {
    BenchRank& rank = ranks_[r];
    const int calls = bytes <= (4 << 20) ? options_.calls : 10;
    const auto work = [&](Stream& s) -> Status {
      for (int i = 0; i < calls; ++i) RETURN_IF_ERROR(call(r, what, bytes, s));
      return ok();
    };
    std::unique_ptr<Recording> recording;
    const auto run = [&](const std::function<Status(Stream&)>& f) -> Status {
      ASSIGN_OR_RETURN(const auto event, rank.stream->submit(f));
      RETURN_IF_ERROR(event->wait());
      return endpoints_[r]->failure();
    };
    RETURN_IF_ERROR(run(work));
    RETURN_IF_ERROR(run([&](Stream& s) -> Status {
      ASSIGN_OR_RETURN(recording, s.record(work));
      return ok();
    }));
    for (int i = 0; i <= options_.repeats; ++i) {
      meeting.arrive_and_wait();
      const Time start = now();
      RETURN_IF_ERROR(run([&](Stream& s) -> Status {
        for (int k = 0; k < options_.replays; ++k) RETURN_IF_ERROR(s.replay(*recording));
        return ok();
      }));
      if (i > 0) times.push_back(1e6 * seconds(now() - start) / (calls * options_.replays));
    }
    return ok();
  }

  Status call(size_t r, What what, int64_t bytes, Stream& s) {
    BenchRank& rank = ranks_[r];
    comm::Communicator& endpoint = *endpoints_[r];
    const int64_t count = bytes / 2, rows = count / options_.width;
    switch (what) {
      case What::kSum:
        return endpoint.all_reduce(rank.x.data(), rank.out.data(), count, DType::kBF16, s);
      case What::kBroadcast:
        return endpoint.broadcast(rank.x.data(), static_cast<size_t>(bytes), 0, s);
      case What::kColumns: {
        const View x = View::matrix(rank.x.data(), DType::kBF16, rows, options_.width);
        const View out = View::matrix(rank.out.data(), DType::kBF16, rows, options_.width);
        return endpoint.gather_columns(x, 8, out, s);
      }
      default:
        break;
    }
    comm::ReducedNorm a;
    a.x = View::matrix(rank.x.data(), DType::kBF16, rows, options_.width);
    a.sum = View::matrix(rank.sum.data(), DType::kF32, rows, options_.width);
    a.weight = rank.weight.data();
    a.eps = 1e-5f;
    a.out = View::matrix(rank.out.data(), DType::kBF16, rows, options_.width);
    if (what == What::kFused) return endpoint.all_reduce_norm(a, s);
    RETURN_IF_ERROR(endpoint.all_reduce(a.x.data, a.x.data, count, DType::kBF16, s));
    Norm norm = {};
    norm.x = norm.sum = a.sum;
    norm.add = a.x;
    norm.weight.data = a.weight;
    norm.weight.n = 1;
    norm.weight.k = options_.width;
    norm.eps = a.eps;
    norm.out = a.out;
    ASSIGN_OR_RETURN(const Kernel<Norm>* kernel,
                     select(rank.opened.registry.table<Norm>(), norm, rank.opened.device->info()));
    return kernel->run(norm, s);
  }

  const BenchOptions options_;
  std::vector<BenchRank> ranks_;
  std::vector<std::unique_ptr<comm::Communicator>> endpoints_;
};

Status bench(BenchOptions options) {
  if (options.devices.empty())
    for (int i = 0; i < 8 && open_device(fmt::format("cuda:{}", i)).ok(); ++i)
      options.devices.push_back(i);
  ExchangeBench bench(options);
  RETURN_IF_ERROR(bench.prepare());
  const int64_t norm_bytes = options.max_bytes / 2;
  struct Line {
    int64_t bytes;
    double sum = 0, nccl = 0, fused = 0, apart = 0, columns = 0, broadcast = 0;
  };
  std::vector<Line> lines;
  for (int64_t bytes = 8 << 10; bytes <= options.max_bytes; bytes *= 2) lines.push_back({bytes});
  RETURN_IF_ERROR(bench.join(""));
  fmt::print("{}\n\n", bench.text());
  for (Line& line : lines) {
    ASSIGN_OR_RETURN(line.sum, bench.time(What::kSum, line.bytes));
    if (line.bytes > norm_bytes || line.bytes > (4 << 20)) continue;
    ASSIGN_OR_RETURN(line.fused, bench.time(What::kFused, line.bytes));
    ASSIGN_OR_RETURN(line.apart, bench.time(What::kApart, line.bytes));
    ASSIGN_OR_RETURN(line.columns, bench.time(What::kColumns, line.bytes));
    ASSIGN_OR_RETURN(line.broadcast, bench.time(What::kBroadcast, line.bytes));
  }
  if (const Status joined = bench.join("nccl"); joined.ok()) {
    for (Line& line : lines) {
      ASSIGN_OR_RETURN(line.nccl, bench.time(What::kSum, line.bytes));
    }
  } else {
    fmt::print("without NCCL: {}\n", message(joined));
  }
  const auto ranks = static_cast<double>(options.devices.size());
  fmt::print("{} ranks, a graph of {} calls, us for one; norms of rows of {} bf16\n", ranks,
             options.calls, options.width);
  fmt::print("{:>10} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9}\n", "bytes", "sum", "NCCL", "GB/s",
             "sum+norm", "norm apart", "columns", "broadcast");
  for (const Line& line : lines)
    fmt::print("{:>10} {:>9.2f} {:>9.2f} {:>9.1f} {:>9.2f} {:>11.2f} {:>9.2f} {:>9.2f}\n",
               line.bytes, line.sum, line.nccl,
               2e-3 * (ranks - 1) / ranks * static_cast<double>(line.bytes) / line.sum, line.fused,
               line.apart, line.columns, line.broadcast);
  return ok();
}

}  // namespace
}  // namespace nereid::kernels

int main(int argc, char** argv) {
  nereid::kernels::BenchOptions o;
  CLI::App app("exchange between GPUs in captured graphs, medians");
  app.add_option("--devices", o.devices, "numbers of the cards; all by default")->delimiter(',');
  app.add_option("--calls", o.calls, "in a graph")->capture_default_str();
  app.add_option("--repeats", o.repeats, "timed runs for each size")->capture_default_str();
  app.add_option("--max-bytes", o.max_bytes, "of a sum")->capture_default_str();
  app.add_option("--width", o.width, "numbers in a row of norms")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const nereid::Status status = nereid::kernels::bench(o);
  if (!status.ok()) fmt::print(stderr, "exchange_bench: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
