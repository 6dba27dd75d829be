#include "convert/new_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

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

StatusOr<NewDirectory> NewDirectory::name(const std::filesystem::path& path,
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
  return out;
}

StatusOr<NewDirectory> NewDirectory::create(const std::filesystem::path& path,
                                            bool (*is_ours)(std::string_view name)) {
  ASSIGN_OR_RETURN(NewDirectory out, name(path, is_ours));
  ASSIGN_OR_RETURN(out.temporary_, make_temporary(out.final_));
  return out;
}

StatusOr<NewDirectory> NewDirectory::resume(const std::filesystem::path& path,
                                            bool (*is_ours)(std::string_view name)) {
  ASSIGN_OR_RETURN(NewDirectory out, name(path, is_ours));
  std::filesystem::path partial = out.final_;
  partial += ".partial";
  if (::mkdir(partial.c_str(), 0755) != 0 && errno != EEXIST)
    return unavailable("{}: {}", partial.string(), std::strerror(errno));
  // Released with the descriptor, at the latest at process exit.
  out.lock_ = ::open(partial.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (out.lock_ < 0) return unavailable("{}: {}", partial.string(), std::strerror(errno));
  if (::flock(out.lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return unavailable("output_dir: another process writes {}; let it end, or name another",
                       partial.string());
  out.temporary_ = std::move(partial);
  return out;
}

NewDirectory::NewDirectory(NewDirectory&& other) noexcept
    : final_(std::move(other.final_)),
      temporary_(std::exchange(other.temporary_, {})),
      lock_(std::exchange(other.lock_, -1)),
      kept_(other.kept_) {}

NewDirectory::~NewDirectory() {
  std::error_code error;
  if (!temporary_.empty() && !kept_) std::filesystem::remove_all(temporary_, error);
  if (lock_ >= 0) ::close(lock_);
}

Status NewDirectory::clear() {
  std::error_code error;
  std::vector<std::filesystem::path> entries;
  for (const auto& entry : std::filesystem::directory_iterator(temporary_, error))
    entries.push_back(entry.path());
  for (const std::filesystem::path& entry : entries) {
    std::filesystem::remove_all(entry, error);
    if (error) return unavailable("{}: {}", entry.string(), error.message());
  }
  return ok();
}

Status NewDirectory::finish() {
  std::error_code error;
  std::filesystem::path old;
  if (std::filesystem::exists(final_, error)) {
    ASSIGN_OR_RETURN(old, make_temporary(final_));
    if (const Status moved = rename_durably(final_, old); !moved.ok()) {
      std::filesystem::remove(old, error);
      return moved;
    }
  }
  RETURN_IF_ERROR(rename_durably(temporary_, final_));
  temporary_.clear();
  if (!old.empty()) std::filesystem::remove_all(old, error);
  return ok();
}

}  // namespace nereid::convert
