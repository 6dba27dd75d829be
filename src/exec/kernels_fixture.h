// Test only: the kernels with which a test of a whole model runs.
#pragma once

#include <cstdio>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/testing/test_device.h"
#include "convert/engine_cache.h"
#include "exec/test_harness.h"
#include "kernels/open.h"
#include "tensor/cpu_probe.h"

namespace nereid::exec {

// Kernels of a CPU instruction set, or of test_device().
struct TestKernels {
  std::string isa;           // empty on devices other than the CPU
  bool is_invariant = true;  // batch-invariant kernels; true on CPUs

  std::string name() const { return !isa.empty() ? isa : is_invariant ? "invariant" : "fastest"; }
  StatusOr<kernels::OpenedDevice> open(int num_threads) const {
    return kernels::open_device(test_device(), {.num_threads = num_threads, .isa = isa});
  }
  kernels::KernelChoices forced(const kernels::OpenedDevice& opened) const {
    if (!is_invariant) return {};
    return kernels::invariant_kernels(opened.registry, opened.device->info().kind);
  }
};

// Text of failures.
inline void PrintTo(const TestKernels& kernels, std::ostream* out) { *out << kernels.name(); }

inline std::vector<TestKernels> test_kernels() {
  if (!tests_run_on_cpu()) return {{.is_invariant = false}, {.is_invariant = true}};
  std::vector<TestKernels> all;
  for (const Isa isa : usable_isas()) all.push_back({.isa = std::string(name_of(isa))});
  return all;
}

// The batch-invariant ones.
inline std::vector<TestKernels> invariant_test_kernels() {
  std::vector<TestKernels> all = test_kernels();
  std::erase_if(all, [](const TestKernels& kernels) { return !kernels.is_invariant; });
  return all;
}

// The engine of a model directory, in test_directory(); ends the process on an error.
inline std::filesystem::path build_engine(const std::filesystem::path& model,
                                          const TestKernels& kernels,
                                          convert::BuildOptions options = {}) {
  auto opened = kernels.open(1);
  NEREID_CHECK(opened.ok());
  options.cache_dir = test_directory();
  options.compile.forced = kernels.forced(*opened);
  auto engine = convert::ensure_engine(model, opened->registry, opened->device->info(), options);
  if (!engine.ok()) std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
  NEREID_CHECK(engine.ok());
  return *engine;
}

}  // namespace nereid::exec
