// Runs every kernel of a GPU on the cases of its op and compares with ref. A program of its own: it
// needs a GPU, opens libnereid_cuda.so the way the server does, and is what compute-sanitizer runs.
// usage: gpu_kernels_test [DEVICE] [--once] [--only TEXT]
//   --once: without the runs in other batches and what measures
//   --only: kernels whose op:name contains the text, or "choices"
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

// Deterministic engines take a kernel of this name where there is one, else any of the op; they
// have no fused_linear.
bool must_be_invariant(const testing::KernelId& id) {
  const bool has_invariant = id.op == "linear" || id.op == "expert_linear" ||
                             id.op == "fused_linear" || id.op == "attention";
  return id.name == "invariant" || !has_invariant;
}

// One line per kernel; true when it is right on every case that it takes.
bool check_kernel(OpenedDevice& opened, const testing::KernelId& id, bool once) {
  const Time start = now();
  // Attention of prompts gives the tensor cores queries and weights rounded to bf16; products leave
  // out the rounding of what integers stand for. The bound for attention takes all errors of a
  // score to be of one sign, so that a quarter of it does: with all of it a block of keys that is
  // left out passes nearly everywhere.
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
