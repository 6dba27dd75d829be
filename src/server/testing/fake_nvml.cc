// A management library with two GPUs, for tests: the second offers no power values.
#include <cstring>

namespace {
unsigned long long energy_mj = 5000;  // NOLINT: the library's own type
}

extern "C" {
#define EXPORT __attribute__((visibility("default")))

EXPORT int nvmlInit_v2() { return 0; }
EXPORT int nvmlShutdown() { return 0; }
EXPORT int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 2;
  return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  static int handles[2] = {0, 1};
  *device = &handles[index];
  return 0;
}
EXPORT int nvmlDeviceGetUUID(void* device, char* uuid, unsigned int) {
  std::strcpy(uuid, *static_cast<int*>(device) == 0 ? "GPU-a" : "GPU-b");
  return 0;
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = *static_cast<int*>(device) == 0 ? 9 : 8;
  *minor = *static_cast<int*>(device) == 0 ? 0 : 6;
  return 0;
}
EXPORT int nvmlDeviceGetUtilizationRates(void*, unsigned int* rates) {
  rates[0] = 25;
  rates[1] = 50;
  return 0;
}
EXPORT int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {  // NOLINT
  memory[0] = 1000;
  memory[1] = 700;
  memory[2] = 300;
  return 0;
}
EXPORT int nvmlDeviceGetPowerUsage(void* device, unsigned int* milliwatts) {
  *milliwatts = 150500;
  return *static_cast<int*>(device) == 0 ? 0 : 3;
}
EXPORT int nvmlDeviceGetPowerManagementLimit(void* device, unsigned int* milliwatts) {
  *milliwatts = 700000;
  return *static_cast<int*>(device) == 0 ? 0 : 3;
}
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {  // NOLINT
  *millijoules = energy_mj += 1000;
  return 0;
}
}
