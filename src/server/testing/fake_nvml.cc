// A management library with the GPUs of base/testing/fake_cuda.cc, for tests: GPU 1 offers no power
// values, the MIG slice only its memory.
#include <cstring>

namespace {
unsigned long long energy_mj = 5000;  // NOLINT: the library's own type
int handles[] = {0, 1, 2};
constexpr int kNotFound = 6, kNotSupported = 3;

int number_of(void* device) { return *static_cast<int*>(device); }
}  // namespace

extern "C" {
#define EXPORT __attribute__((visibility("default")))

EXPORT int nvmlInit_v2() { return 0; }
EXPORT int nvmlShutdown() { return 0; }
EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  constexpr const char* kUuids[] = {"GPU-0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a",
                                    "GPU-0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b",
                                    "MIG-0c0c0c0c-0c0c-0c0c-0c0c-0c0c0c0c0c0c"};
  for (int& handle : handles) {
    if (std::strcmp(uuid, kUuids[handle]) != 0) continue;
    *device = &handle;
    return 0;
  }
  return kNotFound;
}
EXPORT int nvmlDeviceGetUtilizationRates(void* device, unsigned int* rates) {
  rates[0] = 25;
  rates[1] = 50;
  return number_of(device) == 2 ? kNotSupported : 0;
}
EXPORT int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {  // NOLINT
  memory[0] = number_of(device) == 2 ? 500 : 1000;
  memory[1] = 200;
  memory[2] = 300;
  return 0;
}
EXPORT int nvmlDeviceGetPowerUsage(void* device, unsigned int* milliwatts) {
  *milliwatts = 150500;
  return number_of(device) == 0 ? 0 : kNotSupported;
}
EXPORT int nvmlDeviceGetPowerManagementLimit(void* device, unsigned int* milliwatts) {
  *milliwatts = 700000;
  return number_of(device) == 0 ? 0 : kNotSupported;
}
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void* device,
                                               unsigned long long* millijoules) {  // NOLINT
  *millijoules = energy_mj += 1000;
  return number_of(device) == 2 ? kNotSupported : 0;
}
}
