#include "convert/new_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace nereid::convert {
namespace {

StatusOr<std::filesystem::path> make_temporary(const std::filesystem::path& path) {
  std::string name = path.string() + ".tmp.XXXXXX";
  if (!::mkdtemp(name.data())) return unavailable("{}: {}", name, std::strerror(errno));
  std::error_code error;
  using std::filesystem::perms;
  std::filesystem::permissions(name,
                               perms::owner_all | perms::group_read | perms::group_exec |
                                   perms::others_read | perms::others_exec,
                               error);
  return std::filesystem::path(name);
}

}  // namespace

StatusOr<NewDirectory> NewDirectory::create(const std::filesystem::path& path,
                                            bool (*is_ours)(std::string_view name)) {
  NewDirectory out;
  std::error_code error;
  out.final_ = std::filesystem::absolute(path, error).lexically_normal();
  if (!out.final_.has_filename()) out.final_ = out.final_.parent_path();
  if (std::filesystem::exists(out.final_, error)) {
    if (!std::filesystem::is_directory(out.final_, error))
      return invalid_argument("output_dir: {} is not a directory", path.string());
    for (const auto& entry : std::filesystem::directory_iterator(out.final_, error))
      if (const std::string name = entry.path().filename().string(); !is_ours(name))
        return invalid_argument(
            "output_dir: {} has '{}', which would be lost; name another directory, or an empty one",
            path.string(), name);
  }
  std::filesystem::create_directories(out.final_.parent_path(), error);
  if (error) return unavailable("{}: {}", out.final_.parent_path().string(), error.message());
  ASSIGN_OR_RETURN(out.temporary_, make_temporary(out.final_));
  return out;
}

NewDirectory::NewDirectory(NewDirectory&& other) noexcept
    : final_(std::move(other.final_)), temporary_(std::exchange(other.temporary_, {})) {}

NewDirectory::~NewDirectory() {
  std::error_code error;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, error);
}

Status NewDirectory::finish() {
  std::error_code error;
  std::filesystem::path old;
  if (std::filesystem::exists(final_, error)) {
    ASSIGN_OR_RETURN(old, make_temporary(final_));
    std::filesystem::rename(final_, old, error);
    if (error) {
      const std::string reason = error.message();
      std::filesystem::remove(old, error);
      return unavailable("{}: {}", final_.string(), reason);
    }
  }
  std::filesystem::rename(temporary_, final_, error);
  if (error) return unavailable("{}: {}", final_.string(), error.message());
  temporary_.clear();
  if (!old.empty()) std::filesystem::remove_all(old, error);
  return ok();
}

}  // namespace nereid::convert
