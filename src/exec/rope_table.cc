// Rope tables of all positions within a runner's limits.
#include "exec/rope_table.h"

#include <algorithm>
#include <cmath>

#include "exec/memory.h"

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

StatusOr<RopeTables> RopeTables::create(const io::Plan& plan, const RunnerLimits& limits,
                                        Device& device) {
  RopeTables out;
  ASSIGN_OR_RETURN(out.host_, device.allocate_host(rope_table_bytes(plan, limits)));
  auto* angles = static_cast<float*>(out.host_.data());
  for (const io::RopeTable& rope : plan.model.ropes) {
    fill_rope_table(rope, limits.max_sequence_length, angles);
    angles += rope_table_floats(rope, limits);
    out.angle_bytes_ += rope_table_floats(rope, limits) * sizeof(float);
  }
  auto* components = reinterpret_cast<int32_t*>(angles);
  for (const io::RopeTable& rope : plan.model.ropes)
    components = std::ranges::copy(rope.components, components).out;
  ASSIGN_OR_RETURN(out.table_, device.upload(out.host_.data(), out.host_.size()));
  return out;
}

}  // namespace nereid::exec
