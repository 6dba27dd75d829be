#include "front/http/spool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace nereid::front {
namespace {

// -1: no file can be made there.
int open_unnamed(const std::string& folder) {
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  // File systems without such files.
  std::string path = folder + "/nereid-body-XXXXXX";
  fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(path.c_str());
  return fd;
}

}  // namespace

SpooledBody::~SpooledBody() {
  if (size_ > 0) ::munmap(const_cast<char*>(data_), size_);
}

Spool::~Spool() {
  if (fd_ >= 0) ::close(fd_);
}

Status Spool::open() {
  std::vector<std::string> folders = {"/tmp", "/var/tmp"};
  if (const char* const own = std::getenv("TMPDIR"); own && *own)
    folders.insert(folders.begin(), own);
  for (const std::string& folder : folders)
    if ((fd_ = open_unnamed(folder)) >= 0) return ok();
  return unavailable("the request's body finds no folder for a file (TMPDIR, /tmp, /var/tmp): {}",
                     std::strerror(errno));
}

Status Spool::take(std::string& text) {
  if (fd_ < 0) RETURN_IF_ERROR(open());
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return unavailable("the request's body cannot be kept in a file: {}", std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  size_ += text.size();
  text.clear();
  return ok();
}

StatusOr<std::shared_ptr<const SpooledBody>> Spool::finish() {
  if (size_ == 0) return std::make_shared<const SpooledBody>(nullptr, 0);
  void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_, 0);
  if (data == MAP_FAILED)
    return unavailable("the request's body cannot be read back: {}", std::strerror(errno));
  return std::make_shared<const SpooledBody>(static_cast<const char*>(data), size_);
}

}  // namespace nereid::front
