// Weights for a plan that is there: of an engine that was built without them, or of other values.
// The plan stays as it was built; what its weights are made of comes from the
// checkpoint.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "convert/compile.h"
#include "convert/engine_cache.h"

namespace nereid::convert {

// The matrix of the plan's last product; null where there is none.
const io::Weight* head_of(const io::Plan& plan);

// `plan`, and what its weights are made of in the model at `checkpoint_dir`. InvalidArgument when
// the model has other weights than the plan, naming the first.
StatusOr<Compiled> match_weights(const io::Plan& plan, const std::filesystem::path& checkpoint_dir,
                                 const kernels::Registry& registry, const DeviceInfo& device);

struct RefitOptions {
  std::filesystem::path checkpoint_dir;  // checkpoint or Hugging Face directory with all weights
  std::filesystem::path engine_dir;      // engine directory, its engine with weights or without
  std::filesystem::path output_dir;      // created when missing; may be engine_dir
};

// Writes an engine directory like engine_dir with the weights of checkpoint_dir, which has as many
// ranks where the engine has several. Errors as match_weights() and ensure_engine().
Status refit_engine_dir(const RefitOptions& options, const kernels::Registry& registry,
                        const DeviceInfo& device, BuildReport* report = nullptr);

}  // namespace nereid::convert
