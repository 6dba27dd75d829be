#include "backend/parameters/lora_modules.h"

#include <algorithm>

#include "backend/parameters/parameters.h"

namespace nereid::backend {

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
      return invalid_argument("lora_modules: duplicate name '{}'", module.name);
    modules.push_back(std::move(module));
  }
  return modules;
}

StatusOr<std::filesystem::path> find_lora_folder(const std::filesystem::path& root,
                                                 std::string_view path) {
  std::error_code error;
  if (path.empty() || path.find('\0') != std::string_view::npos)
    return invalid_argument("'{}' is no path", path.substr(0, path.find('\0')));
  const auto top = std::filesystem::canonical(root, error);
  if (error) return not_found("{}: {} (parameter lora_load_dir)", root.string(), error.message());
  const auto folder = std::filesystem::weakly_canonical(top / path, error);
  const auto [end, rest] = std::ranges::mismatch(top, folder);
  if (error || end != top.end())
    return invalid_argument("'{}' does not lie inside {} (parameter lora_load_dir)", path,
                            root.string());
  if (!std::filesystem::exists(folder, error)) return not_found("'{}' is no folder", path);
  if (!std::filesystem::is_directory(folder, error))
    return invalid_argument("'{}' is no folder", path);
  return folder;
}

}  // namespace nereid::backend
