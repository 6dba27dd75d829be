#include "front/http/io_stall.h"

#include <fmt/format.h>

#include <algorithm>

namespace nereid::front {

IoStalls& IoStalls::get() {
  static IoStalls all;
  return all;
}

void IoStalls::add(uint64_t ns) {
  static std::atomic<size_t> next{0};
  thread_local const size_t own = next.fetch_add(1) % 16;
  const auto bound =
      std::lower_bound(kBounds.begin(), kBounds.end(), static_cast<double>(ns) * 1e-9);
  Shard& shard = shards_[own];
  shard.counts[static_cast<size_t>(bound - kBounds.begin())].fetch_add(1,
                                                                       std::memory_order_relaxed);
  shard.sum_ns.fetch_add(ns, std::memory_order_relaxed);
}

uint64_t IoStalls::num_longer_than(double seconds) const {
  uint64_t count = 0;
  for (const Shard& shard : shards_)
    for (size_t i = 0; i <= kBounds.size(); ++i)
      if (i == kBounds.size() || kBounds[i] > seconds) count += shard.counts[i];
  return count;
}

std::string IoStalls::text() const {
  std::string out =
      "# HELP nereid_io_stall_seconds Time that an event loop worked without a break\n"
      "# TYPE nereid_io_stall_seconds histogram\n";
  uint64_t total = 0, sum_ns = 0;
  for (size_t i = 0; i <= kBounds.size(); ++i) {
    for (const Shard& shard : shards_) total += shard.counts[i];
    out += i == kBounds.size()
               ? fmt::format("nereid_io_stall_seconds_bucket{{le=\"+Inf\"}} {}\n", total)
               : fmt::format("nereid_io_stall_seconds_bucket{{le=\"{}\"}} {}\n", kBounds[i], total);
  }
  for (const Shard& shard : shards_) sum_ns += shard.sum_ns;
  out += fmt::format("nereid_io_stall_seconds_sum {}\nnereid_io_stall_seconds_count {}\n",
                     static_cast<double>(sum_ns) * 1e-9, total);
  return out;
}

}  // namespace nereid::front
