#include "convert/draft_folder.h"

#include <utility>

#include "convert/engine_cache.h"
#include "convert/engine_key.h"
#include "models/drafts/eagle.h"
#include "models/drafts/eagle3.h"
#include "models/drafts/medusa.h"
#include "models/drafts/redrafter.h"
#include "models/formats/trtllm.h"

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

StatusOr<EagleParts> read_eagle_parts(const std::filesystem::path& heads,
                                      const models::Model& target,
                                      const std::filesystem::path& target_dir,
                                      bool random_weights) {
  EagleParts parts;
  if (models::has_eagle3_head(heads)) {
    ASSIGN_OR_RETURN(parts.head, models::read_eagle3_head(heads, target));
    if (!random_weights) {
      ASSIGN_OR_RETURN(parts.weights,
                       models::open_eagle3_head(heads, parts.head, target, target_dir));
    }
    return parts;
  }
  ASSIGN_OR_RETURN(parts.head, models::read_eagle_head(heads, target));
  if (!random_weights) {
    ASSIGN_OR_RETURN(parts.weights, models::open_eagle_head(heads, target, target_dir));
  }
  return parts;
}

Status build_eagle_engine(const std::filesystem::path& engine_dir,
                          const std::filesystem::path& checkpoint_dir,
                          const kernels::Registry& registry, const DeviceInfo& device,
                          const CompileOptions& compile) {
  const std::filesystem::path heads = engine_dir / kDraftFolder;
  if (draft_mode(heads) != "eagle") return ok();
  ASSIGN_OR_RETURN(const models::Model target, models::read_model(checkpoint_dir));
  ASSIGN_OR_RETURN(EagleParts parts, read_eagle_parts(heads, target, checkpoint_dir, false));
  ASSIGN_OR_RETURN(const Compiled compiled,
                   compile_model(std::move(parts.head), registry, device,
                                 {.weights = compile.weights, .head = compile.head}));
  return write_engine(heads / models::rank_file_name(0, true),
                      engine_key(compiled, &*parts.weights), compiled, &*parts.weights);
}

}  // namespace nereid::convert
