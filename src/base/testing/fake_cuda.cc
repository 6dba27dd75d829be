// A CUDA driver with two GPUs and a MIG slice of the first, for tests. It shows the two GPUs until
// fake_cuda_show() is called, which stands for CUDA_VISIBLE_DEVICES.
#include <cstring>

namespace {

struct FakeGpu {
  const char* name;
  int major, minor;
  unsigned char uuid, whole_uuid;  // each of the 16 bytes
};

constexpr FakeGpu kFakeGpus[] = {{"NVIDIA H200", 9, 0, 0x0a, 0x0a},
                                 {"NVIDIA A10", 8, 6, 0x0b, 0x0b},
                                 {"NVIDIA H200 MIG 1g.18gb", 9, 0, 0x0c, 0x0a}};
int shown[8] = {0, 1};
int num_shown = 2;
constexpr int kNoDevice = 100, kInvalidValue = 1;

}  // namespace

extern "C" {
#define EXPORT __attribute__((visibility("default")))

// `list`: digits of kFakeGpus, in CUDA's order, such as "10".
EXPORT void fake_cuda_show(const char* list) {
  num_shown = 0;
  for (; *list != '\0'; ++list) shown[num_shown++] = *list - '0';
}

EXPORT int cuInit(unsigned int) { return num_shown == 0 ? kNoDevice : 0; }
EXPORT int cuDeviceGetCount(int* count) {
  *count = num_shown;
  return 0;
}
EXPORT int cuDeviceGet(int* device, int index) {
  *device = shown[index];
  return 0;
}
EXPORT int cuDeviceGetName(char* name, int size, int device) {
  std::strncpy(name, kFakeGpus[device].name, static_cast<unsigned>(size));
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  constexpr int kMajor = 75, kMinor = 76;
  if (attribute != kMajor && attribute != kMinor) return kInvalidValue;
  *value = attribute == kMajor ? kFakeGpus[device].major : kFakeGpus[device].minor;
  return 0;
}
EXPORT int cuDeviceGetUuid(unsigned char* uuid, int device) {
  std::memset(uuid, kFakeGpus[device].whole_uuid, 16);
  return 0;
}
EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, kFakeGpus[device].uuid, 16);
  return 0;
}
}
