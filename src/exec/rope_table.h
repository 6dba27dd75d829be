// Cosine and sine tables of the rotary embedding.
#pragma once

#include <cstdint>

#include "io/plan.h"

namespace nereid::exec {

// Writes [num_positions, 2 * num_frequencies]: cosines, then sines, of the f32 angle position *
// frequency, times the attention factor (layout: kernels::Rope).
void fill_rope_table(const io::RopeTable& rope, int32_t num_positions, float* out);

}  // namespace nereid::exec
