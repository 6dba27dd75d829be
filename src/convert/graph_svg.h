// Picture of a plan.
#pragma once

#include <string>

#include "io/plan.h"

namespace nereid::convert {

// An SVG of the plan: calls in order as boxes with kernels, weights and output shapes; lines to
// readers. Calls repeated over layers are drawn once, framed, with the count. Pure function.
std::string graph_svg(const io::Plan& plan);

}  // namespace nereid::convert
