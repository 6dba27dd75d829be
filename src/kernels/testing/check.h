// Runs the kernels of an opened device on the cases of their op.
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

// Every row of the registry that is for the device's kind, in table order.
std::vector<KernelId> list_kernels(const OpenedDevice& opened);

struct CheckOptions {
  // Relative rounding that the device's kernels may apply to f32 operands of their products (bf16
  // tensor cores: 2^-9); 0 = none.
  double operand_epsilon = 0;
};

// How many cases a check covered; a kernel that can run none of them on this device covers 0.
struct Coverage {
  int num_run = 0;
  int num_cases = 0;
  double worst = 0;  // largest error as a fraction of its tolerance (check_against_ref)
};

// Runs the kernel on every case that it can: right within tolerance of ref, nothing else written.
// Internal error naming the case and the worst cell.
StatusOr<Coverage> check_against_ref(OpenedDevice& opened, const KernelId& kernel,
                                     const CheckOptions& options = {});

// The same bits for a case run at once and cut into parts (rows alone, chunks of any size).
StatusOr<Coverage> check_splits(OpenedDevice& opened, const KernelId& kernel);

// The same bits on two devices (such as two CPU devices with different numbers of threads).
StatusOr<Coverage> check_same(OpenedDevice& a, OpenedDevice& b, const KernelId& kernel);

}  // namespace nereid::kernels::testing
