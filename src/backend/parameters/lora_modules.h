// The adapters that a server loads at start, by the names that clients of the OpenAI API call them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::backend {

struct LoraModule {
  std::string name;
  std::string folder;
  uint64_t task_id = 0;  // what requests to the engine call it; clients' own ids are smaller
};

// Of the parameter lora_modules, "name=folder;name=folder"; none when it is unset. InvalidArgument
// naming the part: no name or folder, a name twice.
StatusOr<std::vector<LoraModule>> parse_lora_modules(std::string_view text);

}  // namespace nereid::backend
