// Runs the kernels of an opened device on their op's cases.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/open.h"

namespace nereid::kernels::testing {

struct KernelId {
  std::string op, name;
};
inline void PrintTo(const KernelId& id, std::ostream* out) { *out << id.op << ':' << id.name; }

// All registry rows of the device's kind, in table order.
std::vector<KernelId> list_kernels(const OpenedDevice& opened);

struct CheckOptions {
  // Relative rounding of f32 product operands on the device (bf16 tensor cores: 2^-9); 0 = none.
  double operand_epsilon = 0;
};

// Number of cases covered; 0: the kernel can run none on this device.
struct Coverage {
  int num_run = 0;
  int num_cases = 0;
  double worst = 0;  // largest error / tolerance (check_against_ref)
};

// Runs the kernel on all cases it can run: within tolerance of ref, no other bytes written.
// Internal error with the case and the worst cell.
StatusOr<Coverage> check_against_ref(OpenedDevice& opened, const KernelId& kernel,
                                     const CheckOptions& options = {});

// Same bits for a case run at once and in parts (single rows, chunks of any size).
StatusOr<Coverage> check_splits(OpenedDevice& opened, const KernelId& kernel);

// Same bits on two devices (such as CPU devices with different numbers of threads).
StatusOr<Coverage> check_same(OpenedDevice& a, OpenedDevice& b, const KernelId& kernel);

}  // namespace nereid::kernels::testing
