// Flags for a folder of heads that propose draft tokens, and for their numbers.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "cli/flags/arg_table.h"

namespace nereid::cli {

struct HeadsFlag {
  std::string_view name;
  std::string_view mode;  // see convert::draft_mode()
};
inline constexpr HeadsFlag kMedusaFlag = {"--medusa_model_dir", "medusa"};

// The folder of heads (empty: none), and its config.json with the flags applied.
struct DraftHeads {
  std::filesystem::path folder;
  json::object config;

  // Copies the heads into a checkpoint's directory.
  Status write(const std::filesystem::path& checkpoint) const;
};

// The heads of the one of `flags` that is given. InvalidArgument, naming the flag: several are
// given, a folder of another kind, or numbers that differ from the folder's.
StatusOr<DraftHeads> read_draft_heads(const Args& args, std::span<const HeadsFlag> flags);

}  // namespace nereid::cli
