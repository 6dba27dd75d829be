#include "cli/repository/repository.h"

#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "base/file.h"

namespace nereid::cli {
namespace {

constexpr std::pair<const char*, const char*> kTemplates[] = {
#include "repository_templates.inc"
};

}  // namespace

const TemplateTexts& repository_templates() {
  static const TemplateTexts templates(std::begin(kTemplates), std::end(kTemplates));
  return templates;
}

StatusOr<std::string> fill_template(std::string_view text, const TemplateValues& values) {
  std::set<std::string> missing = placeholders_of(text);
  std::erase_if(missing, [&](const std::string& name) { return values.contains(name); });
  if (!missing.empty())
    return invalid_argument("template: no value for {}", fmt::join(missing, ", "));
  return substitute(text, values);
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

Status write_repository(const std::filesystem::path& dir, const TemplateValues& values,
                        bool has_text) {
  for (const auto& [model, text] : kTemplates) {
    if (!has_text && model != kTokenModel) continue;
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
