#include "cli/repository.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "base/file.h"

namespace nereid::cli {
namespace {

constexpr std::pair<const char*, const char*> kTemplates[] = {
#include "repository_templates.inc"
};

}  // namespace

StatusOr<std::string> fill_template(std::string_view text, const TemplateValues& values) {
  std::string out;
  std::vector<std::string> missing;
  while (!text.empty()) {
    const size_t begin = text.find("${");
    out.append(text.substr(0, begin));
    if (begin == text.npos) break;
    const size_t end = text.find('}', begin);
    if (end == text.npos) return invalid_argument("template: '${{' without '}}'");
    const std::string_view name = text.substr(begin + 2, end - begin - 2);
    if (const auto value = values.find(name); value != values.end())
      out.append(value->second);
    else if (std::find(missing.begin(), missing.end(), name) == missing.end())
      missing.emplace_back(name);
    text.remove_prefix(end + 1);
  }
  if (!missing.empty())
    return invalid_argument("template: no value for {}", fmt::join(missing, ", "));
  return out;
}

std::string escape_text(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

Status write_repository(const std::filesystem::path& dir, const TemplateValues& values) {
  for (const auto& [model, text] : kTemplates) {
    const auto filled = fill_template(text, values);
    if (!filled.ok()) return annotate(filled.status(), model);
    std::error_code error;
    std::filesystem::create_directories(dir / model / "1", error);
    if (error) return unavailable("{}: {}", (dir / model / "1").string(), error.message());
    RETURN_IF_ERROR(write_file_atomic(dir / model / "config.pbtxt", *filled));
  }
  return ok();
}

}  // namespace nereid::cli
