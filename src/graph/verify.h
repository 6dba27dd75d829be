// Proves that a graph means something; run after building and after every pass.
#pragma once

#include "base/status.h"
#include "graph/ir.h"

namespace nereid::graph {

// Every value is written once and before it is read, every operand has the shape, type and extent
// that its op wants, weights agree with their parts, every weight is used, logits are
// f32 [sampled, vocab]. Internal (a pass or a model is wrong) naming node and operand.
Status verify(const Graph& graph);

}  // namespace nereid::graph
