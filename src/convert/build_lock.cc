// One lock file for all keys: each key locks a byte at its own offset, and no files accumulate.
#include "convert/build_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/hash.h"

namespace nereid::convert {

BuildLock::BuildLock(const std::filesystem::path& dir, std::string_view key, Wait wait)
    : fd_(::open((dir / "build.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (fd_ < 0) return;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(hash64(key) >> 2);  // within the range of off_t
  lock.l_len = 1;
  // Locks of the open file, not the process: threads exclude each other too.
  held_ = ::fcntl(fd_, wait == Wait::kYes ? F_OFD_SETLKW : F_OFD_SETLK, &lock) == 0;
}

BuildLock::~BuildLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace nereid::convert
