// Cores and memory within affinity masks and cgroups.
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "tensor/cpu_probe.h"

namespace nereid {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxProcFile = size_t{1} << 20;

// The first decimal number; nullopt: none ("max"), or no file.
std::optional<uint64_t> number_in(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\n");
  if (start == std::string_view::npos) return std::nullopt;
  uint64_t value = 0;
  const char* const first = text.data() + start;
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), value);
  if (error != std::errc() || end == first) return std::nullopt;
  return value;
}

std::optional<uint64_t> number_in_file(const fs::path& path) {
  const auto text = read_file(path, kMaxProcFile);
  return text.ok() ? number_in(*text) : std::nullopt;
}

// The number behind `key` at a line start, as in "MemAvailable:  123 kB".
std::optional<uint64_t> field(std::string_view text, std::string_view key) {
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1))
    if (at == 0 || text[at - 1] == '\n') return number_in(text.substr(at + key.size()));
  return std::nullopt;
}

// Directories of this process's cgroups, innermost first, for a v1 `controller` or the unified (v2)
// hierarchy. A container sees its own group as the root.
std::vector<fs::path> group_directories(std::string_view controller) {
  std::vector<fs::path> out;
  const auto text = read_file("/proc/self/cgroup", kMaxProcFile);
  if (!text.ok()) return out;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const std::string_view line(text->data() + at, end - at);
    at = end + 1;
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string names = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const bool unified = names == ",,";
    if (!unified && names.find("," + std::string(controller) + ",") == std::string::npos) continue;
    const fs::path root =
        unified ? fs::path("/sys/fs/cgroup") : fs::path("/sys/fs/cgroup") / controller;
    fs::path group = fs::path(line.substr(second + 1)).lexically_normal().relative_path();
    for (; !group.empty() && *group.begin() != ".."; group = group.parent_path())
      out.push_back(root / group);
    out.push_back(root);
  }
  return out;
}

// Processors within the cgroup quota, rounded; nullopt: no quota.
std::optional<int> processor_quota() {
  double quota = std::numeric_limits<double>::infinity();
  for (const fs::path& group : group_directories("cpu")) {
    std::optional<uint64_t> used, period;
    if (const auto text = read_file(group / "cpu.max", kMaxProcFile); text.ok()) {
      used = number_in(*text);
      const size_t space = text->find(' ');
      if (space != std::string::npos) period = number_in(std::string_view(*text).substr(space));
    } else {
      used = number_in_file(group / "cpu.cfs_quota_us");
      period = number_in_file(group / "cpu.cfs_period_us");
    }
    if (used && period && *period > 0)
      quota = std::min(quota, static_cast<double>(*used) / static_cast<double>(*period));
  }
  if (quota > 1e6) return std::nullopt;
  return std::max(1, static_cast<int>(quota));
}

// A cgroup with a limit below the machine's, or below those of inner groups.
struct LimitedGroup {
  uint64_t limit = 0;
  fs::path used, stat;
};

struct Limits {
  size_t total_bytes = 0;
  std::vector<LimitedGroup> groups;
};

Limits read_limits() {
  Limits out;
  if (const auto text = read_file("/proc/meminfo", kMaxProcFile); text.ok())
    out.total_bytes = field(*text, "MemTotal:").value_or(0) * 1024;
  for (const fs::path& group : group_directories("memory")) {
    LimitedGroup found{.used = group / "memory.current", .stat = group / "memory.stat"};
    auto limit = number_in_file(group / "memory.max");
    if (!limit) {
      limit = number_in_file(group / "memory.limit_in_bytes");
      found.used = group / "memory.usage_in_bytes";
    }
    if (!limit || *limit >= out.total_bytes) continue;
    out.total_bytes = found.limit = *limit;
    out.groups.push_back(std::move(found));
  }
  return out;
}

// Limits rarely change, and reading them takes a file or two per hierarchy level.
std::shared_ptr<const Limits> current_limits() {
  constexpr auto kLast = std::chrono::seconds(1);
  static std::mutex mutex;
  static std::shared_ptr<const Limits> limits;
  static Time looked_up;
  std::lock_guard lock(mutex);
  if (!limits || now() - looked_up > kLast) {
    limits = std::make_shared<const Limits>(read_limits());
    looked_up = now();
  }
  return limits;
}

}  // namespace

int num_usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int num_cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    std::set<std::pair<uint64_t, uint64_t>> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &mask)) continue;
      const fs::path topology =
          fs::path("/sys/devices/system/cpu") / ("cpu" + std::to_string(cpu)) / "topology";
      const auto package = number_in_file(topology / "physical_package_id");
      const auto core = number_in_file(topology / "core_id");
      // Without topology each logical processor counts as a core; the package number separates it
      // from real ones.
      cores.insert(core ? std::pair(package.value_or(0), *core)
                        : std::pair(std::numeric_limits<uint64_t>::max(), uint64_t(cpu)));
    }
    num_cores = std::max(1, static_cast<int>(cores.size()));
  }
  return std::min(num_cores, processor_quota().value_or(num_cores));
}

HostMemory host_memory() {
  const std::shared_ptr<const Limits> limits = current_limits();
  HostMemory out{.total_bytes = limits->total_bytes};
  if (const auto text = read_file("/proc/meminfo", kMaxProcFile); text.ok())
    out.free_bytes = field(*text, "MemAvailable:").value_or(0) * 1024;
  for (const LimitedGroup& group : limits->groups) {
    const uint64_t used = number_in_file(group.used).value_or(0);
    // Page cache counts as used but is reclaimable.
    uint64_t cache = 0;
    if (const auto text = read_file(group.stat, kMaxProcFile); text.ok())
      cache = field(*text, "inactive_file ").value_or(0);
    const uint64_t held = used > cache ? used - cache : 0;
    out.free_bytes = std::min<size_t>(out.free_bytes, group.limit > held ? group.limit - held : 0);
  }
  return out;
}

}  // namespace nereid
