#include "cli/flags/missing_path.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/nearest.h"

namespace nereid::cli {
namespace {

// The "org/name" of a model on the Hugging Face hub: given as it is, in a URL or hf://, or with a
// suffix ":Q4_K_M" of Ollama or llama.cpp. Empty for other text.
std::string hub_name(std::string_view text) {
  bool is_address = false;
  for (const std::string_view begin :
       {"https://", "http://", "hf://", "www.", "huggingface.co/", "hf.co/"}) {
    if (!text.starts_with(begin)) continue;
    text.remove_prefix(begin.size());
    is_address = true;
  }
  const auto is_word = [](std::string_view word) {
    return !word.empty() && word[0] != '.' && std::ranges::all_of(word, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
    });
  };
  const size_t slash = text.find('/');
  if (slash == text.npos) return "";
  const std::string_view org = text.substr(0, slash), rest = text.substr(slash + 1);
  const std::string_view name = rest.substr(0, rest.find_first_of(is_address ? ":/?#" : ":"));
  if (!is_word(org) || !is_word(name) || name.ends_with(".gguf")) return "";
  return fmt::format("{}/{}", org, name);
}

// " Did you mean '/models/llama'?", with the nearest existing sibling of a missing path.
std::string nearest_path(const std::filesystem::path& path) {
  const std::filesystem::path clean = path.has_filename() ? path : path.parent_path();
  const std::filesystem::path folder = clean.has_parent_path() ? clean.parent_path() : ".";
  std::set<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    names.insert(it->path().filename().string());
  const std::string name = nearest_name(clean.filename().string(), names);
  if (name.empty()) return "";
  const std::filesystem::path meant = clean.parent_path() / name;
  return fmt::format(" Did you mean '{}'?", meant.string());
}

}  // namespace

Status check_exists(std::string_view what, const std::string& path) {
  if (std::error_code error; std::filesystem::exists(path, error)) return ok();
  const std::string begin = what.empty() ? "" : fmt::format("{}: ", what);
  const std::string near = nearest_path(path);
  if (const std::string hub = hub_name(path); !hub.empty() && near.empty())
    return not_found(
        "{}there is no directory '{}'; for the model of that name on the Hugging Face hub give "
        "hf://{} to a command that loads a model, or run `nereid pull {}` and give the folder that "
        "it prints",
        begin, path, hub, hub);
  return not_found(
      "{}there is no file or directory '{}'; give the folder of a model, a .gguf file, or "
      "hf://ORG/NAME of the Hugging Face hub{}",
      begin, path, near.empty() ? "" : "." + near);
}

}  // namespace nereid::cli
