// Runs every kernel of a GPU on its op's cases and compares with ref. A separate program: it needs
// a GPU, opens libnereid_cuda.so as the server does, and runs under compute-sanitizer.
// usage: gpu_kernels_test [DEVICE] [--once] [--only TEXT]
//   --once: without runs in other batches and benchmarks
//   --only: kernels whose op:name contains TEXT, or "choices"
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kernels/cuda/gpu_choices_fixture.h"
#include "kernels/open.h"
#include "kernels/testing/check.h"

namespace nereid::kernels {
namespace {

// Deterministic engines take the kernel of this name if there is one, else any kernel of the op;
// they have no fused_linear.
bool must_be_invariant(const testing::KernelId& id) {
  const bool has_invariant = id.op == "linear" || id.op == "expert_linear" ||
                             id.op == "fused_linear" || id.op == "attention";
  return id.name == "invariant" || !has_invariant;
}

// Prints one line per kernel; true if it is right on all cases it takes.
bool check_kernel(OpenedDevice& opened, const testing::KernelId& id, bool once) {
  const Time start = now();
  // Prompt attention rounds queries and weights to bf16; products do not round dequantised
  // integers. The attention bound assumes all errors of a score have one sign, so a quarter of it
  // is used: with the full bound a skipped block of keys passes nearly everywhere.
  const bool rounds = id.op == "linear" || id.op == "expert_linear" || id.op == "fused_linear";
  const testing::CheckOptions options = {rounds ? 0x1p-9 : id.op == "attention" ? 0x1p-11 : 0};
  const StatusOr<testing::Coverage> covered = testing::check_against_ref(opened, id, options);
  const double elapsed = seconds(now() - start);
  const std::string name = id.op + ":" + id.name;
  if (!covered.ok()) {
    std::printf("FAIL  %-24s %s\n", name.c_str(), std::string(message(covered.status())).c_str());
    return false;
  }
  std::string bits;
  bool good = covered->num_run > 0;
  if (!once) {
    const StatusOr<testing::Coverage> split = testing::check_splits(opened, id);
    bits = split.ok() ? ", same bits in any batch" : ", bits depend on the batch";
    if (!split.ok() && must_be_invariant(id)) {
      bits += fmt::format(": {}", message(split.status()));
      good = false;
    }
  }
  std::printf("%s  %-24s %3d of %3d cases, worst error %.3f of the tolerance, %6.2f s%s\n",
              good ? "PASS" : "FAIL", name.c_str(), covered->num_run, covered->num_cases,
              covered->worst, elapsed, bits.c_str());
  return good;
}

int run(const std::string& device, bool once, std::string_view only) {
  StatusOr<OpenedDevice> opened = open_device(device);
  if (!opened.ok()) {
    std::printf("FAIL  %s: %s\n", device.c_str(), std::string(message(opened.status())).c_str());
    return 1;
  }
  const DeviceInfo& info = opened->device->info();
  std::printf("%s: %s, %d units, compute capability %d.%d, %zu MiB\n", device.c_str(),
              info.name.c_str(), info.num_units, info.sm / 10, info.sm % 10,
              info.memory_bytes >> 20);
  int num_failed = 0;
  std::vector<testing::KernelId> kernels = testing::list_kernels(*opened);
  std::erase_if(kernels, [&](const testing::KernelId& id) {
    return (id.op + ":" + id.name).find(only) == std::string::npos;
  });
  for (const testing::KernelId& id : kernels) {
    num_failed += !check_kernel(*opened, id, once);
    std::fflush(stdout);
  }
  if (!once && std::string_view("choices").find(only) != std::string_view::npos)
    num_failed += !check_choices(*opened);
  std::printf("%zu kernels, %d failed\n", kernels.size(), num_failed);
  return num_failed == 0 && (!kernels.empty() || only == "choices") ? 0 : 1;
}

}  // namespace
}  // namespace nereid::kernels

int main(int argc, char** argv) {
  std::string device = "cuda:0", only;
  bool once = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--once")
      once = true;
    else if (arg == "--only" && i + 1 < argc)
      only = argv[++i];
    else
      device = arg;
  }
  return nereid::kernels::run(device, once, only);
}
