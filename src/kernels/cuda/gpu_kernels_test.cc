// Runs every kernel of a GPU on the cases of its op and compares with ref. A program of its own: it
// needs a GPU, opens libnereid_cuda.so the way the server does, and is what compute-sanitizer runs.
// usage: gpu_kernels_test [DEVICE [--once]]     --once: without the runs in other batches
#include <cstdio>
#include <cstring>
#include <string>

#include "base/clock.h"
#include "kernels/open.h"
#include "kernels/testing/check.h"

namespace nereid::kernels {
namespace {

// One line per kernel; true when it is right on every case that it takes.
bool check_kernel(OpenedDevice& opened, const testing::KernelId& id, bool once) {
  const Time start = now();
  // Attention of prompts gives the tensor cores queries and weights rounded to bf16; products leave
  // out the rounding of what integers stand for.
  const testing::CheckOptions options = {id.op == "attention" || id.op == "linear" ? 0x1p-9 : 0};
  const StatusOr<testing::Coverage> covered = testing::check_against_ref(opened, id, options);
  const double elapsed = seconds(now() - start);
  const std::string name = id.op + ":" + id.name;
  if (!covered.ok()) {
    std::printf("FAIL  %-24s %s\n", name.c_str(), std::string(message(covered.status())).c_str());
    return false;
  }
  const char* bits = "";
  if (!once)
    bits = testing::check_splits(opened, id).ok() ? ", same bits in any batch"
                                                  : ", bits depend on the batch";
  std::printf("%s  %-24s %3d of %3d cases, worst error %.3f of the tolerance, %6.2f s%s\n",
              covered->num_run > 0 ? "PASS" : "FAIL", name.c_str(), covered->num_run,
              covered->num_cases, covered->worst, elapsed, bits);
  return covered->num_run > 0;
}

int run(const std::string& device, bool once) {
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
  const std::vector<testing::KernelId> kernels = testing::list_kernels(*opened);
  for (const testing::KernelId& id : kernels) {
    num_failed += !check_kernel(*opened, id, once);
    std::fflush(stdout);
  }
  std::printf("%zu kernels, %d failed\n", kernels.size(), num_failed);
  return num_failed == 0 && !kernels.empty() ? 0 : 1;
}

}  // namespace
}  // namespace nereid::kernels

int main(int argc, char** argv) {
  return nereid::kernels::run(argc > 1 ? argv[1] : "cuda:0",
                              argc > 2 && std::strcmp(argv[2], "--once") == 0);
}
