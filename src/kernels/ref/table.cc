// The reference rows of every op's table.
#include "kernels/api/validate.h"
#include "kernels/ref/ref.h"

namespace nereid::kernels::ref {
namespace {

constexpr double kSlowest = 1e9;  // seconds: chosen only when nothing else can

template <class Op>
void add_row(Registry& registry) {
  registry.add<Op>({{"ref", DeviceKind::kCpu,
                     [](const typename Op::Problem&, const DeviceInfo&) { return true; },
                     [](const typename Op::Problem&, const DeviceInfo&) { return kSlowest; },
                     [](const typename Op::Args& args, Stream&) {
                       RETURN_IF_ERROR(validate(args));
                       run(args);
                       return ok();
                     }}});
}

}  // namespace

void add_kernels(Registry& registry) {
  add_row<Embed>(registry);
  add_row<Norm>(registry);
  add_row<Linear>(registry);
  add_row<Rope>(registry);
  add_row<Attention>(registry);
  add_row<Glu>(registry);
  add_row<Add>(registry);
  add_row<GatherRows>(registry);
  add_row<Sample>(registry);
}

}  // namespace nereid::kernels::ref
