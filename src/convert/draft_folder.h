// Heads that guess what a model says next (Medusa, ReDrafter, EAGLE), in a folder of the checkpoint
// or the engine directory of that model.
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

// The folder's name.
inline constexpr std::string_view kDraftFolder = "draft_model";

// trtllm-build's word for what a folder of heads holds: medusa, explicit_draft_tokens (ReDrafter)
// or eagle (EAGLE-1 and 3); empty: nothing of these.
std::string_view draft_mode(const std::filesystem::path& heads);

// Puts the files of a folder of heads into kDraftFolder of `model`, in place of what is there.
// Unavailable with the system's reason.
Status copy_draft_folder(const std::filesystem::path& heads, const std::filesystem::path& model);

// An EAGLE head (1 or 3) and its weights, some of which are the model's.
struct EagleParts {
  models::Model head;
  std::optional<io::Checkpoint> weights;  // none: they are random
};

// Of the folder `heads`, for the model `target` of the directory `target_dir`. Errors as
// models::read_eagle_head() and open_eagle_head().
StatusOr<EagleParts> read_eagle_parts(const std::filesystem::path& heads,
                                      const models::Model& target,
                                      const std::filesystem::path& target_dir, bool random_weights);

// Where kDraftFolder of `engine_dir` holds an EAGLE head: puts its engine there (see
// given_engine()), made of that folder and the model's checkpoint, which is not needed any more
// then. Of other heads engines are made when they are loaded.
Status build_eagle_engine(const std::filesystem::path& engine_dir,
                          const std::filesystem::path& checkpoint_dir,
                          const kernels::Registry& registry, const DeviceInfo& device,
                          const CompileOptions& compile = {});

}  // namespace nereid::convert
