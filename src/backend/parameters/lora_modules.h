// Adapters by the names that clients of the OpenAI API call them: those that a server loads at
// start, and those that requests load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::backend {

struct LoraModule {
  std::string name;
  std::string folder;
  uint64_t task_id = 0;     // what requests to the engine call it; clients' own ids are smaller
  bool by_request = false;  // loaded by one, not at start
};

// Those loaded at start begin with the first, those loaded by requests with the second.
inline constexpr uint64_t kFirstTaskId = uint64_t{1} << 63;
inline constexpr uint64_t kFirstTaskIdByRequest = kFirstTaskId + (uint64_t{1} << 32);

// Of the parameter lora_modules, "name=folder;name=folder"; none when it is unset. InvalidArgument
// naming the part: no name or folder, a name twice.
StatusOr<std::vector<LoraModule>> parse_lora_modules(std::string_view text);

// The folder that a client names, absolute or from `root` on (parameter lora_load_dir). Whatever
// links it leads over, it must end inside `root`: else InvalidArgument. NotFound: there is none.
// Its files are opened by OpenFile::open_below(), which checks again.
StatusOr<std::filesystem::path> find_lora_folder(const std::filesystem::path& root,
                                                 std::string_view path);

}  // namespace nereid::backend
