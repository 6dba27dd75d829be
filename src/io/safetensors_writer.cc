#include "io/safetensors_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/durability.h"
#include "base/file.h"
#include "base/json.h"
#include "io/safetensors.h"

namespace nereid::io {
namespace {

std::string_view format_name(DType type) {
  switch (type) {
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF32:
      return "F32";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
    case DType::kI8:
      return "I8";
    case DType::kF8E4M3:
      return "F8_E4M3";
  }
  return "";
}

std::string header_of(std::span<const TensorInfo> tensors, std::optional<int32_t> rank) {
  json::object header;
  if (rank) header["__metadata__"] = {{kRankMetadata, fmt::format("{}", *rank)}};
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    const uint64_t end = offset + tensor.bytes();
    header[tensor.name] = {{"dtype", format_name(tensor.type)},
                           {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json::serialize(header);
  text.append((8 - text.size() % 8) % 8, ' ');  // aligns the data
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return unavailable("{}: {}", name, std::strerror(n < 0 ? errno : EIO));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return ok();
}

}  // namespace

uint64_t TensorInfo::bytes() const {
  uint64_t count = size_of(type);
  for (const int64_t dim : shape) count *= static_cast<uint64_t>(dim);
  return count;
}

StatusOr<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                      std::span<const TensorInfo> tensors,
                                                      std::optional<int32_t> rank) {
  const std::string header = header_of(tensors, rank);
  SafetensorsWriter out;
  out.path_ = path;
  out.temporary_ = path.string() + ".tmp.XXXXXX";
  out.fd_ = ::mkostemp(out.temporary_.data(), O_CLOEXEC);
  if (out.fd_ < 0) {
    const std::string name = std::exchange(out.temporary_, {});
    return unavailable("{}: {}", name, std::strerror(errno));
  }
  ::fchmod(out.fd_, 0644);
  for (const TensorInfo& tensor : tensors) out.missing_ += tensor.bytes();
  RETURN_IF_ERROR(write_all(out.fd_, std::as_bytes(std::span(header)), out.temporary_));
  return out;
}

StatusOr<SafetensorsWriter> SafetensorsWriter::resume(const std::filesystem::path& path,
                                                      std::span<const TensorInfo> tensors,
                                                      uint64_t done) {
  const std::string header = header_of(tensors, {});
  SafetensorsWriter out;
  out.path_ = path;
  out.temporary_ = path.string() + ".part";
  out.stays_ = true;
  out.fd_ = ::open(out.temporary_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const auto failed = [&] { return unavailable("{}: {}", out.temporary_, std::strerror(errno)); };
  if (out.fd_ < 0) return failed();
  for (const TensorInfo& tensor : tensors) out.missing_ += tensor.bytes();
  const auto size = static_cast<off_t>(done > 0 ? header.size() + done : 0);
  if (done > 0) {
    std::string found(header.size(), '\0');
    const ssize_t n = ::pread(out.fd_, found.data(), found.size(), 0);
    struct stat info {};
    if (::fstat(out.fd_, &info) != 0) return failed();
    if (n != static_cast<ssize_t>(found.size()) || found != header || info.st_size < size ||
        done > out.missing_)
      return invalid_argument("{}: is not what was written", out.temporary_);
  }
  if (::ftruncate(out.fd_, size) != 0 || ::lseek(out.fd_, size, SEEK_SET) != size) return failed();
  if (done == 0)
    RETURN_IF_ERROR(write_all(out.fd_, std::as_bytes(std::span(header)), out.temporary_));
  out.written_ = done;
  out.missing_ -= done;
  return out;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      stays_(other.stays_),
      written_(other.written_),
      missing_(other.missing_) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty() && !stays_) ::unlink(temporary_.c_str());
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  if (bytes.size() > missing_)
    return internal_error("{}: more bytes than the header promises", path_.string());
  missing_ -= bytes.size();
  written_ += bytes.size();
  return write_all(fd_, bytes, temporary_);
}

StatusOr<uint64_t> SafetensorsWriter::sync() {
  if (flushes_files() && ::fdatasync(fd_) != 0)
    return unavailable("{}: {}", temporary_, std::strerror(errno));
  return written_;
}

Status SafetensorsWriter::finish() {
  if (missing_ != 0)
    return internal_error("{}: {} bytes of the tensors are missing", path_.string(), missing_);
  RETURN_IF_ERROR(rename_durably(temporary_, path_));
  temporary_.clear();
  return ok();
}

}  // namespace nereid::io
