#include "cli/tools/draft_heads.h"

#include "base/file.h"
#include "convert/draft_folder.h"
#include "convert/pretty_json.h"
#include "models/config.h"

namespace nereid::cli {
namespace {

// A number of the heads: a field of the folder's config.json.
struct HeadsNumber {
  std::string_view name, folder, field;
  bool is_chosen = false;  // true: written there; else it must equal the field
};
constexpr HeadsNumber kHeadsNumbers[] = {
    {"--num_medusa_heads", "--medusa_model_dir", "medusa_num_heads"},
    {"--num_medusa_layers", "--medusa_model_dir", "medusa_num_layers"},
    {"--redrafter_num_beams", "--drafter_model_dir", "redrafter_num_beams", true},
    {"--redrafter_draft_len_per_beam", "--drafter_model_dir", "redrafter_draft_len_per_beam",
     true}};

}  // namespace

StatusOr<DraftHeads> read_draft_heads(const Args& args, std::span<const HeadsFlag> flags) {
  DraftHeads heads;
  std::string_view flag;
  for (const auto& [name, mode] : flags) {
    if (!args.given(name)) continue;
    if (!flag.empty())
      return invalid_argument("{}: beside {}; a checkpoint has one folder of heads", name, flag);
    flag = name;
    heads.folder = args.text(name);
    if (convert::draft_mode(heads.folder) != mode)
      return invalid_argument("{}: {} holds no heads of that kind", name, args.text(name));
    ASSIGN_OR_RETURN(heads.config, models::read_object(heads.folder / "config.json"));
  }
  for (const HeadsNumber& number : kHeadsNumbers) {
    if (!args.given(number.name)) continue;
    if (flag != number.folder) return invalid_argument("{}: needs {}", number.name, number.folder);
    const json::value value = args.integer(number.name);
    if (number.is_chosen) {
      heads.config[number.field] = value;
    } else if (const json::value* own = heads.config.if_contains(number.field);
               own && *own != value) {
      return invalid_argument("{}: {}, but config.json of {} has {}", number.name,
                              args.integer(number.name), heads.folder.string(),
                              json::serialize(*own));
    }
  }
  return heads;
}

Status DraftHeads::write(const std::filesystem::path& checkpoint) const {
  if (folder.empty()) return ok();
  RETURN_IF_ERROR(convert::copy_draft_folder(folder, checkpoint));
  return write_file_atomic(checkpoint / convert::kDraftFolder / "config.json",
                           convert::pretty_json(config));
}

}  // namespace nereid::cli
