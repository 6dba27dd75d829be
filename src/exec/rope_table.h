// Cosine and sine tables of the rotary embedding.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "exec/runner.h"
#include "io/plan.h"
#include "tensor/device.h"

namespace nereid::exec {

// Writes [num_positions, 2 * num_frequencies]: cosines, then sines, of the f32 angle position *
// frequency, times the attention factor (layout: kernels::Rope).
void fill_rope_table(const io::RopeTable& rope, int32_t num_positions, float* out);

// All tables of a plan on a device: the angles, then the components of those that have them.
class RopeTables {
 public:
  static StatusOr<RopeTables> create(const io::Plan& plan, const RunnerLimits& limits,
                                     Device& device);

  const float* angles() const { return reinterpret_cast<const float*>(table_.bytes()); }
  const int32_t* components() const {
    return reinterpret_cast<const int32_t*>(table_.bytes() + angle_bytes_);
  }

 private:
  size_t angle_bytes_ = 0;
  Buffer host_, table_;
};

}  // namespace nereid::exec
