// Checks of a kernel call's arguments against its problem, shared by every launcher of an op. A
// failure is an Internal error: plans are made by this program.
#pragma once

#include "base/status.h"
#include "kernels/api/ops.h"

namespace nereid::kernels {

Status validate(const Embed::Args& args);
Status validate(const Norm::Args& args);
Status validate(const Linear::Args& args);
Status validate(const Rope::Args& args);
Status validate(const Attention::Args& args);
Status validate(const Glu::Args& args);
Status validate(const Add::Args& args);
Status validate(const GatherRows::Args& args);
Status validate(const Sample::Args& args);

}  // namespace nereid::kernels
