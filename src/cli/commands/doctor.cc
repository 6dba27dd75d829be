// nereid doctor: what this machine and this installation are for `nereid serve`.
#include "cli/commands/doctor.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/ranges.h>
#include <algorithm>

#include "base/file.h"
#include "cli/commands/commands.h"
#include "cli/process/server_process.h"
#include "kernels/open.h"
#include "tensor/cpu_probe.h"

namespace nereid::cli {
namespace {

using enum Finding::Kind;
namespace fs = std::filesystem;

constexpr double kMebibyte = 1 << 20;
constexpr char kHugePages[] = "/sys/kernel/mm/transparent_hugepage/enabled";

Finding check_processor() {
  const std::vector<Isa> usable = usable_isas();
  const auto device = kernels::open_device("cpu");
  if (!device.ok()) return {kPrevents, "processor", std::string(message(device.status()))};
  const std::string text =
      fmt::format("{}, {} cores: kernels for {}{}", processor_name(), num_usable_cores(),
                  name_of(device->device->info().isa), has_avx512_vnni() ? " with VNNI" : "");
  if (usable.back() >= Isa::kAvx2) return {kOk, "processor", text};
  return {kNote, "processor", text + "; without AVX2, FMA and F16C they are many times slower"};
}

Finding check_memory() {
  constexpr double kLeastMiB = 130;  // models/quickstart's engine, KV cache and buffers
  const HostMemory memory = host_memory();
  const double free_mib = static_cast<double>(memory.free_bytes) / kMebibyte;
  const std::string text = fmt::format(
      "{:.0f} MiB free of {:.0f} (cgroup limits counted): weights and KV cache must "
      "fit in (nereid inspect DIR)",
      free_mib, static_cast<double>(memory.total_bytes) / kMebibyte);
  if (free_mib >= kLeastMiB) return {kOk, "memory", text};
  return {kPrevents, "memory", fmt::format("{}; models/quickstart takes {}", text, kLeastMiB)};
}

Finding check_limit(const char* subject, decltype(RLIMIT_AS) resource, rlim_t least,
                    const char* flag, const char* meaning) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return {kOk, subject, "no limit"};
  const std::string text = fmt::format("{} {}", limit.rlim_cur, meaning);
  if (limit.rlim_cur >= least) return {kOk, subject, text};
  return {kNote, subject, fmt::format("{}; raise it: ulimit {} {}", text, flag, least)};
}

Finding check_virtual_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return {kOk, "address space", "no limit"};
  return {kNote, "address space",
          fmt::format("{} MiB (ulimit -v): larger models do not start; ulimit -v unlimited",
                      limit.rlim_cur >> 20)};
}

Finding check_backends() {
  const fs::path folder = default_backend_dir();
  std::vector<std::string> missing;
  for (const char* name : {"preprocessing", "tensorrtllm", "tensorrt_llm_bls", "postprocessing",
                           "multimodal_encoders", "whisper_bls"}) {
    std::error_code error;
    const fs::path library = folder / name / fmt::format("libtriton_{}.so", name);
    if (!fs::exists(library, error)) missing.push_back(library.string());
  }
  if (missing.empty()) return {kOk, "backends", folder.lexically_normal().string()};
  return {kPrevents, "backends",
          fmt::format("missing: {}; install the program with its folders, or name theirs by "
                      "--backend-directory",
                      fmt::join(missing, ", "))};
}

std::vector<Finding> check_gpus() {
  const StatusOr<int32_t> count = kernels::num_gpus();
  if (!count.ok())
    return {{kOk, "GPUs",
             fmt::format("none used, models run on the CPU: {}", message(count.status()))}};
  if (*count == 0) return {{kOk, "GPUs", "none seen by the driver: models run on the CPU"}};
  std::vector<Finding> findings;
  for (int32_t i = 0; i < *count; ++i) {
    const std::string id = fmt::format("cuda:{}", i);
    const auto gpu = kernels::open_device(id);
    if (!gpu.ok()) {
      findings.push_back({kNote, id, std::string(message(gpu.status()))});
      continue;
    }
    const DeviceInfo& info = gpu->device->info();
    findings.push_back(
        {kOk, id,
         fmt::format("{}, compute capability {}.{}, {:.0f} MiB free of {:.0f}", info.name,
                     info.sm / 10, info.sm % 10, static_cast<double>(info.free_bytes) / kMebibyte,
                     static_cast<double>(info.memory_bytes) / kMebibyte)});
  }
  return findings;
}

// Bytes of the folder's files, and whether all could be read.
uintmax_t bytes_in(const fs::path& folder) {
  uintmax_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const uintmax_t size = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return bytes;
}

}  // namespace

Finding check_cache(const fs::path& folder) {
  fs::path existing = folder;
  std::error_code error;
  while (!fs::exists(existing, error) && existing.has_relative_path())
    existing = existing.parent_path();
  struct statvfs space {};
  if (!fs::is_directory(existing, error) || ::access(existing.c_str(), W_OK | X_OK) != 0 ||
      ::statvfs(existing.c_str(), &space) != 0)
    return {kPrevents, "cache",
            fmt::format("{}: engines cannot be written; name another folder by --cache-dir or "
                        "$NEREID_CACHE_DIR",
                        folder.string())};
  const double free_mib =
      static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize) / kMebibyte;
  const std::string text = fmt::format(
      "{}: {:.0f} MiB of engines, {:.0f} MiB of pulled models, {:.0f} MiB free on the "
      "disk",
      folder.string(), static_cast<double>(bytes_in(folder / "engines")) / kMebibyte,
      static_cast<double>(bytes_in(folder / "models")) / kMebibyte, free_mib);
  if (free_mib >= 1024) return {kOk, "cache", text};
  return {kNote, "cache", text + "; an engine takes as much as the model's weights"};
}

Finding check_huge_pages(std::string_view enabled) {
  if (enabled.find("[always]") != enabled.npos || enabled.find("[madvise]") != enabled.npos)
    return {kOk, "huge pages", "large buffers take pages of 2 MiB"};
  return {kNote, "huge pages",
          fmt::format("off, which costs speed; echo madvise > {}", kHugePages)};
}

Finding check_default_port(const char* flag, int port) {
  const std::string subject = fmt::format("port {}", port);
  const Status status = check_port(flag, "--host", "127.0.0.1", port);
  if (status.ok()) return {kOk, subject, fmt::format("free, the default of {}", flag)};
  return {kPrevents, subject, std::string(message(status))};
}

std::vector<Finding> all_findings() {
  std::vector<Finding> findings = {check_processor(), check_memory()};
  findings.push_back(check_huge_pages(read_file(kHugePages, 4096).value_or("")));
  std::ranges::move(check_gpus(), std::back_inserter(findings));
  findings.push_back(check_backends());
  findings.push_back(check_cache(cache_dir()));
  findings.push_back(check_limit("open files", RLIMIT_NOFILE, 4096, "-n",
                                 "(ulimit -n): each connection takes one"));
  findings.push_back(
      check_limit("threads", RLIMIT_NPROC, 512, "-u", "(ulimit -u), of all programs of this user"));
  findings.push_back(check_virtual_limit());
  const ServerProcessOptions defaults;
  findings.push_back(check_default_port("--http-port", defaults.http.http_port));
  findings.push_back(check_default_port("--metrics-port", defaults.http.metrics_port));
  return findings;
}

void add_doctor(CLI::App& app, int& exit_code) {
  app.add_subcommand("doctor", "report what this machine and installation can serve; 1 = nothing")
      ->callback([&exit_code] {
        for (const Finding& finding : all_findings()) {
          const char* kind = finding.kind == kOk ? "ok" : finding.kind == kNote ? "note" : "FAULT";
          fmt::print("{:5}  {:13}  {}\n", kind, finding.subject, finding.text);
          if (finding.kind == kPrevents) exit_code = 1;
        }
      });
}

}  // namespace nereid::cli
