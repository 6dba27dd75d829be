// Draft heads (Medusa, ReDrafter, EAGLE) in a subfolder of the checkpoint or engine directory.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "convert/compile.h"
#include "io/checkpoint.h"
#include "kernels/api/registry.h"
#include "models/family.h"
#include "tensor/device.h"

namespace nereid::convert {

// Name of the subfolder.
inline constexpr std::string_view kDraftFolder = "draft_model";

// trtllm-build's name for the heads in a folder: medusa, explicit_draft_tokens (ReDrafter) or eagle
// (EAGLE-1 and 3); empty: none of these.
std::string_view draft_mode(const std::filesystem::path& heads);

// Copies the files of a folder of heads to kDraftFolder of `model`, replacing its contents.
// Unavailable with the system's reason.
Status copy_draft_folder(const std::filesystem::path& heads, const std::filesystem::path& model);

// An EAGLE head (1 or 3) and its weights, partly the target model's.
struct EagleParts {
  models::Model head;
  std::optional<io::Checkpoint> weights;  // none: random
};

// Reads the head in `heads` for the model `target` in `target_dir`. Errors as
// models::read_eagle_head() and open_eagle_head().
StatusOr<EagleParts> read_eagle_parts(const std::filesystem::path& heads,
                                      const models::Model& target,
                                      const std::filesystem::path& target_dir, bool random_weights);

// If kDraftFolder of `engine_dir` has an EAGLE head, builds its engine there (given_engine()) from
// that folder and the model's checkpoint, which is then no longer needed. Engines of other heads
// are built when loaded.
Status build_eagle_engine(const std::filesystem::path& engine_dir,
                          const std::filesystem::path& checkpoint_dir,
                          const kernels::Registry& registry, const DeviceInfo& device,
                          const CompileOptions& compile = {});

}  // namespace nereid::convert
