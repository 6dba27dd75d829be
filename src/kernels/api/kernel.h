// Kernel registry types. One op = one struct (op.h, *_ops.h); one kernel = one row. `can` alone
// decides support; `ref` rows define each op.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "tensor/device.h"

namespace nereid::kernels {

template <class Op>
struct Kernel {
  std::string_view
      name;  // "avx512_bf16": printed, forced as "linear:avx512_bf16", stored in the engine file
  DeviceKind device = DeviceKind::kCpu;
  bool (*can)(const Op&, const DeviceInfo&) = nullptr;
  double (*cost)(const Op&, const DeviceInfo&) = nullptr;  // comparable within an op
  Status (*run)(const Op&, Stream&) = nullptr;             // checked launcher
};

// A cost that orders rows by rank, independent of the processor.
template <class Op, int kRank>
double rank(const Op&, const DeviceInfo&) {
  return kRank;
}

// Rows of an op for one or more devices; the order is irrelevant.
template <class Op>
using Table = std::vector<Kernel<Op>>;

// "op:name" choices of the user or of an engine file.
using KernelChoices = std::vector<std::string>;

// The kernel for a problem: the forced one, else the cheapest that can. InvalidArgument: the forced
// one is unknown or cannot; lists the possible ones.
template <class Op>
StatusOr<const Kernel<Op>*> select(const Table<Op>& table, const Op& op, const DeviceInfo& device,
                                   const KernelChoices& forced = {}) {
  const Kernel<Op>* best = nullptr;
  double best_cost = 0;
  std::string_view wanted;
  for (const std::string& choice : forced)
    if (choice.size() > Op::kName.size() && choice.starts_with(Op::kName) &&
        choice[Op::kName.size()] == ':')
      wanted = std::string_view(choice).substr(Op::kName.size() + 1);
  std::string names;
  for (const Kernel<Op>& kernel : table) {
    if (kernel.device != device.kind || !kernel.can(op, device)) continue;
    names += names.empty() ? "" : ", ";
    names += kernel.name;
    if (!wanted.empty() && kernel.name != wanted) continue;
    const double cost = kernel.cost(op, device);
    if (!best || cost < best_cost) best = &kernel, best_cost = cost;
  }
  if (best) return best;
  if (!wanted.empty())
    return invalid_argument("kernel '{}:{}' cannot run this problem on {}; these can: {}",
                            Op::kName, wanted, device.id(), names);
  return unsupported("no '{}' kernel for this problem on {}", Op::kName, device.id());
}

}  // namespace nereid::kernels
