// Reads the files of sentence-transformers; see pooling.h.
#include "front/openai/pooling.h"

#include <algorithm>
#include <string_view>

#include "base/json.h"
#include "base/json_members.h"

namespace nereid::front {
namespace {

namespace fs = std::filesystem;

// The folder of the module Pooling. Embeddings are normalised with or without a module Normalize.
StatusOr<fs::path> pooling_folder(const fs::path& modules) {
  fs::path folder = "1_Pooling";
  if (!fs::exists(modules)) return folder;
  ASSIGN_OR_RETURN(const json::value root, read_json_file(modules));
  if (!root.is_array()) return invalid_argument("{}: expected an array", modules.string());
  for (const json::value& module : root.get_array()) {
    std::string type = text_member(module, "type");
    type.erase(0, type.rfind('.') + 1);  // npos + 1 is 0
    if (type == "Pooling") {
      folder = fs::path(text_member(module, "path")).filename();
    } else if (type != "Transformer" && type != "Normalize") {
      return unsupported("{}: a module '{}' is not supported, only Transformer, Pooling, Normalize",
                         modules.string(), type);
    }
  }
  return folder;
}

}  // namespace

StatusOr<std::string> pooling_of(const fs::path& dir) {
  constexpr std::string_view kPrefix = "pooling_mode_";
  ASSIGN_OR_RETURN(const fs::path folder, pooling_folder(dir / "modules.json"));
  const fs::path path = dir / folder / "config.json";
  if (!fs::exists(path)) return std::string("last");
  ASSIGN_OR_RETURN(const json::value root, read_json_file(path));
  if (!root.is_object()) return invalid_argument("{}: expected an object", path.string());
  std::string modes;
  for (const auto& [key, value] : root.get_object()) {
    if (!key.starts_with(kPrefix) || !value.is_bool() || !value.get_bool()) continue;
    modes += (modes.empty() ? "" : ", ") + std::string(key.substr(kPrefix.size()));
  }
  if (modes == "lasttoken") return std::string("last");
  if (modes == "mean_tokens") return std::string("mean");
  return unsupported("{}: pooling by '{}' is not supported, only lasttoken or mean_tokens",
                     path.string(), modes);
}

}  // namespace nereid::front
