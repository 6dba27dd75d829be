// Names of collective calls in errors.
#include "comm/link.h"

#include <string_view>

#include "tensor/dtype.h"

namespace nereid::comm {

std::string text_of(const Call& call) {
  constexpr std::string_view kNames[] = {"all_reduce",     "all_gather", "reduce_scatter",
                                         "gather_columns", "broadcast",  "barrier"};
  const std::string_view name = kNames[static_cast<size_t>(call.kind)];
  const std::string_view type = name_of(static_cast<DType>(call.type));
  switch (call.kind) {
    case Call::Kind::kBarrier:
      return std::string(name);
    case Call::Kind::kBroadcast:
      return fmt::format("{} of {} bytes of rank {}", name, call.count, call.root);
    case Call::Kind::kGatherColumns:
      return fmt::format("{} of {} rows of {} x {} {}", name, call.count, call.units, call.unit,
                         type);
    default:
      return fmt::format("{} of {} {}", name, call.count, type);
  }
}

}  // namespace nereid::comm
