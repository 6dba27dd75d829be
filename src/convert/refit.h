// Refit: fills or replaces the weights of an existing plan from a checkpoint.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "convert/compile.h"
#include "convert/engine_cache.h"

namespace nereid::convert {

// The matrix of the plan's last product; null: none.
const io::PlanWeight* head_of(const io::Plan& plan);

// `plan`, or the plan of a mapping's rank with its formats, with the parts of its weights in the
// model at `checkpoint_dir`. InvalidArgument with the first difference between the model's weights
// and the plan's.
StatusOr<Compiled> match_weights(const io::Plan& plan, const std::filesystem::path& checkpoint_dir,
                                 const kernels::Registry& registry, const DeviceInfo& device,
                                 const io::Mapping& mapping = {});

struct RefitOptions {
  std::filesystem::path checkpoint_dir;  // checkpoint or Hugging Face directory with all weights
  std::filesystem::path engine_dir;      // engine directory, with or without weights
  std::filesystem::path output_dir;      // created if missing; may be engine_dir
};

// Writes a copy of engine_dir with the weights of checkpoint_dir, which must have the engine's
// ranks. Errors as match_weights() and ensure_engine().
Status refit_engine_dir(const RefitOptions& options, const kernels::Registry& registry,
                        const DeviceInfo& device, BuildReport* report = nullptr);

}  // namespace nereid::convert
