// Heads that guess what a model says next (Medusa, ReDrafter, EAGLE), in a folder of the checkpoint
// or the engine directory of that model.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace nereid::convert {

// The folder's name.
inline constexpr std::string_view kDraftFolder = "draft_model";

// trtllm-build's word for what a folder of heads holds: medusa, explicit_draft_tokens (ReDrafter)
// or eagle (EAGLE-1 and 3); empty: nothing of these.
std::string_view draft_mode(const std::filesystem::path& heads);

// Puts the files of a folder of heads into kDraftFolder of `model`, in place of what is there.
// Unavailable with the system's reason.
Status copy_draft_folder(const std::filesystem::path& heads, const std::filesystem::path& model);

}  // namespace nereid::convert
