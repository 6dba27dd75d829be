// LoRA adapters by the names that clients of the OpenAI API use: those loaded at server start, and
// those loaded by requests.
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
  uint64_t task_id = 0;     // id in requests to the engine; ids of clients are smaller
  bool by_request = false;  // loaded by a request, not at start
};

// Task ids: adapters loaded at start count up from the first constant, adapters loaded by
// requests from the second.
inline constexpr uint64_t kFirstTaskId = uint64_t{1} << 63;
inline constexpr uint64_t kFirstTaskIdByRequest = kFirstTaskId + (uint64_t{1} << 32);

// Parses the parameter lora_modules, "name=folder;name=folder"; empty when unset. InvalidArgument,
// naming the part: a missing name or folder, a duplicate name.
StatusOr<std::vector<LoraModule>> parse_lora_modules(std::string_view text);

// The folder that a client names, absolute or relative to `root` (parameter lora_load_dir). Links
// are followed, and the result must lie inside `root`: else InvalidArgument. NotFound: no such
// folder. Its files are opened by OpenFile::open_below(), which checks again.
StatusOr<std::filesystem::path> find_lora_folder(const std::filesystem::path& root,
                                                 std::string_view path);

}  // namespace nereid::backend
