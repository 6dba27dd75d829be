// Verifier of graphs, run after building and after each pass.
#pragma once

#include "base/status.h"
#include "graph/ir.h"

namespace nereid::graph {

// Checks: each value is written once, before reads; operands have the shape, type and extent of the
// op's declaration; weights agree with their parts and are used; logits are f32 [sampled, vocab].
// Internal with node and operand.
Status verify(const Graph& graph);

}  // namespace nereid::graph
