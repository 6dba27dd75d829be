// See model_name.h.
#include "hub/model_name.h"

#include <absl/strings/ascii.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace nereid::hub {
namespace {

constexpr std::string_view kPrefix = "hf://";
constexpr size_t kMaxWord = 96, kMaxRevision = 200, kMaxFile = 1000;
constexpr size_t kMaxComponent = 200, kMaxComponents = 8;

bool is_name_letter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
}

bool is_word(std::string_view word) {
  return !word.empty() && word.size() <= kMaxWord && word.front() != '.' && word.front() != '-' &&
         word.back() != '.' && std::ranges::all_of(word, is_name_letter) &&
         word.find("--") == word.npos && word.find("..") == word.npos;
}

bool is_revision(std::string_view text) {
  return !text.empty() && text.size() <= kMaxRevision && text.front() != '/' &&
         text.front() != '-' && text.front() != '.' && text.back() != '/' &&
         std::ranges::all_of(text, [](char c) { return is_name_letter(c) || c == '/'; }) &&
         text.find("..") == text.npos && text.find("//") == text.npos;
}

std::vector<std::string_view> components_of(std::string_view path) {
  std::vector<std::string_view> out;
  for (;;) {
    const size_t end = path.find('/');
    out.push_back(path.substr(0, end));
    if (end == path.npos) return out;
    path.remove_prefix(end + 1);
  }
}

// Names that are not hostile but that no checkpoint needs: hidden, long, nested, not ASCII.
bool is_plain(std::string_view file) {
  const std::vector<std::string_view> parts = components_of(file);
  return parts.size() <= kMaxComponents &&
         std::ranges::none_of(file, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }) &&
         std::ranges::all_of(parts, [](std::string_view part) {
           return !part.empty() && part.front() != '.' && part.size() <= kMaxComponent;
         });
}

}  // namespace

std::string ModelName::text() const {
  std::string out = id();
  if (revision != "main") out += "@" + revision;
  if (!file.empty()) out += ":" + file;
  return out;
}

bool is_hub_address(std::string_view text) { return text.starts_with(kPrefix); }

StatusOr<ModelName> parse_model_name(std::string_view text) {
  const std::string whole = quoted_name(text);
  if (is_hub_address(text)) text.remove_prefix(kPrefix.size());
  ModelName out;
  if (const size_t colon = text.find(':'); colon != text.npos) {
    out.file = text.substr(colon + 1);
    text = text.substr(0, colon);
    RETURN_IF_ERROR(check_file_name(out.file));
    if (kind_of(out.file) != FileKind::kGguf)
      return invalid_argument("'{}': behind ':' stands a .gguf file of the model, not '{}'", whole,
                              quoted_name(out.file));
  }
  if (const size_t at = text.find('@'); at != text.npos) {
    out.revision = text.substr(at + 1);
    text = text.substr(0, at);
    if (!is_revision(out.revision))
      return invalid_argument("'{}': '{}' is no revision; allowed: a branch, tag or commit", whole,
                              quoted_name(out.revision));
  }
  const size_t slash = text.find('/');
  out.org = text.substr(0, slash);
  out.name = slash == text.npos ? "" : text.substr(slash + 1);
  if (!is_word(out.org) || !is_word(out.name))
    return invalid_argument(
        "'{}' is no name of a model; allowed: ORG/NAME, then @REVISION, then :FILE.gguf (letters, "
        "digits, '-', '_' and '.')",
        whole);
  return out;
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

FileKind kind_of(std::string_view file) {
  if (!is_plain(file)) return FileKind::kOther;
  constexpr std::array kKinds = {
      std::pair{".json", FileKind::kText},  std::pair{".txt", FileKind::kText},
      std::pair{".model", FileKind::kText}, std::pair{".tiktoken", FileKind::kText},
      std::pair{".jinja", FileKind::kText}, std::pair{".safetensors", FileKind::kSafetensors},
      std::pair{".gguf", FileKind::kGguf}};
  for (const auto& [ending, kind] : kKinds)
    if (file.ends_with(ending)) return kind;
  return FileKind::kOther;
}

Status check_file_name(std::string_view file) {
  const auto refused = [&](std::string_view why) {
    return invalid_argument("file name '{}' {}; refused", quoted_name(file), why);
  };
  if (file.empty() || file.size() > kMaxFile) return refused("is empty or too long");
  if (file.front() == '/') return refused("is absolute");
  if (file.find('\\') != file.npos) return refused("has a backslash");
  if (std::ranges::any_of(file,
                          [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    return refused("has a control character");
  for (const std::string_view part : components_of(file)) {
    if (part == ".." || part == ".") return refused("leads out of its folder");
    if (part.empty()) return refused("has an empty component");
  }
  return ok();
}

std::string quoted_name(std::string_view text) {
  constexpr size_t kMost = 120;
  std::string out;
  for (const char c : text) {
    if (out.size() >= kMost) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return out;
}

std::string url_path(std::string_view text, bool encodes_slash) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = is_name_letter(c) || c == '~' || (c == '/' && !encodes_slash);
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace nereid::hub
