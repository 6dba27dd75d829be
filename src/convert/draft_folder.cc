#include "convert/draft_folder.h"

#include "models/eagle.h"
#include "models/eagle3.h"
#include "models/medusa.h"
#include "models/redrafter.h"

namespace nereid::convert {

std::string_view draft_mode(const std::filesystem::path& heads) {
  if (models::has_medusa_heads(heads)) return "medusa";
  if (models::has_redrafter(heads)) return "explicit_draft_tokens";
  return models::has_eagle3_head(heads) || models::has_eagle_head(heads) ? "eagle" : "";
}

Status copy_draft_folder(const std::filesystem::path& heads, const std::filesystem::path& model) {
  const std::filesystem::path to = model / kDraftFolder;
  std::error_code error;
  if (std::filesystem::equivalent(heads, to, error)) return ok();
  std::filesystem::remove_all(to, error);
  if (!error) std::filesystem::create_directories(to, error);
  if (error) return unavailable("{}: {}", to.string(), error.message());
  for (std::filesystem::directory_iterator it(heads, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code not_a_file;
    if (!it->is_regular_file(not_a_file)) continue;
    std::filesystem::copy_file(it->path(), to / it->path().filename(), error);
    if (error) break;
  }
  return error ? unavailable("{}: {}", to.string(), error.message()) : ok();
}

}  // namespace nereid::convert
