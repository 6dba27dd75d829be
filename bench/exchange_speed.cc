// Time of an exchange between ranks on one host, by size: ranks as threads and as processes.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "comm/shared_group.h"
#include "comm/thread_group.h"
#include "tensor/cpu_device.h"

namespace nereid::bench {
namespace {

struct Options {
  int ranks = 2, threads = 1, turns = 2000;
  bool processes = false;
};

constexpr int64_t kSizes[] = {0,         4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10,
                              256 << 10, 1 << 20, 4 << 20, 64 << 20};  // bytes; 0: a barrier

struct Times {
  double median_us = 0, p99_us = 0;
};

// Time of one call, in calls one after the other.
Times measure(comm::Communicator& comm, int64_t bytes, DType type, int turns, Stream& stream) {
  const auto element = static_cast<int64_t>(size_of(type));
  std::vector<std::byte> in(static_cast<size_t>(bytes)), out(in.size());
  const int64_t most = std::max<int64_t>(20, (int64_t{2} << 30) / std::max<int64_t>(bytes, 1));
  const int num_turns = static_cast<int>(std::min<int64_t>(turns, most));
  std::vector<double> times;
  for (int turn = 0; turn < num_turns + 10; ++turn) {
    const Time start = now();
    const Status status =
        bytes == 0 ? comm.barrier(stream)
                   : comm.all_reduce(in.data(), out.data(), bytes / element, type, stream);
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      std::exit(1);
    }
    if (turn >= 10) times.push_back(seconds(now() - start) * 1e6);
  }
  std::ranges::sort(times);
  return {times[times.size() / 2], times[times.size() * 99 / 100]};
}

// All sizes; rank 0 prints.
Status run_rank(comm::Communicator& comm, const Options& options) {
  const auto device = make_cpu_device({.num_threads = options.threads}).value();
  const auto stream = device->create_stream().value();
  const auto work = [&](Stream& s) -> Status {
    for (const DType type : {DType::kF32, DType::kBF16})
      for (const int64_t bytes : kSizes) {
        const Times t = measure(comm, bytes, type, options.turns, s);
        if (comm.rank() > 0) continue;
        fmt::print("{:>5} {:>10} bytes {:>10.1f} us {:>10.1f} us p99 {:>8.2f} GB/s\n",
                   nereid::name_of(type), bytes, t.median_us, t.p99_us,
                   static_cast<double>(bytes) / t.median_us * 1e-3);
      }
    return ok();
  };
  ASSIGN_OR_RETURN(const auto event, stream->submit(work));
  return event->wait();
}

Status run_processes(const Options& options) {
  ASSIGN_OR_RETURN(const auto segment,
                   comm::create_shared_group(options.ranks, std::chrono::seconds(60)));
  for (int rank = 1; rank < options.ranks; ++rank) {
    if (::fork() != 0) continue;
    const auto comm = comm::attach_shared_group(segment, rank).value();
    std::_Exit(run_rank(*comm, options).ok() ? 0 : 1);
  }
  ASSIGN_OR_RETURN(const auto comm, comm::attach_shared_group(segment, 0));
  RETURN_IF_ERROR(run_rank(*comm, options));
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
  return ok();
}

Status run_threads(const Options& options) {
  ASSIGN_OR_RETURN(auto ranks, comm::make_thread_group(options.ranks, std::chrono::seconds(60)));
  std::vector<std::thread> threads;
  for (int rank = 1; rank < options.ranks; ++rank)
    threads.emplace_back(
        [&, rank] { run_rank(*ranks[static_cast<size_t>(rank)], options).IgnoreError(); });
  const Status status = run_rank(*ranks[0], options);
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Options options;
  CLI::App app{"time of all_reduce on CPUs"};
  app.add_option("--ranks", options.ranks, "ranks of the group");
  app.add_option("--threads", options.threads, "threads of each rank");
  app.add_option("--turns", options.turns, "calls of each size");
  app.add_flag("--processes", options.processes, "ranks are processes, not threads");
  CLI11_PARSE(app, argc, argv);
  const nereid::Status status = options.processes ? nereid::bench::run_processes(options)
                                                  : nereid::bench::run_threads(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
