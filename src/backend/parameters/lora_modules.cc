#include "backend/parameters/lora_modules.h"

#include <algorithm>

#include "backend/parameters/parameters.h"

namespace nereid::backend {
namespace {

constexpr uint64_t kFirstTaskId = uint64_t{1} << 63;

}  // namespace

StatusOr<std::vector<LoraModule>> parse_lora_modules(std::string_view text) {
  std::vector<LoraModule> modules;
  if (is_unset(text)) return modules;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size())
      return invalid_argument("lora_modules: '{}' is not name=folder", part);
    LoraModule module{std::string(part.substr(0, equals)), std::string(part.substr(equals + 1)),
                      kFirstTaskId + modules.size()};
    if (std::ranges::find(modules, module.name, &LoraModule::name) != modules.end())
      return invalid_argument("lora_modules: '{}' is there twice", module.name);
    modules.push_back(std::move(module));
  }
  return modules;
}

}  // namespace nereid::backend
