// Reference rows of all ops' tables.
#include <type_traits>

#include "kernels/api/validate.h"
#include "kernels/ref/ref.h"

namespace nereid::kernels::ref {
namespace {

constexpr double kSlowest = 1e9;  // seconds: chosen only if nothing else can run

}  // namespace

void add_kernels(Registry& registry) {
  registry.add_all([]<class Op>() -> Table<Op> {
    if (std::is_same_v<Op, FusedLinear>) return {};
    return {{"ref", DeviceKind::kCpu, [](const Op&, const DeviceInfo&) { return true; },
             [](const Op&, const DeviceInfo&) { return kSlowest; },
             [](const Op& args, Stream&) {
               RETURN_IF_ERROR(validate(args));
               reference(args);
               return ok();
             }}};
  });
}

}  // namespace nereid::kernels::ref
