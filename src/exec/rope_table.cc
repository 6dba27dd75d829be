// Rope tables of all positions within a runner's limits.
#include "exec/rope_table.h"

#include <cmath>

namespace nereid::exec {

void fill_rope_table(const io::RopeTable& rope, int32_t num_positions, float* out) {
  const size_t half = rope.inverse_frequencies.size();
  for (int32_t position = 0; position < num_positions; ++position, out += 2 * half)
    for (size_t i = 0; i < half; ++i) {
      // Angles are rounded to f32, as in training.
      const float angle = static_cast<float>(position) * rope.inverse_frequencies[i];
      out[i] = static_cast<float>(std::cos(double{angle})) * rope.attention_factor;
      out[half + i] = static_cast<float>(std::sin(double{angle})) * rope.attention_factor;
    }
}

}  // namespace nereid::exec
