// The fake driver in use: while it is loaded, libcuda.so.1 is its name.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/source_dir.h"

namespace nereid {

// UUIDs of the fake driver's GPUs 0 and 1 and of slice 2.
inline constexpr char kFakeH200[] = "GPU-0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a";
inline constexpr char kFakeA10[] = "GPU-0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b";
inline constexpr char kFakeSlice[] = "MIG-0c0c0c0c-0c0c-0c0c-0c0c-0c0c0c0c0c0c";

// Shows these GPUs, in CUDA's order, until its end.
class FakeGpus {
 public:
  explicit FakeGpus(const char* list = "01")
      : driver_(dlopen((build_dir() + "/lib/libfake_cuda.so").c_str(), RTLD_NOW | RTLD_LOCAL)) {
    show(list);
  }
  ~FakeGpus() {
    show("");
    if (driver_ != nullptr) dlclose(driver_);
  }
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;

  void show(const char* list) {
    ASSERT_NE(driver_, nullptr) << dlerror();
    reinterpret_cast<void (*)(const char*)>(dlsym(driver_, "fake_cuda_show"))(list);
  }

 private:
  void* driver_;
};

}  // namespace nereid
