// The reference rows of every op's table.
#include "kernels/api/validate.h"
#include "kernels/ref/ref.h"

namespace nereid::kernels::ref {
namespace {

constexpr double kSlowest = 1e9;  // seconds: chosen only when nothing else can

template <class Op>
void add_row(Registry& registry) {
  registry.add<Op>({{"ref", DeviceKind::kCpu, [](const Op&, const DeviceInfo&) { return true; },
                     [](const Op&, const DeviceInfo&) { return kSlowest; },
                     [](const Op& args, Stream&) {
                       RETURN_IF_ERROR(validate(args));
                       reference(args);
                       return ok();
                     }}});
}

}  // namespace

void add_kernels(Registry& registry) {
  [&]<class... Ops>(std::tuple<Ops...>*) {
    (add_row<Ops>(registry), ...);
  }(static_cast<AllOps*>(nullptr));
}

}  // namespace nereid::kernels::ref
