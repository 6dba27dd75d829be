// A plan as a picture.
#pragma once

#include <string>

#include "io/plan.h"

namespace nereid::convert {

// An SVG document: the calls in order as boxes with their kernels and weights, under each the
// values it makes with their shapes, and lines to where they are read. Calls that repeat with
// another layer number are drawn once, in a frame that says how often. Nothing but the plan decides
// its bytes.
std::string graph_svg(const io::Plan& plan);

}  // namespace nereid::convert
